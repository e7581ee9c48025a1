"""One step of verification on given arrays: the accept test, and the whole step."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from specsim import rules
from specsim.core._kernels import interpreted
from specsim.core._streams import RandomSource, key_of, root_of
from specsim.core._tables import Piece, Shown, Table
from specsim.core._types import checked
from specsim.core.distributions import Floats, Ints, check_probabilities, check_rows, check_tokens
from specsim.models import Tree
from specsim.simulation._rows import Rows, tile_parents
from specsim.simulation._sources import rule_verifier

#: Steps of a batch that are shown.
SHOWN = 10


@checked
def speculative_accept(draft_tokens: Sequence[int], p: ArrayLike, q: ArrayLike, r: ArrayLike) -> list[int]:
    """Return the longest accepted prefix of `draft_tokens`: token i passes if r[i] ≤ min(1, p[i, x]/q[i, x]).

    A token with p(x) = 0 is accepted if r is exactly 0, once in 2^53 draws (2^24 in float32); `verify` tests
    u·q < p, and never accepts it.

    Parameters
    ----------
    draft_tokens : sequence of int
        L token ids.
    p, q : array_like, [L, V]
        Probabilities of target and draft; rows need not sum to 1.
    r : array_like, [L]
        Uniforms in [0, 1].

    Returns
    -------
    list of int

    Raises
    ------
    ValueError, TypeError
        If shapes differ, a token or an entry is out of range, or q(x) = 0 at a tested token.

    References
    ----------
    Leviathan et al., arXiv 2211.17192, Algorithm 1.

    Examples
    --------
    >>> p, q = np.full((3, 8), 0.1), np.full((3, 8), 0.1)
    >>> p[0, 5], q[0, 5] = 0.6, 0.3
    >>> p[1, 2], q[1, 2] = 0.1, 0.5
    >>> speculative_accept([5, 2, 7], p, q, np.array([0.5, 0.5, 0.5]))
    [5]
    >>> speculative_accept([1], [[1.0, 0.0]], [[0.5, 0.5]], [0.0])  # p(x) = 0 is accepted at r = 0
    [1]
    """
    p_rows, q_rows = check_probabilities(p, "p"), check_probabilities(q, "q")
    if p_rows.ndim != 2 or q_rows.shape != p_rows.shape:
        raise ValueError(f"q: shape {q_rows.shape}, p has {p_rows.shape}; give both one shape [L, V]")
    tokens = check_tokens(draft_tokens, p_rows.shape[1])
    u = np.asarray(r, dtype=np.float64)
    for name, shape in (("draft_tokens", tokens.shape), ("r", u.shape)):
        if shape != (len(p_rows),):
            raise ValueError(f"{name}: shape {shape}; give one entry for each of the {len(p_rows)} rows of p")
    outside = ~((u >= 0.0) & (u <= 1.0))
    if outside.any():
        i = int(outside.argmax())
        raise ValueError(f"r, position {i}: {u[i]} is outside [0, 1]; give uniforms")
    accepted: list[int] = []
    for i, x in enumerate(tokens.tolist()):
        p_x, q_x = float(p_rows[i, x]), float(q_rows[i, x])
        if q_x == 0.0:
            raise _undraftable(i, x)
        if not u[i] <= min(1.0, p_x / q_x):
            break
        accepted.append(x)
    return accepted


@dataclass(frozen=True, eq=False)
class Verification(Shown):
    """The output of a step: a list of tokens and an int; of a batch of B: `tokens` int64 [B, γ+1], padded
    with -1, and `num_accepted` int64 [B]. `rng=root` repeats the result."""

    tokens: list[int] | Ints
    num_accepted: int | Ints
    rule: str
    root: int

    def parts(self) -> Iterator[Piece]:
        rows = self.records()
        yield Table.of([row | {"tokens": " ".join(map(str, row["tokens"]))} for row in rows[:SHOWN]])
        if len(rows) > SHOWN:
            yield f"… {len(rows):,} steps in all"
        yield f"rule {self.rule}, seed {self.root}"

    def records(self) -> list[dict[str, Any]]:
        """A row for each step: the number of accepted tokens, and the emitted ones."""
        steps = [self.tokens] if isinstance(self.tokens, list) else self.tokens.tolist()
        accepted = np.atleast_1d(self.num_accepted).tolist()
        return [
            {"step": s, "accepted": n, "tokens": tokens[: n + 1]}
            for s, (n, tokens) in enumerate(zip(accepted, steps, strict=True))
        ]


@checked
def verify(
    draft_tokens: ArrayLike,
    p: ArrayLike,
    q: ArrayLike | None,
    rule: str | rules.Rule = "standard",
    *,
    rng: RandomSource = None,
    parents: Sequence[int] | None = None,
) -> Verification:
    """Verify drafted tokens: return the accepted ones and one more token, recovered or bonus.

    The standard rule tests u·q < p with u in [0, 1), so it never emits a token with p(x) = 0. If rounding
    leaves an all-zero residual, the token is drawn from p.

    Parameters
    ----------
    draft_tokens : array_like of int, [γ] or [B, γ]
        The tokens of one step, or of a batch of B steps.
    p : array_like, [γ+1, V] or [B, γ+1, V]
        Rows of the target.
    q : array_like, [γ, V] or [B, γ, V], or None
        Rows of the draft; None only for rules that do not read them.
    rule : str or Rule
        A built-in rule, with parameters if any.
    rng : int, Generator, SeedSequence or None
        Source of the uniforms.
    parents : sequence of int, optional
        The parent of each token in a draft tree, see `specsim.models.Tree`. p then has a row for each of n+1
        nodes, q one up to the last node with children, or for all nodes if the rule reads them.

    Returns
    -------
    Verification

    Raises
    ------
    ValueError, TypeError
        If the rule is unknown, no token was drafted, the batch is empty, a shape, token or row is invalid,
        the rule cannot verify the tree, or q(x) = 0 at a drafted token of a rule for sampled drafts.

    Examples
    --------
    >>> p = [[0.1, 0.9], [0.5, 0.5]]
    >>> verify([1], p, [[0.5, 0.5]], rng=0).num_accepted
    1
    """
    chosen = rules.get(rule)
    p_rows = check_rows(p, "p")
    tokens = check_tokens(draft_tokens, p_rows.shape[-1])
    if tokens.ndim not in (1, 2):
        raise ValueError(f"draft_tokens: shape {tokens.shape} is neither [γ] nor [B, γ]; give one of them")
    if tokens.shape[-1] == 0:
        raise ValueError("draft_tokens: no token was drafted (γ = 0); give at least one")
    if tokens.size == 0:
        raise ValueError(f"draft_tokens: shape {tokens.shape} is an empty batch; give at least one step")
    tree = Tree(range(tokens.shape[-1]) if parents is None else parents, chosen.draft_sampling[0])  # type: ignore[arg-type]
    if tree.size != tokens.shape[-1]:
        raise ValueError(f"parents: {tree.size} for {tokens.shape[-1]} drafted tokens; give one for each")
    chosen.check(tree)
    num_q = chosen.num_rows(tree)
    if q is None and not chosen.reads_draft:
        q_rows = np.zeros((*tokens.shape[:-1], num_q, p_rows.shape[-1]))
    elif q is None:
        raise TypeError(f"q: missing; give the draft's rows, which {chosen.name} reads")
    else:
        q_rows = check_rows(q, "q")
    for name, given, count in (("p", p_rows, tree.size + 1), ("q", q_rows, num_q)):
        wanted = (*tokens.shape[:-1], count, p_rows.shape[-1])
        if given.shape != wanted:
            hint = " (p has one row more than there are drafted tokens)" if name == "p" else ""
            said = f"{name}: shape {given.shape} for draft_tokens {tokens.shape}"
            raise ValueError(f"{said}; give {wanted}{hint}")
    single = tokens.ndim == 1
    if single:
        tokens, p_rows, q_rows = tokens[None], p_rows[None], q_rows[None]
    _check_drafts(chosen, tree, tokens, q_rows, single)
    root = root_of(rng)
    rows = Rows(tokens, p_rows, q_rows, tile_parents(tree, len(tokens)))
    with interpreted() if single else nullcontext():  # faster than compiling, for one step
        emitted, accepted = rule_verifier(chosen, tree)(rows, key_of(root), 0)
    if not single:
        return Verification(emitted.T.astype(np.int64), accepted, str(chosen), root)
    return Verification(emitted[: accepted[0] + 1, 0].tolist(), int(accepted[0]), str(chosen), root)


def _check_drafts(rule: rules.Rule, tree: Tree, tokens: Ints, q: Floats, single: bool) -> None:
    """Raise ValueError for a token that q cannot draw, and for siblings alike where the rule forbids them."""
    if rule.reads_draft and "sampled" in rule.draft_sampling:
        drafted_q = np.take_along_axis(q[:, list(tree.parents)], tokens[..., None], axis=-1)[..., 0]
        if (drafted_q == 0.0).any():
            step, position = (int(i) for i in np.argwhere(drafted_q == 0.0)[0])
            raise _undraftable(position if single else (step, position), int(tokens[step, position]))
    for node in range(tree.size if rule.distinct else 0):
        siblings = np.sort(tokens[:, [child - 1 for child in tree.children(node)]], axis=1)
        alike = siblings[:, 1:] == siblings[:, :-1]
        if alike.any():
            step, place = (int(i) for i in np.argwhere(alike)[0])
            where = "" if single else f", step {step}"
            raise ValueError(
                f"draft_tokens{where}: token {siblings[step, place]} is twice below node {node}; give "
                f"{rule.name} different siblings"
            )


def _undraftable(place: object, token: int) -> ValueError:
    return ValueError(
        f"draft_tokens, position {place}: token {token} has q = 0, so it was not drawn from q; give the row "
        "that the draft sampled from (after temperature and filters)"
    )
