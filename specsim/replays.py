"""One step of a simulation again, number by number, in plain Python.

Nothing compiled draws or decides (a trace's rows are read through a compiled check): the uniforms come from Philox in Python integers, the draws and tests from the rules'
plain twins. That it agrees with the engine, token for token, is what the tests assert.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from specsim import rules
from specsim.distributions import inverse_cdf
from specsim.engine import make_source
from specsim.models import Model
from specsim.rules import Walk
from specsim.sources import FixedPairSource, ModelRows, RowSource, TraceRows
from specsim.streams import Key, Purpose, RandomSource, key_of, root_of, uniform
from specsim.traces import Trace

__all__ = ["Replay", "replay"]


@dataclass(frozen=True)
class Replay:
    """A step, told again: where it started, the drafted tokens with their uniforms, and the rule's own account."""

    source: str
    rule: str
    root: int
    key: Key
    step: int
    start: str
    draft_uniforms: tuple[float, ...]
    draft_tokens: tuple[int, ...]
    walk: Walk

    def lines(self) -> Iterator[str]:
        """The story, a line each."""
        yield f"step {self.step} of {self.source}, rule {self.rule}, seed {self.root}"
        yield f"key     {self.key[0]:#010x} {self.key[1]:#010x}   (Philox4x32-10)"
        if self.start:
            yield f"start   {self.start}"
        for i, (token, u) in enumerate(zip(self.draft_tokens, self.draft_uniforms, strict=True)):
            yield f"draft   {i + 1}: u = {u:.17f}  token {token}"
        for test in self.walk.tests:
            outcome = "accepted" if test.accepted else "rejected"
            sign = "<" if test.accepted else "≥"
            ratio = test.p / test.q
            yield (
                f"test    {test.position + 1}: u = {test.u:.17f}  {sign} p/q = {test.p:.6g}/{test.q:.6g} = "
                f"{ratio:.6g}  {outcome}"
            )
        yield f"last    u = {self.walk.u:.17f}  token {self.walk.token} from {self.walk.source}"
        yield f"emitted {self.walk.tokens}   ({self.walk.num_accepted} accepted)"

    def __str__(self) -> str:
        return "\n".join(self.lines())


def replay(
    target: ArrayLike | Model | Trace,
    draft: ArrayLike | Model | None = None,
    *,
    step: int,
    rule: str = "standard",
    gamma: int = 5,
    rng: RandomSource = None,
) -> Replay:
    """Step number `step` ≥ 0 of `simulate` with the same arguments, in plain Python.

    `rng` must be the run's seed, or the `root` that its result recorded. Raises as `simulate`.

    >>> replay([0.5, 0.5], [0.8, 0.2], step=3, gamma=2, rng=1).walk.tokens
    [0, 1]
    """
    if isinstance(step, bool) or not isinstance(step, int | np.integer) or not 0 <= step < 2**63:
        raise ValueError(f"step: {step!r} is not an integer from 0 to 2^63 - 1")
    source = make_source(target, draft, rule=rule, gamma=gamma)
    root = root_of(rng)
    key = key_of(root)
    start, uniforms, tokens, walk = _told(source, rules.get(rule), key, int(step))
    return Replay(source.kind, rule, root, key, int(step), start, tuple(uniforms), tuple(tokens), walk)


def _told(
    source: FixedPairSource | RowSource, rule: rules.Rule, key: Key, step: int
) -> tuple[str, list[float], list[int], Walk]:
    u = [uniform(key, Purpose.DRAFT, step, i) for i in range(source.gamma)]
    v = [uniform(key, Purpose.VERIFY, step, i) for i in range(rule.uniforms(source.gamma))]
    if isinstance(source, FixedPairSource):
        tokens, walk = rule.fixed_pair.walk(source.p, source.q, u, v)
        return "", u, tokens, walk
    start, tokens, p, q = _rows(source.reader, key, step, u)
    return start, u, tokens, rule.walk(tokens, p, q, v)


def _rows(reader: Any, key: Key, step: int, u: list[float]) -> tuple[str, list[int], list[Any], list[Any]]:
    """Where the step starts, its drafted tokens, and its p and q rows as lists of floats."""
    if isinstance(reader, TraceRows):
        logged = step % reader.trace.num_steps
        _, p, q = reader.trace.steps(np.array([logged]))
        q_rows = q[0, : reader.gamma].tolist()
        tokens = [inverse_cdf(row, x) for row, x in zip(q_rows, u, strict=True)]
        return f"logged step {logged}, rows frozen", tokens, p[0, : reader.gamma + 1].tolist(), q_rows
    assert isinstance(reader, ModelRows)
    history = [int(token) for token in reader.context(key, step)]
    start = f"context {history}" if history else ""
    tokens, p_rows, q_rows = [], [], []
    for x in u:
        p_rows.append(_floats(reader.target.row(history)))
        q_rows.append(_floats(reader.draft.row(history)))
        tokens.append(inverse_cdf(q_rows[-1], x))
        history.append(tokens[-1])
    return start, tokens, [*p_rows, _floats(reader.target.row(history))], q_rows


def _floats(row: Any) -> list[float]:
    return [float(weight) for weight in row]
