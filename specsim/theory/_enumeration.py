"""Proofs by enumeration: the distribution of a step's output, in fractions.

A rule whose steps are independent given the prefix is exact iff the first γ+1 tokens have the target's joint
distribution, where the target continues a step that emits fewer. Equivalently, at every position, given the
emitted prefix and given that the step got that far, the next token has the target's distribution. Both are
checked with zero tolerance, over every draft of positive probability. A lossy rule is checked in the same way
against the distribution that it declares, given prefix and position. A row that does not sum to exactly 1
raises ValueError."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np

from specsim import rules
from specsim.core._numbers import as_fraction, rational
from specsim.core._progress import Progress, ShowProgress, shows_progress, silent, told
from specsim.core._tables import Piece, Shown, Table, as_dict
from specsim.core._types import Tokens, check_count, checked
from specsim.core.distributions import dyadic
from specsim.models import DynamicTree, Model, Pair, TableModel, Tree, chain
from specsim.models._base import check_pair, row_ahead, shared_contexts
from specsim.models._drafts.tree import MAX_NODES, as_tree

#: More drafts than this are not enumerated, V^(drafted tokens), nor longer fractions shown.
MAX_DRAFTS, LONGEST = 4096, 40

Law = dict[Tokens, Fraction]
#: In `rational` numbers, which are made into Fractions at the end.
Exact = dict[Tokens, Any]
#: Of each prefix the masses [V] of the sequences with one token more, in `rational` numbers.
Masses = dict[Tokens, list[Any]]
#: Tuples, so that what is made of them can be kept.
Rows = Callable[..., tuple[Any, ...]]


@checked
def step_law(rule: rules.Rule, target: Model, draft: Model, tree: Tree, context: Tokens = ()) -> Law:
    """Enumerate the distribution of the tokens that one step emits.

    Parameters
    ----------
    rule : Rule
        The rule of the step.
    target, draft : Model
        Models with exact rows, over one vocabulary.
    tree : Tree
        The drafted tree.
    context : tuple of int
        The tokens before the step.

    Returns
    -------
    dict
        {emitted tokens: probability}, without impossible ones.

    Examples
    --------
    >>> from fractions import Fraction as F
    >>> from specsim import models, rules
    >>> from specsim.models import TableModel
    >>> p, q = TableModel([F(1, 2), F(1, 2)]), TableModel([F(3, 4), F(1, 4)])
    >>> law = step_law(rules.get("standard"), p, q, models.chain(1))
    >>> {tokens: str(mass) for tokens, mass in law.items()}
    {(1,): '1/4', (0, 0): '1/4', (0, 1): '1/4', (1, 0): '1/8', (1, 1): '1/8'}
    """
    masses, _ = _step_masses(rule, _rows_of(target), _rows_of(draft), tree, tuple(context))
    return {
        (*prefix, token): as_fraction(mass)
        for prefix, row in masses.items()
        for token, mass in enumerate(row)
        if mass
    }


def _step_masses(
    rule: rules.Rule, p_rows: Rows, q_rows: Rows, tree: Tree, context: Tokens, tell: Progress = silent
) -> tuple[Masses, int]:
    """`step_law`, by prefix and next token, and the number of drafts of positive probability."""
    values = _values(rule)
    above = [[node - 1 for node in tree.path(node)] for node in range(tree.size + 1)]
    num_rows = rule.num_rows(tree)
    p_after = cache(lambda path: p_rows(context + path))
    q_after = cache(partial(_draft_row, q_rows, tree, context))
    drafts = 0
    masses: Masses = {}
    # of each path the last law of the token after it, and the mass that goes there, not yet in `masses`
    held: dict[Tokens, tuple[Sequence[Any], Any]] = {}

    def add(path: Tokens) -> None:
        follow, reached = held[path]
        more = [reached * weight for weight in follow]
        before = masses.get(path)
        masses[path] = more if before is None else [a + b for a, b in zip(before, more, strict=True)]

    for tokens, probability in tree.drafts(lambda seen, ahead: q_rows(context + seen, ahead)):
        drafts += 1
        paths = [tuple([tokens[column] for column in columns]) for columns in above]
        p, q = [p_after(path) for path in paths], [q_after(path) for path in paths[:num_rows]]
        stop, follow = rule.law(tree.parents, tokens, p, q, **values)
        for path, chance, row in zip(paths, stop, follow, strict=True):
            if not chance:
                continue
            reached = probability * chance
            if path in held:
                before, mass = held[path]
                if before is row or before == row:
                    reached += mass
                else:
                    add(path)
            held[path] = row, reached
        tell(drafts, len(q[0]) ** tree.size)
    for path in held:
        add(path)
    return {path: masses[path] for path in held}, drafts


@checked
def target_law(target: Model, length: int, context: Tokens = ()) -> Law:
    """Enumerate the target's joint distribution of the next `length` tokens.

    Parameters
    ----------
    target : Model
        A model with exact rows.
    length : int
        From 0 to 1024.
    context : tuple of int
        The tokens before.

    Returns
    -------
    dict
        {tokens: probability}, without impossible ones.

    Examples
    --------
    >>> from fractions import Fraction as F
    >>> from specsim.models import TableModel
    >>> law = target_law(TableModel([F(1, 3), F(2, 3)]), 2)
    >>> {tokens: str(mass) for tokens, mass in law.items()}
    {(0, 0): '1/9', (0, 1): '2/9', (1, 0): '2/9', (1, 1): '4/9'}
    """
    if check_count("length", length, 0, MAX_NODES) == 0:
        return {(): Fraction(1)}
    p_rows = _rows_of(target)
    given = tuple(check_count("context", token, 0, target.vocab_size - 1) for token in context)
    drafts = chain(length).drafts(lambda seen, ahead: p_rows(given + seen))
    return {tokens: as_fraction(mass) for tokens, mass in drafts}


def _continued_tv(masses: Masses, p_rows: Rows, length: int, context: Tokens) -> Any:
    """The total variation of `masses`, continued to `length` tokens, from `target_law`, by differences."""
    difference: Exact = {(): rational(-1)}
    for left in reversed(range(length)):
        rows = {}
        for prefix, mass in difference.items():
            row = [mass * weight for weight in p_rows(context + prefix)]
            own = masses.get(prefix)
            rows[prefix] = row if own is None else [a + b for a, b in zip(row, own, strict=True)]
        if left:
            difference = {(*prefix, x): mass for prefix, row in rows.items() for x, mass in enumerate(row)}
    return sum([abs(mass) for row in rows.values() for mass in row], rational()) / 2


def _next_masses(masses: Masses) -> Masses:
    """Of each prefix at which a step may continue the mass of each next token, whatever follows."""
    found: Masses = {}
    for prefix, row in masses.items():
        if prefix[:-1] not in found:
            for i in range(len(prefix)):
                found.setdefault(prefix[:i], [0] * len(row))
        found[prefix] = list(row)
    for prefix in sorted(found, key=len, reverse=True):
        if prefix:
            found[prefix[:-1]][prefix[-1]] += sum(found[prefix])
    return found


@dataclass(frozen=True, eq=False)
class Proof(Shown):
    """The result of an enumeration of `drafts` drafts of positive probability.

    The step emits `mean_tokens` on average; `tv` is the total variation between the continued distribution
    and the target's. After `worst_prefix` the next token deviates most, by `worst_tv`, from what the rule
    claims: the target's distribution or the declared one. It is None if no token deviates."""

    rule: str
    tree: Tree
    vocab_size: int
    drafts: int
    mean_tokens: Fraction
    tv: Fraction
    worst_prefix: Tokens | None
    worst_tv: Fraction

    @property
    def as_claimed(self) -> bool:
        """True iff every next token follows the distribution that the rule claims, with zero tolerance."""
        return self.worst_prefix is None

    @property
    def exact(self) -> bool:
        """True iff the rule is lossless on this pair: as claimed, and the joint distribution the target's."""
        return self.tv == 0 and self.as_claimed

    def parts(self) -> list[Piece]:
        next_token = "every next token", "as claimed"
        if self.worst_prefix is not None:
            next_token = "worst next token", f"after {[*self.worst_prefix]}, TV {_shown(self.worst_tv)}"
        rows = [
            ("rule", self.rule),
            ("draft", self.tree),
            ("drafts enumerated", self.drafts),
            ("tokens per step", _shown(self.mean_tokens)),
            ("TV from the target", _shown(self.tv) if self.tv else "0, exactly"),
            next_token,
        ]
        return [Table((), rows)]

    def records(self) -> list[dict[str, Any]]:
        """One row: what was enumerated, and what was found, as floats."""
        numbers = {name: float(getattr(self, name)) for name in ("mean_tokens", "tv", "worst_tv")}
        counted = {"rule": self.rule, "vocab_size": self.vocab_size, "drafts": self.drafts}
        return [counted | numbers | {"as_claimed": self.as_claimed, "exact": self.exact}]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, for JSON; fractions as text."""
        exact = {name: str(getattr(self, name)) for name in ("mean_tokens", "tv", "worst_tv")}
        return as_dict(self, "as_claimed", "exact", without=("tree",), draft=self.tree, **exact)


def _shown(value: Fraction) -> str:
    return f"{value} = {float(value):.5f}" if len(f"{value}") <= LONGEST else f"{float(value):.5f}"


@checked
@shows_progress("prove", " drafts")
def prove(
    target: Model | Pair,
    draft: Model | None = None,
    *,
    rule: str | rules.Rule = "standard",
    gamma: int | Tree = 2,
    context: Tokens | None = None,
    progress: ShowProgress = None,
) -> Proof:
    """Enumerate one step of a rule on two small models, and compare its distribution with the claim.

    Parameters
    ----------
    target, draft : Model or Pair
        Over one vocabulary. Fractions are used exactly. Floats are taken as rationals, so that their rows
        must sum to exactly 1, see `specsim.distributions.dyadic`. Of a `Pair`, floats are taken as
        multiples of 2^-24.
    rule : str or Rule
        Its claim is tested, also for trees sampled by a method that it does not name.
    gamma : int or Tree
        Number of drafted tokens, or the tree to draft, with V^(drafted tokens) ≤ `MAX_DRAFTS`.
    context : tuple of int, optional
        The tokens before the step, by default the target's first context.
    progress : bool or callable, optional
        As in `specsim.simulate`; a function is called with the drafts enumerated and their number.

    Returns
    -------
    Proof
        `exact`, `tv`, and the prefix after which the distribution deviates most from the claim.

    Raises
    ------
    ValueError
        If there are too many drafts, or a row does not sum to exactly 1.

    Examples
    --------
    >>> from fractions import Fraction as F
    >>> from specsim.models import TableModel
    >>> p, q = [F(1, 2), F(1, 3), F(1, 6)], [F(1, 6), F(1, 3), F(1, 2)]
    >>> prove(TableModel(p), TableModel(q), gamma=2).exact
    True
    """
    chosen, rounded = rules.get(rule), isinstance(target, Pair)
    if isinstance(target, Pair):
        if draft is not None:
            raise TypeError("draft: a pair as target brings its own draft; leave draft out")
        if target.draft is None:
            raise TypeError("target: a pair without a draft, as a trace is; give two pmfs [V] or two models")
        target, draft = map(_as_model, target)
    check_pair(target, draft)
    assert isinstance(target, Model)
    assert isinstance(draft, Model)
    if isinstance(gamma, DynamicTree):
        raise TypeError("gamma: a dynamic tree is not enumerated; give a Tree, such as branching(2, 1)")
    tree = as_tree(gamma)
    size = target.vocab_size
    if size**tree.size > MAX_DRAFTS:
        raise ValueError(
            f"gamma: {size}^{tree.size} drafts are too many to enumerate (at most {MAX_DRAFTS}); lower V or γ"
        )
    context = tuple(shared_contexts(target, draft)[0].tolist() if context is None else context)
    p_rows, q_rows = _rows_of(target, rounded), _rows_of(draft, rounded)
    masses, drafts = _step_masses(chosen, p_rows, q_rows, tree, context, told(progress))
    worst_prefix, worst_tv = None, rational()
    for prefix, row in _next_masses(masses).items():
        total = sum(row)
        claimed = [total * weight for weight in _claimed(chosen, p_rows, q_rows, tree, context, prefix)]
        if row != claimed:
            tv = sum([abs(a - b) for a, b in zip(row, claimed, strict=True)]) / (2 * total)
            if tv > worst_tv:
                worst_prefix, worst_tv = prefix, tv
    return Proof(
        rule=str(chosen),
        tree=tree,
        vocab_size=size,
        drafts=drafts,
        mean_tokens=as_fraction(sum((len(prefix) + 1) * sum(row) for prefix, row in masses.items())),
        tv=as_fraction(_continued_tv(masses, p_rows, tree.depth + 1, context)),
        worst_prefix=worst_prefix,
        worst_tv=as_fraction(worst_tv),
    )


def _as_model(one: Any) -> Any:
    """A pmf as a model whose row sums to exactly 1; a model itself."""
    if not isinstance(one, np.ndarray | list | tuple):
        return one
    if np.ndim(one) != 1:
        raise ValueError(f"target: rows of shape {np.shape(one)}; give two pmfs [V] or two models")
    return TableModel(dyadic(one))


def _claimed(
    rule: rules.Rule, p_rows: Rows, q_rows: Rows, tree: Tree, context: Tokens, prefix: Tokens
) -> Sequence[Any]:
    """What `rule` claims of the token after `prefix`, given that the step gets there."""
    if rule.declared is None:
        return p_rows(context + prefix)
    q_after = partial(_draft_row, q_rows, tree, context)
    if rule.looks_ahead:
        return rule.declared(prefix, lambda path: p_rows(context + path), q_after, tree, **_values(rule))
    bonus = len(prefix) == tree.depth and not rule.leaf_rows
    q = None if bonus else q_after(prefix)
    return rule.declared(p_rows(context + prefix), q, len(prefix), **_values(rule))


def _values(rule: rules.Rule) -> dict[str, Any]:
    return {name: rational(value) for name, value in rule.values.items()}


def _draft_row(q_rows: Rows, tree: Tree, context: Tokens, path: Tokens) -> tuple[Any, ...]:
    seen = tree.seen(len(path))
    return q_rows(context + path[:seen], len(path) - seen)


def _rows_of(model: Model, rounded: bool = False) -> Rows:
    """rows(history, ahead=0) of `model`, each made once; floats of `rounded` rows in multiples of 2^-24."""

    @cache
    def kept(recent: Tokens, ahead: int) -> tuple[Any, ...]:
        given = row_ahead(model, recent, ahead)
        if rounded and np.asarray(given).dtype.kind == "f":
            given = dyadic(given)
        row = tuple([rational(weight) for weight in given])
        if sum(row) != 1:
            raise ValueError(
                f"model: the row after {recent} sums to {float(sum(row))!r}, not exactly 1; give fractions, "
                "or dyadic() rows"
            )
        return row

    return lambda history, ahead=0: kept(history[len(history) - model.order :], ahead)
