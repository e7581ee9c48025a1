"""Sources draw batches of steps: from a fixed pair of pmfs, or from the rows of a reader.

Random numbers are functions of (key, purpose, step), so the steps do not depend on how a run is split."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim import rules, theory
from specsim.core._streams import Key, Purpose, uniforms
from specsim.core._types import Floats, Ints, TokenArray
from specsim.core.distributions import check_rows, check_tokens
from specsim.models import DynamicTree, LookaheadDecoding, Model, Pair, PromptLookup, Tree
from specsim.models._base import check_pair, shared_contexts
from specsim.models._drafts.dynamic import Draft
from specsim.models._drafts.tree import as_tree
from specsim.models._trained_pairs import default_pair
from specsim.rules import Rule
from specsim.rules._common.integers import PADDING
from specsim.simulation import _rows
from specsim.simulation._row_tables import GrowingTables, Numbers, fits
from specsim.traces._reader import Trace

#: Steps of a fixed pair in a batch: large enough to amortise a call, small enough for the cache. With a power
#: of two the uniforms of a step, as many numbers apart, would share a few lines of the cache.
FIXED_PAIR_BATCH = 4104
#: The most numbers of all rows of p for tables in integers, which are in the second cache then.
FEW = 2**16
NO_DRAFT = "draft: missing; give one, since only a trace includes it"


@dataclass(frozen=True)
class Batch:
    """Steps from `first`: tokens int32 [depth+1, B], padded with -1, accepted int64 [B]; `rows` if they were
    made, or those along the tokens alone."""

    first: int
    tokens: TokenArray
    accepted: Ints
    rows: _rows.Rows | None = None
    path: _rows.PathRows | None = None


class Batches(Protocol):
    """The interface of a source: batches of steps, `chunk` of them to a chunk."""

    @property
    def chunk(self) -> int: ...

    def batches(self, key: Key, first: int, steps: int) -> Iterator[Batch]: ...


@dataclass(frozen=True)
class FixedPairSource:
    """One pair of pmfs p, q of shape [V] at every position, through the rule's fixed-pair kernel."""

    rule: Rule
    p: Floats
    q: Floats
    tree: Tree
    kind = "fixed pair"

    @property
    def chunk(self) -> int:
        """Enough steps to amortise adding the counts, which are as long as the vocabulary."""
        if self.rule.fixed_pair.count is None:
            return max(2**17, 2 * self.vocab_size)
        return min(max(2**20, 16 * self.vocab_size), 2**31 // (self.tree.size + 1))  # counts are int32

    @property
    def vocab_size(self) -> int:
        return self.p.shape[-1]

    @cached_property
    def tables(self) -> tuple[NDArray[np.generic], ...]:
        p, q = np.array(self.p), np.array(self.q)  # writable: a kernel is compiled for one type of arrays
        return self.rule.fixed_pair.tables(p, q, self.tree, **self.rule.values)

    def alpha_context(self) -> float:
        return float(theory.acceptance_rate(self.p, self.q))

    def acceptance(self) -> tuple[float, ...] | None:
        found = acceptance_by_position(self.rule, self.p, self.q, self.tree)
        return None if found is None else tuple(found.tolist())

    def batches(self, key: Key, first: int, steps: int) -> Iterator[Batch]:
        pair, tree = self.rule.fixed_pair, self.tree
        for start, n in _rows.pieces(first, steps, FIXED_PAIR_BATCH):
            tokens, accepted = np.empty((tree.depth + 1, n), dtype=np.int32), np.empty(n, dtype=np.int64)
            if pair.count is None:
                draft = uniforms(key, int(Purpose.DRAFT), start, n, tree.size)
                verify = uniforms(key, int(Purpose.VERIFY), start, n, pair.uniforms(tree))
                pair.kernel(*self.tables, draft, verify, tokens, accepted)
            else:
                pair.kernel(self.from_starts(key, start, n), key, start, tokens)
                accepted, last = (tokens[:-1] >= 0).sum(axis=0), tokens[-1].copy()
                tokens[-1] = -1
                tokens[accepted, np.arange(n)] = last
            yield Batch(start, tokens, accepted)

    def from_starts(self, key: Key, first: int, steps: int) -> tuple[NDArray[np.generic], ...]:
        """The tables of kernels that draw integers, for these steps."""
        return self.tables

    def count(self, key: Key, first: int, steps: int) -> dict[str, NDArray[np.int64]]:
        """The counts of these steps, as `StepTally` has them, of a rule whose kernels count."""
        assert self.rule.fixed_pair.count is not None
        gamma, columns = self.tree.size, self.tables[0].shape[1]
        emitted = np.zeros((8 if columns <= 2**12 else 1, columns + PADDING * gamma), dtype=np.int32)
        self.rule.fixed_pair.count(self.from_starts(key, first, steps), key, first, steps, gamma, emitted)
        found = emitted.sum(axis=0, dtype=np.int64)
        shorter = found[columns:].reshape(gamma, PADDING).sum(axis=1)  # [i]: steps that accept at most i
        tokens = np.zeros((2, 1 + self.vocab_size), dtype=np.int64)
        tokens[0, 0], tokens[0, 1:] = shorter.sum(), found[: self.vocab_size]
        return {"lengths": np.diff([0, *shorter.tolist(), steps]), "tokens": tokens}


@dataclass(frozen=True)
class FewContextsSource(FixedPairSource):
    """Chains of two models that read few contexts: p, q [C, V] are their rows after each, even ones where no
    step comes to, `starts` [N] those that steps begin at, `follow` [C, V] those after them and a token."""

    reader: _rows.ModelRows = field(kw_only=True)
    starts: TokenArray = field(kw_only=True)
    follow: TokenArray = field(kw_only=True)
    kind = "models"

    @classmethod
    def of(cls, rule: Rule, reader: _rows.ModelRows) -> "FewContextsSource":
        order, vocab_size = reader.contexts.shape[1], reader.vocab_size
        numbers, every = Numbers(vocab_size, order, 1), np.arange(vocab_size**order)
        texts, starts = numbers.tokens(every), numbers.codes_of(reader.contexts).astype(np.int32)
        follow = numbers.codes_after(every[:, None], np.arange(vocab_size, dtype=np.int32)).astype(np.int32)
        p, q = np.full((2, len(texts), vocab_size), 1.0 / vocab_size)
        asked, new = np.zeros(len(texts), dtype=bool), np.unique(starts)
        while new.size:
            p[new], q[new] = reader.target.rows(texts[new]), reader.draft.rows(texts[new])
            asked[new] = True
            after = np.unique(follow[new][q[new] > 0.0])
            new = after[~asked[after]]
        return cls(rule, p, q, reader.tree, reader=reader, starts=starts, follow=follow)

    @cached_property
    def tables(self) -> tuple[NDArray[np.generic], ...]:
        """Those of all contexts, and `starts`."""
        pairs = zip(self.p, self.q, strict=True)
        found = [self.rule.fixed_pair.tables(p, q, self.tree, **self.rule.values) for p, q in pairs]
        entries, last, columns, cuts = (np.concatenate(parts) for parts in [*zip(*found, strict=True)][:4])
        follow = np.pad(self.follow, ((0, 0), (0, columns.shape[1] - self.vocab_size)))
        return entries, last, columns, cuts, follow, self.starts

    def from_starts(self, key: Key, first: int, steps: int) -> tuple[NDArray[np.generic], ...]:
        *tables, starts = self.tables
        return *tables, starts[_rows.sample_starts(key, first, steps, starts.size)]

    def alpha_context(self) -> float:
        return self.reader.alpha_context()

    def acceptance(self) -> None:
        return None


#: Verifies rows: (rows, key, first step) -> (tokens int32 [depth+1, B], accepted int64 [B]).
RowVerifier = Callable[[_rows.Rows, Key, int], tuple[TokenArray, Ints]]


@dataclass(frozen=True)
class RowSource:
    """Steps with rows of `reader`, verified as arrays by `verify`, `batch_bytes` of rows at a time."""

    reader: _rows.RowReader
    verify: RowVerifier
    batch_bytes: int = _rows.ROW_BATCH_BYTES
    chunk = 2**14

    @property
    def kind(self) -> str:
        return self.reader.kind

    @property
    def tree(self) -> Draft:
        return self.reader.tree

    @property
    def vocab_size(self) -> int:
        return self.reader.vocab_size

    def alpha_context(self) -> float:
        return self.reader.alpha_context()

    def acceptance(self) -> None:
        return None

    def batches(self, key: Key, first: int, steps: int) -> Iterator[Batch]:
        row_bytes = 8 * self.vocab_size * (2 * self.tree.size + 1)
        for start, n in _rows.pieces(first, steps, max(1, self.batch_bytes // row_bytes)):
            rows = self.reader.rows(key, start, n)
            tokens, accepted = self.verify(rows, key, start)
            rows.end(tokens, accepted)
            yield Batch(start, tokens, accepted, rows)


@dataclass(frozen=True)
class ModelSource(RowSource):
    """The steps of `RowSource`, token by token alike, for chains of two models and a rule that decides by
    token. Tables keep the rows, and nothing is drawn or verified after the end of a step; where they have no
    room for a context, its position is verified from rows of its own. `with_rows` gives batches a `path`."""

    rule: Rule = field(kw_only=True)
    with_rows: bool = False
    chunk = 2**16  #: threads wait for Python between batches, so few batches are faster

    @cached_property
    def tables(self) -> GrowingTables:
        return GrowingTables(self.reader.target, self.reader.draft, self.rule)  # type: ignore[attr-defined]

    def batches(self, key: Key, first: int, steps: int) -> Iterator[Batch]:
        reader, gamma, tables = self.reader, self.tree.size, self.tables
        positions: Any = self.rule.positions
        assert isinstance(reader, _rows.ModelRows)
        most = self.batch_bytes // (8 * (2 * gamma + 1))  # of uniforms
        for start, n in _rows.pieces(first, steps, max(1, min(self.chunk, most))):
            draft = uniforms(key, int(Purpose.DRAFT), start, n, gamma)
            verify = uniforms(key, int(Purpose.VERIFY), start, n, gamma + 1)
            tokens, accepted = np.full((gamma + 1, n), -1, dtype=np.int32), np.empty(n, dtype=np.int64)
            starts = _rows.sample_starts(key, start, n, len(reader.contexts))
            codes, context = tables.starts(starts)
            place = np.zeros(n, dtype=np.int64)
            given = draft, verify, self.rule.array(), tokens, accepted
            going = np.arange(n)
            while going.size:
                has = context[going] != 0
                going, lost = going[has], going[~has]  # those that the tables had no room for
                # those that came to contexts that are not in the tables, or not yet known
                going = going[: positions.verify(going, place, context, tables.tables, tables.known, *given)]
                before = tables.tables.codes[-context[going]]
                codes[going], context[going] = tables.after(before, tokens[place[going] - 1, going])
                if lost.size:
                    going = np.append(going, self._stopped_alone(lost, place, context, codes, given))
                    going = going[np.argsort(place[going], kind="stable")]
            path = tables.on_path(starts, tokens, gamma + reader.leaf_rows) if self.with_rows else None
            yield Batch(start, tokens, accepted, path=path)

    def _stopped_alone(self, steps: Ints, place: Ints, context: TokenArray, codes: Ints, given: Any) -> Ints:
        """The same for contexts without a number, given by their codes: after one position."""
        stopped, tokens = [], given[3]
        positions: Any = self.rule.positions
        row_bytes = 8 * self.vocab_size * 5  # p, q, and the sums of both, which are longer
        for start, n in _rows.pieces(0, steps.size, max(1, self.batch_bytes // row_bytes)):
            some = steps[start : start + n]
            context[some] = np.arange(1, n + 1)
            some = some[: positions.verify(some, place, context, self.tables.alone(codes[some]), 0, *given)]
            codes[some], context[some] = self.tables.after(codes[some], tokens[place[some] - 1, some])
            stopped.append(some)
        return np.concatenate(stopped)


def make_source(
    target: ArrayLike | Model | Trace,
    draft: ArrayLike | Model | PromptLookup | LookaheadDecoding | None,
    *,
    rule: str | Rule,
    gamma: int | Draft,
) -> FixedPairSource | RowSource:
    """Make the source of `simulate` and `replay`, which depends on the types of `target` and `draft`."""
    chosen = rules.get(rule)
    if isinstance(gamma, DynamicTree):
        chosen.check(gamma)
        if not (isinstance(target, Model) and isinstance(draft, Model)):
            raise TypeError(
                "gamma: only a model drafts a dynamic tree; give two models, such as default_pair() (ngram), "
                "or a Tree (--tree 2,2)"
            )
        check_pair(target, draft)
        return model_source(chosen, _rows.DynamicRows(target, draft, gamma, shared_contexts(target, draft)))
    tree = draft.tree(gamma) if isinstance(draft, PromptLookup | LookaheadDecoding) else as_tree(gamma)
    chosen.check(tree)
    reader: _rows.RowReader
    if isinstance(target, Trace):
        reader = _trace_rows(target, draft, tree, chosen.leaf_rows)
    elif isinstance(draft, PromptLookup | LookaheadDecoding):
        reader = _text_rows(target, draft, tree, chosen)
    elif isinstance(target, Model) or isinstance(draft, Model):
        reader = _rows.model_rows(target, draft, tree, chosen.leaf_rows)
        tree.check_siblings(reader.vocab_size)
    elif draft is None:
        raise TypeError(NO_DRAFT)
    else:
        p, q = check_rows(target, "target"), check_rows(draft, "draft")
        if p.ndim not in (1, 2) or p.shape != q.shape:
            raise ValueError(
                f"draft: shape {q.shape}, the target has {p.shape}; give two pmfs [V], or the rows [N, V] "
                "of N positions"
            )
        if p.ndim == 1:
            tree.check_siblings(p.size)
            return FixedPairSource(chosen, p, q, tree)
        if not tree.is_chain:
            raise ValueError(
                "gamma: positions are along one text, and have no rows for a tree; give a number"
            )
        if len(p) <= tree.size:
            most = f"{len(p)} positions less one"
            raise ValueError(f"gamma: {tree.size} drafted tokens exceed {most}; draft fewer")
        reader = _rows.PositionRows(p, q, tree, chosen.leaf_rows)
    return model_source(chosen, reader)


def _text_rows(target: Any, draft: Any, tree: Tree, rule: Rule) -> _rows.LookupRows | _rows.LookaheadRows:
    if not isinstance(target, Model):
        name = "prompt lookup" if isinstance(draft, PromptLookup) else "lookahead decoding"
        raise TypeError(f"target: {name} needs a model; give one, such as default_pair()[0]")
    if draft.text.size <= target.order:
        needed = f"give at least {target.order + 1}, since the target reads {target.order} before a step"
        raise ValueError(f"text: {draft.text.size} tokens are too few; {needed}")
    check_tokens(draft.text, target.vocab_size, "text")
    draft.check_rule(rule)
    return (_rows.LookupRows if isinstance(draft, PromptLookup) else _rows.LookaheadRows)(target, draft, tree)


def _trace_rows(trace: Trace, draft: Any, tree: Tree, leaf_rows: bool) -> _rows.TraceRows:
    if draft is not None:
        raise TypeError("draft: the trace has its own q; leave draft out")
    if trace.num_steps == 0:
        raise ValueError(f"{trace.path}: the trace has no step; record some")
    if trace.top is not None:
        raise ValueError(
            f"{trace.path}: lists {trace.top} tokens a row; give a trace with whole rows, or bound the "
            "tokens of some rules with specsim.traces.expect_tokens ('specsim simulate')"
        )
    if not tree.is_chain:
        raise ValueError("gamma: a trace logs rows along one path, so it has none for a tree; give a number")
    gamma, logged = tree.size, trace.gamma
    if gamma > logged:
        raise ValueError(f"gamma: {gamma} exceeds the {logged} drafted tokens of a logged step; draft fewer")
    if leaf_rows and gamma == logged and not trace.layout.bonus:
        raise ValueError(f"gamma: q after {gamma} drafted tokens was not logged; draft fewer")
    return _rows.TraceRows(trace, tree, leaf_rows)


def models_of(source: FixedPairSource | RowSource) -> tuple[Any, Any]:
    """The target and the draft that a source was made of; pmfs normalised."""
    rows: Any = getattr(source, "reader", source)
    if isinstance(rows, FixedPairSource | _rows.PositionRows):
        return rows.p, rows.q
    return (rows.trace, None) if isinstance(rows, _rows.TraceRows) else (rows.target, rows.draft)


def pair_of(target: Any, draft: Any) -> Pair:
    """Target and draft as a pair, with a name if they are those of `default_pair`, or a trace."""
    if isinstance(target, Pair):
        if draft is not None:
            raise TypeError("draft: the pair has its own; leave draft out")
        return target
    if isinstance(target, Trace):
        return Pair(target, draft, str(target.path))
    bundled = default_pair() if default_pair.cache_info().currsize else (None, None)
    is_bundled = target is not None and target is bundled[0] and draft is bundled[1]
    return Pair(target, draft, "ngram" if is_bundled else None)


def model_source(
    rule: Rule, reader: _rows.RowReader, with_rows: bool = False
) -> FewContextsSource | RowSource:
    verify = rule_verifier(rule, reader.tree)
    if rule.positions is not None and isinstance(reader, _rows.ModelRows):
        tree = reader.tree
        plain = tree.is_chain and tree.block == 1 and tree.draft_sampling == "sampled"
        if plain and fits(reader.target, reader.draft):
            if not with_rows and reader.vocab_size ** (reader.contexts.shape[1] + 1) <= FEW:
                return FewContextsSource.of(rule, reader)
            return ModelSource(reader, verify, rule=rule, with_rows=with_rows)
    return RowSource(reader, verify)


def rule_verifier(rule: Rule, tree: Draft) -> RowVerifier:
    """The row kernel of `rule` for drafts shaped like `tree`, with uniforms of the verify stream."""
    values = rule.array()

    def verify(rows: _rows.Rows, key: Key, first: int) -> tuple[TokenArray, Ints]:
        steps, vocab_size = len(rows.p), rows.p.shape[2]
        tokens = np.empty((tree.depth + 1, steps), dtype=np.int32)
        accepted = np.empty(steps, dtype=np.int64)
        u = uniforms(key, int(Purpose.VERIFY), first, steps, rule.uniforms(tree, vocab_size))
        rule.rows(rows.parents, rows.draft_tokens, rows.p, rows.q, u, values, tokens, accepted)
        return tokens, accepted

    return verify


#: The probability f(p, q, siblings) that a rule accepts one of the siblings sampled in this way.
BY_SIBLINGS: dict[tuple[str, str], Callable[[Floats, Floats, int], float]] = {
    ("greedy_multi_draft", "top and sample"): theory.greedy_multi_draft_acceptance,
    ("k_seq", "sampled"): theory.k_seq_acceptance,
    ("naive_matching", "sampled"): theory.naive_matching_acceptance,
    ("recursive_rejection", "sampled"): theory.recursive_rejection_acceptance,
    ("without_replacement", "without replacement"): theory.without_replacement_acceptance,
}


def accepted_law_by_position(acceptance: Sequence[float]) -> Floats:
    """P(τ = 0 … depth) of the number τ of accepted tokens."""
    reached = np.cumprod([1.0, *acceptance])
    return reached - np.append(reached[1:], 0.0)


def acceptance_by_position(rule: Rule, p: Floats, q: Floats, tree: Tree) -> Floats | None:
    """The probability [depth] that the i-th token is accepted, given that those before it were.

    None where no closed form is known. Siblings that may have the same token merge the trees below them, so
    that the number of siblings at the next position is random: their tree must have one level."""
    if tree.is_chain:
        if rule.name in ("gumbel", "gumbel_list") and tree.draft_sampling == "sampled":
            return np.full(tree.size, theory.gumbel_agreement(p, q))
        if rule.fixed_pair.acceptance is not None:
            return rule.fixed_pair.acceptance(p, q, tree, **rule.values)
    one_level = BY_SIBLINGS.get((rule.name, tree.draft_sampling))
    levels: list[set[int]] = [set() for _ in range(tree.depth + 1)]
    for node, depth in enumerate(tree.depths):
        levels[depth].add(len(tree.children(node)))
    widths = [width for width, *others in levels[:-1] if not others]
    if one_level is None or len(widths) < tree.depth or not (tree.distinct or tree.depth == 1):
        return None
    try:
        found = {width: one_level(p, q, width) for width in set(widths)}
    except ValueError:  # such as too many orders to enumerate
        return None
    return np.array([found[width] for width in widths])


#: The most contexts for mean total variation, since declared laws are computed in Python.
CONTEXTS = 256


def context_rows(target: Any, draft: Any) -> tuple[Floats, Floats]:
    """Rows of target and draft at up to `CONTEXTS` contexts where steps begin, evenly spaced."""
    if isinstance(target, Trace):
        _, p, q = target.steps(_some(np.arange(target.num_steps)))
        return p[:, 0], q[:, 0]
    if not isinstance(target, Model):
        if draft is None:
            raise TypeError(NO_DRAFT)
        p, q = np.atleast_2d(check_rows(target, "target"), check_rows(draft, "draft"))
        if p.shape != q.shape:
            raise ValueError(f"draft: shape {q.shape}, the target has {p.shape}; give both one shape")
        return _some(p), _some(q)
    some = _some(shared_contexts(target, draft))
    return target.rows(some), draft.rows(some)


def _some(contexts: Any) -> Any:
    return contexts[:: -(-len(contexts) // CONTEXTS)]
