"""Rules that decide on a chain token by token, from the two rows of each position alone.

Such a rule is three functions: the probability of accepting the token drafted at a position, the pmf of the
token recovered after a rejection, and the pmf of the bonus, by default p. This module builds from them the
law of a whole step, the row kernel, and the fixed-pair kernel."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from specsim.core._kernels import Kernel, Pointer, inner_kernel, kernel
from specsim.core._types import Floats, Row, Rows, StepLaw
from specsim.core.distributions import alias_draws, alias_table, copy_row, cumulative_draw, is_zero
from specsim.models import Tree
from specsim.rules._common import integers
from specsim.rules._common.base import FixedPair, Rule, end_step, named
from specsim.rules._common.fixed_pairs import alias_draw, build_tables

#: (acceptance, recovered) or (acceptance, recovered, bonus), see `law`; the same as kernels, see `rows`.
Decisions = tuple[Callable[..., Any], ...]
Kernels = tuple[Kernel, ...]


def rule(name: str, decided: Decisions, kernels: Kernels, pair: FixedPair, **claims: Any) -> Rule:
    """The rule with this law, row kernel and fixed pair; `claims` are other parts of a `Rule`."""
    return named(name, law(name, *decided), rows(*kernels), pair, **claims)


def law(
    name: str,
    accept: Callable[..., Any],
    recovered: Callable[..., Row],
    bonus: Callable[..., Row] | None = None,
) -> Callable[..., StepLaw]:
    """Build the law of a step of the rule called `name`.

    accept(p, q, x, **values) is the probability of accepting token x, drafted with q(x) > 0; recovered(p, q,
    x, **values) the pmf of the token emitted after the rejection of x; bonus(p, q, **values) that of the
    token after a draft accepted whole, by default p. There q is None unless the rule has `leaf_rows`."""

    kept = kept_by_rows(lambda *args, **values: (accept(*args, **values), list(recovered(*args, **values))))

    def step_law(parents: Sequence[int], tokens: Sequence[int], p: Rows, q: Rows, **values: float) -> StepLaw:
        require_chain(name, parents)
        decided = [kept(p_row, q_row, x, **values) for x, p_row, q_row in zip(tokens, p, q, strict=False)]
        last = p[len(tokens)]
        if bonus is not None:
            last = bonus(last, q[len(tokens)] if len(q) > len(tokens) else None, **values)
        return stop_law([passed for passed, _ in decided]), [*(row for _, row in decided), list(last)]

    step_law.in_order = step_law.by_token = True  # type: ignore[attr-defined]  # for laws of texts
    return step_law


def stop_law(chances: Sequence[Any]) -> list[Any]:
    """The probability of stopping at the first failure, from those of passing."""
    stop: list[Any] = []
    reached: Any = 1
    for chance in chances:
        stop.append(reached * (1 - chance))
        reached = reached * chance
    return [*stop, reached]


#: As many results are kept.
MOST_KEPT = 4096


def kept_by_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """function(p, q, *rest, **values), kept by the objects p and q if they are tuples, not their values."""
    kept: dict[tuple[Any, ...], tuple[Any, Row, Row]] = {}

    def call(p: Row, q: Row, *rest: Any, **values: Any) -> Any:
        if not type(p) is type(q) is tuple:
            return function(p, q, *rest, **values)
        key = id(p), id(q), *rest, *values.values()
        found = kept.get(key)
        if found is None:
            if len(kept) >= MOST_KEPT:
                kept.clear()
            # with the rows, so that no others get their ids
            found = kept[key] = function(p, q, *rest, **values), p, q
        return found[0]

    return call


def require_chain(name: str, parents: Sequence[int]) -> None:
    """Raise ValueError unless `parents` is a chain, the only shape that the rule called `name` verifies."""
    if tuple(parents) != tuple(range(len(parents))):
        tree = f"a tree with parents {tuple(parents)}"
        raise ValueError(f"gamma: {name} verifies a chain of tokens, not {tree}; give a number")


def positive_part(p: Row, q: Row, otherwise: Row | None = None) -> list[Any]:
    """(p - q)₊, normalised; `otherwise` (by default p) where that is 0, as after a rejection by rounding."""
    excess = [max(a - b, 0 * a) for a, b in zip(p, q, strict=True)]
    return normalise(excess) if any(excess) else list(p if otherwise is None else otherwise)


def normalise(weights: Row) -> list[Any]:
    """`weights`, of positive mass, divided by their sum."""
    mass = sum(weights)
    return [weight / mass for weight in weights]


def survival(chance: Callable[..., Any]) -> Callable[..., Floats]:
    """Build `Rule.survival` from the probability chance(p(x), q(x), **values) of accepting x."""
    return lambda p, q, **values: np.cumprod(chance(p, q, **values), axis=-1)


@inner_kernel
def no_bonus(p, q, values, weights):
    """The default: the bonus comes from p."""
    copy_row(p, weights)


#: The types of `accept`, `recover` and `bonus`, see `rows`.
TYPES = (
    "boolean(float64[::1], float64[::1], int64, float64, float64[::1])",
    "void(float64[::1], float64[::1], int64, float64[::1], float64[::1])",
    "void(float64[::1], float64[::1], float64[::1], float64[::1])",
)


def rows(accept: Kernel, recover: Kernel, bonus: Kernel = no_bonus) -> Kernel:
    """Build the row kernel: uniforms[i] tests position i, uniforms[γ] draws the last token.

    accept(p, q, x, u, values) decides by u in [0, 1); recover(p, q, x, values, weights) fills weights[V] with
    the law of the recovered token, not normalised; bonus(p, q, values, weights) with that of the bonus, where
    q is the last row given."""

    def verify(parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
        verify_rows(accept, recover, bonus, parents, draft_tokens, p, q, uniforms, values, tokens, accepted)

    return verify_rows.bound(verify, *map(Pointer, (accept, recover, bonus), TYPES))


@kernel
def verify_rows(accept, recover, bonus, parents, draft_tokens, p, q, uniforms, values, tokens, accepted):
    gamma = draft_tokens.shape[1]
    weights = np.empty(p.shape[2])
    for b in range(draft_tokens.shape[0]):
        n = 0
        while n < gamma:
            x = draft_tokens[b, n]
            if not accept(p[b, n], q[b, n], x, uniforms[n, b], values):
                break
            tokens[n, b] = x
            n += 1
        if n < gamma:
            recover(p[b, n], q[b, n], draft_tokens[b, n], values, weights)
            if is_zero(weights):  # only by rounding
                copy_row(p[b, n], weights)
        else:
            bonus(p[b, n], q[b, q.shape[1] - 1], values, weights)
        end_step(tokens, accepted, b, n, cumulative_draw(weights, uniforms[gamma, b]))


def fixed_pair(shares: Callable[..., tuple[Floats, Floats, Floats]]) -> FixedPair:
    """Build the fixed-pair kernels of a rule whose recovered token does not depend on the rejected one.

    shares(p, q, **values) gives the probability [V] of accepting each token, or [r, V] where it differs by
    position (row r - 1 for all positions after it); the weights [V] of the recovered token and the bonus."""

    def tables(p: Floats, q: Floats, tree: Tree, **values: float) -> tuple[np.ndarray, ...]:
        accept, recovered, bonus = shares(p, q, **values)
        last = [weights if weights.any() else p for weights in (recovered, bonus)]
        return integers.tables(draft_pmf(q, tree), np.atleast_2d(accept)[: tree.size], *last)

    draw, count = integers.draw_steps, integers.count_steps
    return FixedPair(tables, draw, count=count, acceptance=acceptance_of(shares))


def acceptance_of(shares: Callable[..., tuple[Floats, ...]]) -> Callable[..., Floats]:
    """Build `FixedPair.acceptance` from shares(p, q, **values), whose first is as in `fixed_pair`."""

    def acceptance(p: Floats, q: Floats, tree: Tree, **values: float) -> Floats:
        by_position = (np.atleast_2d(shares(p, q, **values)[0]) * draft_pmf(q, tree)).sum(axis=-1)
        last = len(by_position) - 1
        return np.clip(by_position[np.minimum(np.arange(tree.size), last)], 0.0, 1.0)

    return acceptance


def draft_pmf(q: Floats, tree: Tree) -> Floats:
    return np.eye(1, q.size, int(q.argmax()))[0] if tree.draft_sampling == "top" else q


def fixed_pair_by_token(
    shares: Callable[..., tuple[Floats, Floats]],
    draw: Kernel,
    against: Callable[..., Floats] = lambda p, q, **values: q,
) -> FixedPair:
    """Build the fixed-pair kernel of a rule whose recovered token depends on the rejected one.

    shares(p, q, **values) gives the probability [V] of accepting each token, and numbers [V], such as one for
    each token. draw(pair, numbers, x, tested, u) is the token recovered after the uniform `tested` rejected
    x, with u in [0, 1), where `pair` has the tables of p and against(p, q, **values). The bonus comes from
    p."""

    def tables(p: Floats, q: Floats, tree: Tree, **values: float) -> tuple[Any, ...]:
        pair = build_tables(p, against(p, q, **values))
        return pair, alias_table(draft_pmf(q, tree)), *shares(p, q, **values)

    def verify_fixed_pair(pair, draft, accept, numbers, draft_uniforms, verify_uniforms, tokens, accepted):
        gamma, steps = tokens.shape[0] - 1, tokens.shape[1]
        drawn, rejected = np.empty(steps, np.int32), np.zeros(steps, np.int64)
        alive = np.ones(steps, np.int64)
        accepted[:] = 0
        for i in range(gamma):
            alias_draws(draft, draft_uniforms[i], drawn)
            for s in range(steps):
                passed = alive[s] & np.int64(verify_uniforms[i, s] < accept[drawn[s]])
                rejected[s] += drawn[s] * (alive[s] - passed)
                alive[s] = passed
                accepted[s] += passed
                tokens[i, s] = (drawn[s] + 1) * passed - 1
        tokens[gamma, :] = -1
        for s in range(steps):
            n, u = accepted[s], verify_uniforms[gamma, s]
            if alive[s]:
                tokens[n, s] = alias_draw(pair.p_alias, u)
            else:
                tokens[n, s] = draw(pair, numbers, rejected[s], verify_uniforms[n, s], u)

    return FixedPair(tables, kernel(verify_fixed_pair), acceptance=acceptance_of(shares))
