"""The time of an iteration of a server: of one pass over many sequences, and of draft and target together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import ArrayLike

from specsim.core._files import PathLike, read_columns, read_table
from specsim.core._types import Floats, check_between, check_count, check_known, checked, said_of
from specsim.planning._batch._kernel import pass_seconds
from specsim.planning._costs import Experts, Hardware, Network

#: The longest pass.
MOST_SECONDS = 1e6


@dataclass(frozen=True)
class PassTime:
    """The seconds of one forward pass, for any number of sequences, tokens and cached tokens.

    `fixed` + `per_sequence`·sequences + `per_token`·tokens, and, with `network` and `hardware`, the time of
    `Network.seconds`: the larger of those for reading weights, the experts that are used, and caches, and for
    arithmetic. Only the sums of tokens and contexts over sequences matter."""

    fixed: float = 0.0
    per_sequence: float = 0.0
    per_token: float = 0.0
    network: Network | None = None
    hardware: Hardware | None = None

    def __post_init__(self) -> None:
        for name in ("fixed", "per_sequence", "per_token"):
            check_between(name, getattr(self, name), 0.0, MOST_SECONDS, "number of seconds")
            object.__setattr__(self, name, float(getattr(self, name)))
        if (self.network is None) != (self.hardware is None):
            raise ValueError("network: needs hardware, and the reverse; give both or neither")

    @classmethod
    def of(cls, network: Network, hardware: Hardware) -> "PassTime":
        """The time of a network on some hardware."""
        return cls(network=network, hardware=hardware)

    @classmethod
    @checked
    def fit(cls, sequences: ArrayLike, tokens: ArrayLike, milliseconds: ArrayLike) -> "PassTime":
        """Fit n ≥ 3 measured passes by non-negative least squares; each column is [n], counts ≥ 1.

        Raises ValueError for columns of other lengths, for other counts, and for collinear ones."""
        given = {"sequences": sequences, "tokens": tokens, "milliseconds": milliseconds}
        columns = {name: np.asarray(one, dtype=np.float64) for name, one in given.items()}
        rows = columns["sequences"]
        if rows.ndim != 1 or len({one.shape for one in columns.values()}) > 1 or len(rows) < 3:
            raise ValueError(f"{', '.join(columns)}: differ in length, or are short; give at least 3 rows")
        for name, column in columns.items():
            low = 0.0 if name == "milliseconds" else 1.0
            if (wrong := np.flatnonzero(~(np.isfinite(column) & (column >= low)))).size:
                row = int(wrong[0])
                raise ValueError(f"{name}: row {row + 1} has {column[row]:g}; give a finite number ≥ {low:g}")
        design = np.column_stack([np.ones(len(rows)), rows, columns["tokens"]])
        scale = np.abs(design).max(axis=0)
        if np.linalg.matrix_rank(design / scale) < 3:
            raise ValueError("sequences and tokens: their coefficients are not determined; vary both of them")
        found, _ = scipy.optimize.nnls(design / scale, columns["milliseconds"] / 1e3)
        return cls(*(found / scale).tolist())

    @classmethod
    def read(cls, path: PathLike) -> "PassTime":
        """Fit to a CSV file with the columns batch, tokens (of all sequences) and ms, a row for each pass."""
        found = read_columns(path, ("batch", "tokens", "ms"))
        if len({*found["batch"]}) == 1:
            one = f"'specsim plan --measured {path},MS --batch {found['batch'][0]:g}'"
            raise ValueError(f"{path}: every pass has one batch; measure others too, or plan for it: {one}")
        with said_of(path):
            return cls.fit(*found.values())

    def seconds(self, sequences: int, tokens: int, context: float = 0.0) -> float:
        """The time over `tokens` of `sequences` with `context` cached tokens, both summed over sequences."""
        return float(pass_seconds.plain(self.coefficients(), sequences, tokens, context))

    def coefficients(self) -> Floats:
        """What the compiled loop reads: fixed, per sequence, per token, weights, experts, log of the share of
        experts that a token leaves out, per cached token, arithmetic per token."""
        additive = [self.fixed, self.per_sequence, self.per_token]
        network, hardware = self.network, self.hardware
        if network is None or hardware is None:
            return np.array([*additive, 0.0, 0.0, 0.0, 0.0, 0.0])
        byte = 1.0 / hardware.bandwidth
        weights, used = network.parameters * network.bytes_per_parameter, network.parameters
        experts = left_out = 0.0
        if (one := network.experts) is not None:
            experts = one.count * one.parameters * network.bytes_per_parameter
            left_out = math.log1p(-one.active / one.count) if one.active < one.count else -math.inf
            used += one.active * one.parameters
        roofline = [weights * byte, experts * byte, left_out, network.cache_bytes_per_token * byte]
        return np.array([*additive, *roofline, 2.0 * used / hardware.flops])


@dataclass(frozen=True)
class BatchCost:
    """The passes of target and draft; the draft attends to at most `draft_context` tokens, all by default.

    A draft that takes no time, such as a lookup of n-grams, is `PassTime()`."""

    target: PassTime
    draft: PassTime
    draft_context: float | None = None

    def __post_init__(self) -> None:
        for name in ("target", "draft"):
            if not isinstance(getattr(self, name), PassTime):
                raise TypeError(f"{name}: expected a PassTime, got {type(getattr(self, name)).__name__}")
        if self.draft_context is not None:
            check_between("draft_context", self.draft_context, 0.0, math.inf, "number of tokens")
        if self.target.seconds(1, 1) <= 0.0:
            raise ValueError("target: its pass takes no time at all")

    @property
    def seen(self) -> float:
        """The most tokens that the draft attends to."""
        return math.inf if self.draft_context is None else self.draft_context

    def iteration(self, gammas: Sequence[int], contexts: Sequence[float]) -> float:
        """The seconds of an iteration over sequences with these drafted tokens and contexts, without prefill.

        Draft pass k is over the sequences with at least k drafted tokens; the target verifies all in one."""
        for gamma in gammas:
            check_count("gammas", gamma, 0)
        if len(gammas) != len(contexts) or not len(gammas):
            raise ValueError("gammas and contexts: expected as many of each, at least one")
        seconds = 0.0
        for k in range(1, max(gammas) + 1):
            cached = [min(held, self.seen) for g, held in zip(gammas, contexts, strict=True) if g >= k]
            seconds += self.draft.seconds(len(cached), len(cached), sum(cached))
        return seconds + self.target.seconds(len(gammas), sum(gammas) + len(gammas), sum(contexts))


_TABLE = read_table("presets")


def _cost(networks: list[str], hardware: str, draft_context: float | None = None) -> BatchCost:
    machine, passes = Hardware(**_TABLE["hardware"][hardware]), []
    for given in (_TABLE["networks"][name] for name in networks):
        experts = Experts(*given["experts"]) if "experts" in given else None
        passes.append(PassTime.of(Network(**given | {"experts": experts}), machine))
    return BatchCost(passes[0], passes[1], draft_context)


#: By name, with what each is.
PRESETS = {name: (one.pop("meaning"), _cost(**one)) for name, one in _TABLE["presets"].items()}


def presets() -> dict[str, str]:
    """Describe the presets by name.

    Returns
    -------
    dict
        {name: networks and hardware}.

    Examples
    --------
    >>> presets()["llama-70b"]
    'Llama 3.1 70B, drafted by Llama 3.1 8B, on eight H100'
    """
    return {name: text for name, (text, _) in PRESETS.items()}


@checked
def preset(name: str) -> BatchCost:
    """The cost of a named pair of networks on named hardware, with the bandwidth and speed of data sheets.

    Servers attain less than data sheets say, and several devices take time to communicate: fit `PassTime` to
    measured passes where there are any.

    Parameters
    ----------
    name : str
        One of `presets`.

    Returns
    -------
    BatchCost

    Examples
    --------
    >>> round(1e3 * preset("llama-8b").target.seconds(1, 1), 2)
    4.79
    """
    check_known("preset", name, tuple(PRESETS))
    return PRESETS[name][1]
