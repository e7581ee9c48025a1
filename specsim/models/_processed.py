"""A model at another temperature, or cut to its most probable tokens, as samplers process rows.

The order is that of transformers: temperature, top-k, top-p, min-p, each on the renormalised rest."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.core import distributions
from specsim.core._types import Floats, TokenArray, check_count, checked
from specsim.models._base import Model, check_out

#: The parameters of a sampler, and the values that change nothing.
SAMPLING = ("temperature", "top_k", "top_p", "min_p")
NEUTRAL = dict(zip(SAMPLING, (1.0, None, 1.0, 0.0), strict=True))


def process(
    rows: ArrayLike,
    order: Sequence[str] = SAMPLING,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> Floats:
    """Rows [..., V] after the steps of `order`, those of `SAMPLING` and "joint", what top-k and top-p both
    keep: each works on what the one before left, renormalised. Raises ValueError as each of these."""
    if top_k is not None:
        check_count("top_k", top_k)
    given = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    for step in order:
        if step == "joint":
            kept = distributions.top_p(rows, top_p) > 0.0
            if top_k is not None:
                kept &= distributions.top_k(rows, top_k) > 0.0
            rows = distributions.normalise(np.asarray(rows) * kept)
        elif given.get(step) != NEUTRAL.get(step) or given.get(step) is True:  # others are no steps of these
            rows = getattr(distributions, step)(rows, given[step])
    return np.asarray(rows, dtype=np.float64)


@dataclass(frozen=True)
class Processing:
    """What a decoder does to the target's rows before it draws, see `specsim.adapters._contract.Declared`.

    Raises ValueError or TypeError for values out of range, see `specsim.core.distributions`.

    >>> Processing(top_k=2).rows(np.array([0.5, 0.3, 0.2]))
    array([0.625, 0.375, 0.   ])
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    grammar: tuple[tuple[int, tuple[int, ...]], ...] = ()
    min_tokens: int = 0

    def __post_init__(self) -> None:
        self.rows(np.ones(1))

    @classmethod
    def of(cls, declared: "Processing") -> Self:
        return cls(**{field.name: getattr(declared, field.name) for field in fields(cls)})

    @property
    def of_texts(self) -> bool:
        """Whether there is a penalty, a bias, a grammar, or a least length."""
        return self != Processing(self.temperature, self.top_k, self.top_p, min_p=self.min_p)

    def after(self, texts: NDArray[np.int32], p: Floats, given: int = 0, eos: int | None = None) -> Floats:
        """The processed rows [B, V] of `p` after `texts` [B, T], each with a prompt of `given` tokens."""
        if self.of_texts:
            times = texts[:, :, None] == np.arange(p.shape[1])
            new = times[:, given:].sum(axis=1)
            scores = -self.frequency_penalty * new - self.presence_penalty * (new > 0)
            for token, bias in self.logit_bias:
                scores[:, token : token + 1] += bias
            for token, allowed in self.grammar:
                others = ~np.isin(np.arange(p.shape[1]), allowed)
                bound = (texts[:, -1:] == token).any(axis=1) & p[:, ~others].any(axis=1)
                scores[np.ix_(bound, others)] = -np.inf
            if eos is not None and texts.shape[1] - given < self.min_tokens:
                scores[:, eos] = -np.inf
            penalised = np.where(times.any(axis=1), p**self.repetition_penalty, p)
            p = distributions.normalise(penalised * np.exp(scores))
        return self.rows(p)

    def rows(self, p: Floats) -> Floats:
        """The processed rows, of the shape [..., V] of `p`, without a penalty."""
        return process(p, temperature=self.temperature, top_k=self.top_k, top_p=self.top_p, min_p=self.min_p)


def sampled(one: Any, **sampling: Any) -> Any:
    """A model with these sampling parameters, or a pmf after them."""
    return Processed(one, **sampling) if isinstance(one, Model) else process(one, **sampling)


class Processable:
    """A model that has `processed`."""

    def processed(
        self, *, temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0, min_p: float = 0.0
    ) -> "Processed":
        """Make the same model with other sampling parameters, see `Processed`.

        >>> from specsim.models import TableModel
        >>> TableModel([0.5, 0.3, 0.2]).processed(top_k=2).row([])
        array([0.625, 0.375, 0.   ])
        """
        return Processed(self, temperature, top_k, top_p, min_p)  # type: ignore[arg-type]


@checked
@dataclass(frozen=True)
class Processed(Processable):
    """A model whose rows are processed before a token is drawn: temperature, top-k, top-p, then min-p.

    Parameters
    ----------
    model : Model
    temperature : float
        ≥ 0; 0 gives the most probable token.
    top_k : int, optional
        Keep that many of the most probable tokens, and ties with the last.
    top_p : float
        In (0, 1]: keep the smallest set of most probable tokens with that mass.
    min_p : float
        In [0, 1]: keep tokens with that share of the largest probability.

    Examples
    --------
    >>> from specsim.models import TableModel
    >>> Processed(TableModel([0.8, 0.2]), temperature=0.5).rows([[]]).round(4)
    array([[0.9412, 0.0588]])
    """

    model: Model
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.model, Model):
            raise TypeError(f"model: expected a model, got {type(self.model).__name__}")
        self._process(np.ones(1))  # for its checks

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    @property
    def order(self) -> int:
        return self.model.order

    @property
    def contexts(self) -> TokenArray:
        return self.model.contexts

    @property
    def reads_all(self) -> bool:
        return bool(getattr(self.model, "reads_all", False))

    def rows(self, histories: ArrayLike, out: Floats | None = None) -> Floats:
        """The rows after each of `histories`, as `Model.rows`."""
        rows = self.model.rows(histories)
        out = check_out(out, len(rows), self.vocab_size)
        out[...] = self._process(rows)
        return out

    def row(self, context: Sequence[int]) -> Floats:
        """The row after one `context`, float64."""
        return self._process(np.asarray(self.model.row(context), dtype=np.float64)[None])[0]

    def _process(self, rows: Floats) -> Floats:
        return process(rows, **{name: getattr(self, name) for name in SAMPLING})
