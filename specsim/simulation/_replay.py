"""Replay one step of a simulation in plain Python: Philox in Python integers, kernels uncompiled."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from specsim import rules
from specsim.core._kernels import interpreted
from specsim.core._streams import Key, Purpose, RandomSource, key_of, root_of, uniform, word
from specsim.core._tables import Shown
from specsim.core._types import Floats, Ints, TokenArray, checked
from specsim.models import LookaheadDecoding, Model, PromptLookup
from specsim.models._drafts.dynamic import Draft
from specsim.rules._common import fixed_pairs
from specsim.rules._common.integers import BITS, REST, STEP, drawn, number, take_step
from specsim.simulation._sources import FixedPairSource, RowSource, make_source
from specsim.traces._reader import Trace

#: The most uniforms of verification that are printed.
SHOWN = 64


@dataclass(frozen=True)
class Node:
    """A drafted token: its parent, the uniform that drew it (None if not sampled), and its p and q."""

    parent: int
    token: int
    u: float | None
    p: float
    q: float


@dataclass(frozen=True, eq=False)
class Replay(Shown):
    """A replayed step: its start, the drafted nodes, the uniforms of verification, the emitted tokens."""

    source: str
    rule: str
    root: int
    key: Key
    step: int
    start: str
    nodes: tuple[Node, ...]
    verify_uniforms: tuple[float, ...]
    tokens: tuple[int, ...]
    derived = ("num_accepted",)

    @property
    def num_accepted(self) -> int:
        return len(self.tokens) - 1

    def records(self) -> list[dict[str, Any]]:
        """A row for each drafted token."""
        return [{"node": i, **asdict(node)} for i, node in enumerate(self.nodes, 1)]

    def parts(self) -> Iterator[str]:
        yield f"step {self.step} of {self.source}, rule {self.rule}, seed {self.root}"
        yield f"key     {self.key[0]:#010x} {self.key[1]:#010x}   (Philox4x32-10)"
        if self.start:
            yield f"start   {self.start}"
        for i, node in enumerate(self.nodes, 1):
            below = "" if node.parent == i - 1 else f" below {node.parent}"
            ratio = f" = {node.p / node.q:.6g}" if node.q else ""
            drawn = "" if node.u is None else f"u = {node.u:.17f}  "
            yield (f"draft   {i}{below}: {drawn}token {node.token}  p/q = {node.p:.6g}/{node.q:.6g}{ratio}")
        for i, u in enumerate(self.verify_uniforms[:SHOWN], 1):
            yield f"verify  {i}: u = {u:.17f}"
        if len(self.verify_uniforms) > SHOWN:
            yield f"        … {len(self.verify_uniforms)} in all"
        yield f"emitted {list(self.tokens)}   ({self.num_accepted} accepted)"


@checked
def replay(
    target: ArrayLike | Model | Trace,
    draft: ArrayLike | Model | PromptLookup | LookaheadDecoding | None = None,
    *,
    step: int,
    rule: str | rules.Rule = "standard",
    gamma: int | Draft = 5,
    rng: RandomSource = None,
) -> Replay:
    """Replay one step of `simulate` in plain Python.

    Parameters
    ----------
    target, draft, rule, gamma
        As in `simulate`.
    step : int
        Number of the step, from 0.
    rng : int
        The seed of the run, or the `root` of its provenance.

    Returns
    -------
    Replay

    Raises
    ------
    ValueError, TypeError
        As in `simulate`, and if `step` is not an integer in [0, 2^63).

    Examples
    --------
    >>> replay([0.5, 0.5], [0.8, 0.2], step=3, gamma=2, rng=1).tokens
    (1, 1)
    """
    if isinstance(step, bool) or not isinstance(step, int | np.integer) or not 0 <= step < 2**63:
        raise ValueError(f"step: {step!r} is not a step number; give an integer from 0 to 2^63 - 1")
    source, chosen = make_source(target, draft, rule=rule, gamma=gamma), rules.get(rule)
    root, step = root_of(rng), int(step)
    key, tree = key_of(root), source.tree
    u = _column(key, Purpose.DRAFT, step, tree.size)
    tokens, accepted = np.empty((tree.depth + 1, 1), dtype=np.int32), np.empty(1, dtype=np.int64)
    with interpreted():
        if isinstance(source, FixedPairSource):
            start, nodes, v = "", *_pair_step(source, key, step, u, tokens, accepted)
        else:
            start, nodes, v = _row_step(source, chosen, key, step, u, tokens, accepted)
    emitted = tuple(int(token) for token in tokens[:, 0] if token >= 0)
    return Replay(source.kind, str(chosen), root, key, step, start, nodes, tuple(v[:, 0].tolist()), emitted)


def _pair_step(
    source: FixedPairSource, key: Key, step: int, u: Floats, tokens: TokenArray, accepted: Ints
) -> tuple[tuple[Node, ...], Floats]:
    """Fill tokens and accepted; return the drafted nodes and the uniforms of verification."""
    pair, tree, p, q = source.rule.fixed_pair, source.tree, source.p, source.q
    if pair.count is None:
        v = _column(key, Purpose.VERIFY, step, pair.uniforms(tree))
        pair.kernel(*source.tables, u, v, tokens, accepted)
        drafted = fixed_pairs.draw_draft(p, q, tree, u[:, 0])
    else:
        *_, columns, chances = source.tables
        indices, tokens[:] = range(2 * tree.size + 1), -1
        words, rests = ([word(key, purpose, step, i) for i in indices] for purpose in (STEP, REST))
        take_step(columns, chances, words, rests, tokens[:, 0])
        numbers = np.array([number(words, rests, i) for i in indices])
        drafted = [int(drawn(columns[0], drafts)) for drafts in numbers[1::2]]
        u = numbers[1::2, None] * 2.0**-BITS
        v = np.append(numbers[2::2], numbers[0])[:, None] * 2.0**-BITS
    rows = [(p, q)] * (tree.size + 1)
    return _nodes(tree.parents, drafted, rows, None if tree.draft_sampling == "top" else u[:, 0]), v


def _row_step(
    source: RowSource, rule: rules.Rule, key: Key, step: int, u: Floats, tokens: TokenArray, accepted: Ints
) -> tuple[str, tuple[Node, ...], Floats]:
    """As `_pair_step`, with the start of the step."""
    tree, reader = source.tree, cast(Any, source.reader)
    v = _column(key, Purpose.VERIFY, step, rule.uniforms(tree, source.vocab_size))
    start, rows = reader.replayed(key, step, u)
    rule.rows(rows.parents, rows.draft_tokens, rows.p, rows.q, v, rule.array(), tokens, accepted)
    rows.end(tokens, accepted)
    random = tree.draft_sampling != "top" and rows.depths is None  # not copied from a text
    pairs, drawn_with = list(zip(rows.p[0], rows.q[0], strict=False)), u[:, 0] if random else None
    size = tree.size if rows.sizes is None else rows.sizes[0]
    parents, drafted = (part[0, :size].tolist() for part in (rows.parents, rows.draft_tokens))
    return start, _nodes(parents, drafted, pairs, drawn_with), v


def _nodes(
    parents: Sequence[int], drafted: Sequence[int], rows: Sequence[tuple[Floats, Floats]], u: Floats | None
) -> tuple[Node, ...]:
    nodes = []
    for j, (parent, token) in enumerate(zip(parents, drafted, strict=True)):
        p, q = (float(row[token]) for row in rows[parent])
        nodes.append(Node(parent, token, None if u is None else float(u[j]), p, q))
    return tuple(nodes)


def _column(key: Key, purpose: Purpose, step: int, count: int) -> Floats:
    """The uniforms of one step, shape [count, 1], from Philox in Python integers."""
    return np.array([[uniform(key, purpose, step, i)] for i in range(count)])
