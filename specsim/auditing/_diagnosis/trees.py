"""Diagnose a verifier of trees: which known mistake explains the tokens of the cases that failed.

A mistake of a verifier of chains is one of a verifier of trees that decides node by node: each child is
tested as the chain's mistake tests its first token, and what is recovered is the target of the next child.
The mistake of a decoder `CHOSEN` tests the draft's most probable tokens as if they had been drawn from q.
Typical acceptance takes the longest path instead, as Medusa does (`WHOLE`). Given the tokens before, every
exact verifier emits the target's law, so there is one exact hypothesis."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

import numpy as np

from specsim.auditing._cases.battery import Case, case_key
from specsim.auditing._checks.counts import table_positions
from specsim.auditing._checks.subjects import Span, count_span
from specsim.auditing._diagnosis import posterior as odds
from specsim.auditing._diagnosis.decoders import prefixes_of
from specsim.auditing._diagnosis.likelihood import LEAST, Prediction
from specsim.auditing._diagnosis.parameters import few_values
from specsim.auditing._diagnosis.reproduction import Audited
from specsim.auditing._results.audit import Diagnosis
from specsim.core._types import Ints, Row, Tokens
from specsim.mistakes import Mistake
from specsim.rules._common import nodewise
from specsim.rules._common.tokenwise import normalise
from specsim.rules._lossy import typical_tree

#: Steps of a case, and of all cases, that are drawn besides those of the audit.
STEPS, STEPS_IN_ALL = 2**13, 2**14
#: The laws of a step of mistakes that do not decide node by node.
WHOLE = {"typical": typical_tree.RULE.law}
CHOSEN = "greedy_draft"
#: The most drafts of a case and of all cases, and values of a parameter that are looked at first.
DRAFTS, IN_ALL, FEW = 600, 1200, 8


@dataclass(frozen=True)
class _Seen:
    """A case, and the counts [prefixes, V] of the tokens after each prefix."""

    case: Case
    counts: Ints

    @cached_property
    def place(self) -> dict[Tokens, int]:
        prefixes = prefixes_of(self.case.vocab_size, table_positions(self.case))
        return {prefix: i for i, prefix in enumerate(prefixes)}

    @cached_property
    def drafts(self) -> list[tuple[Tokens, float]]:
        """The drafts and their probabilities; more than `DRAFTS` are not all there."""
        return list(islice(self.case.drafts(), DRAFTS + 1))

    @cached_property
    def right(self) -> Prediction:
        """The target's rows."""
        rows = [self.case.target.row(self.case.start + prefix) for prefix in self.place]
        return Prediction(np.array(rows, dtype=np.float64))

    def prediction(self, mistake: Mistake) -> Prediction:
        case, tree = self.case, self.case.tree
        whole = WHOLE.get(mistake.name)
        by_node = nodewise.law(partial(_node_law, mistake, tree.draft_sampling))
        law = partial(whole, **mistake.values) if whole else by_node
        found = np.zeros(self.counts.shape)
        nodes = range(tree.size + 1)
        for tokens, chance in self.drafts:
            paths = [tuple(tokens[node - 1] for node in tree.path(node)) for node in nodes]
            p, q = (
                [[float(w) for w in model.row(case.start + path)] for path in paths]
                for model in (case.target, case.draft)
            )
            stop, follow = law(tree.parents, tokens, p, q)
            for node, path in enumerate(paths):
                if stop[node]:
                    last = follow[node] if tree.children(node) else _bonus(mistake, follow[node], q[node])
                    mass = chance * float(stop[node])
                    for i, token in enumerate(path):
                        if path[:i] in self.place:
                            found[self.place[path[:i]], token] += mass
                    if path in self.place:
                        found[self.place[path]] += mass * np.array(last, dtype=np.float64)
        return Prediction(found / np.maximum(found.sum(axis=1, keepdims=True), LEAST))


def _node_law(
    mistake: Mistake, sampling: str, p: Row, q: Row, children: Sequence[int]
) -> tuple[list[Any], Row]:
    """The law at a node: the children one after the other, each against what the one before has left."""
    left, own, reached, accept = list(p), list(q), 1.0, []
    for x in children:
        if sampling.startswith("top") and mistake.name != CHOSEN:
            own = [float(y == x) for y in range(len(p))]
        stop, follow = _first_test(mistake, left, own, x)
        accept.append(reached * stop[1])
        reached, left = reached * stop[0], list(follow[0])
        if sampling == "without replacement":
            own = [0.0 if y == x else weight for y, weight in enumerate(own)]
            own = normalise(own) if any(own) else own
    return accept, left


def _first_test(mistake: Mistake, p: Row, q: Row, x: int) -> tuple[list[Any], list[Any]]:
    assert mistake.law is not None
    return mistake.law((0,), (x,), [p, p], [q], **mistake.values)


def _bonus(mistake: Mistake, p: Row, q: Row) -> Row:
    likeliest = max(range(len(q)), key=lambda y: q[y])
    return _first_test(mistake, p, q, likeliest)[1][1]


def diagnose_tree(audited: Audited, known: Sequence[Mistake]) -> Diagnosis:
    seen, left = list[_Seen](), IN_ALL
    for result in sorted(audited.failed, key=lambda result: -result.largest_log10_e):
        case = audited.subject.case(result.case)
        if isinstance(case, Case) and table_positions(case):
            one = _Seen(case, result.counts["prefixes"].reshape(-1, case.vocab_size))
            if len(one.drafts) <= min(DRAFTS, left):
                left -= len(one.drafts)
                seen.append(one)
    if not seen:
        return odds.conclude(None, 0, "No case that failed has drafts that can be enumerated.")
    steps = min(STEPS, STEPS_IN_ALL // len(seen))
    for i, one in enumerate(seen):
        asked = Span(one.case.name, case_key(audited.root, f"diagnosis, {one.case.name}"), 0, steps)
        more = count_span(audited.subject, asked, audited.in_time).counts["prefixes"]
        seen[i] = replace(one, counts=one.counts + more.reshape(one.counts.shape))
    # of one node alone: nothing that depends on other positions, rows or steps
    mistakes = [one for one in known if one.law and (one.verify or one.name == CHOSEN)]

    def predictions(mistake: Mistake) -> odds.Seen:
        return [(one.prediction(mistake), one.counts) for one in seen]

    def at_first(mistake: Mistake) -> odds.Scored:
        tried = (mistake.with_parameters(**values) for values in few_values(mistake.parameters, FEW))
        return odds.likeliest_of(odds.score(one, predictions(one)) for one in tried)

    def whole(mistake: Mistake) -> odds.Scored:
        return odds.fitted(mistake, mistake.parameters, predictions, FEW)

    scored = odds.narrow(mistakes, [(at_first, 5 * odds.FAR), (whole, odds.FAR)], audited.in_time)
    exact = odds.score(odds.STANDARD, [(one.right, one.counts) for one in seen])
    found = odds.posterior(scored, [exact], len(mistakes))
    return odds.conclude(found, sum(int(one.counts[0].sum()) for one in seen))
