"""Diagnose a decoder: compare sequences of the cases that failed with the predictions of known mistakes.

The number of drafted tokens is unknown, so every mistake is tried with several draft lengths. If a decoder
processes the models' rows, the mistakes use the processed rows."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from specsim.auditing._cases.battery import case_key
from specsim.auditing._cases.decoder_battery import DecoderCase
from specsim.auditing._checks.counts import table_positions
from specsim.auditing._checks.decoder import Processing
from specsim.auditing._checks.subjects import DecoderSubject
from specsim.auditing._diagnosis import ranking as ranks
from specsim.auditing._diagnosis.ranking import FIT, Scored, alike, fit_of
from specsim.auditing._execution import Steps, count_steps
from specsim.auditing._results import CaseResult, Diagnosis
from specsim.auditing._verifier.contract import BrokenVerifier
from specsim.auditing.mutants import Mutant, catalogue, sequence_law
from specsim.auditing.mutants._decoding import Decoder
from specsim.core._types import Ints, Tokens
from specsim.models import Model, TableModel

#: Drafted tokens that a decoder may use.
LENGTHS = (1, 2, 3, 4, 8)
#: Sequences of each case after which the mistakes are ranked, and the time after which no more are drawn.
SEGMENTS, SECONDS = (2**10, 2**12, 2**14), 15.0
#: Rounds of fitting draft length and parameter in turn.
ROUNDS = 2
#: The most cases that are used.
CASES = 2
EXACT = Mutant(name="exact", family="exact", mechanism="", decode=Decoder())


@dataclass(frozen=True)
class _Seen:
    """The sequences of one case, and its models with processed rows."""

    case: DecoderCase
    target: Model
    draft: Model
    counts: dict[Tokens, int]

    def law(self, mutant: Mutant) -> dict[Tokens, Any]:
        case = self.case
        return sequence_law(mutant, self.target, self.draft, case.prompts[0], case.max_new_tokens, case.eos)


def diagnose_decoder(
    subject: DecoderSubject,
    failed: Sequence[CaseResult],
    root: int,
    known: Sequence[Mutant] | None = None,
    deadline: float = math.inf,
) -> Diagnosis | None:
    """Diagnose the decoder `subject`, whose cases `failed`, by default with all known mistakes.

    Raises OutOfTime after `deadline`, a time of `time.monotonic`."""

    def in_time(*_: int) -> None:
        ranks.check_time(deadline)

    started = time.monotonic()
    if subject.declared.repetition_penalty != 1.0:  # the law of a known mistake is not known
        return None
    whole = [
        case.name
        for case in subject.cases
        if table_positions(case) == case.max_new_tokens and not case.reads_all and len(case.prompts) == 1
    ]
    # the longer the sequences, the longer it takes to enumerate them
    worst = sorted(failed, key=lambda result: (result.positions, -result.largest_log10_e))
    chosen = [result.case for result in worst if result.case in whole][:CASES]
    if not chosen:
        return None
    mutants = [one for one in known or catalogue() if one.decode is not None]
    prefixes: list[Ints] = []
    done = 0
    for steps in SEGMENTS:
        keys = [case_key(root, f"diagnosis, {name}") for name in chosen]
        try:
            new = [
                count_steps(subject, Steps(name, key, done, steps - done), in_time).counts["prefixes"][0]
                for name, key in zip(chosen, keys, strict=True)
            ]
        except BrokenVerifier:
            return None
        prefixes = [a + b for a, b in zip(prefixes, new, strict=True)] if prefixes else new
        done = steps
        seen = [_read_sequences(subject, *one) for one in zip(chosen, prefixes, strict=True)]
        ranking = _rank([*mutants, EXACT], seen, in_time)
        if len(alike(ranking)) == 1 or time.monotonic() - started > SECONDS:
            break
    evidence = _evidence(ranking[0], seen) if alike(ranking) else ""
    return ranks.conclude(ranking, EXACT, done * len(seen), evidence, "")


def _read_sequences(subject: DecoderSubject, name: str, prefixes: Ints) -> _Seen:
    case, processing = subject.cases[subject.index(name)], Processing.of(subject.declared)
    target, draft = (_process_model(model, processing) for model in (case.target, case.draft))
    size, start = case.target.vocab_size, 0
    counts = {}
    for length in range(1, case.max_new_tokens + 1):
        for code in np.flatnonzero(prefixes[start : start + size**length]):
            tokens = tuple(int(x) for x in np.unravel_index(code, (size,) * length))
            if length == case.max_new_tokens or tokens[-1] == case.eos:
                counts[tokens] = int(prefixes[start + code])
        start += size**length
    return _Seen(case, target, draft, counts)


def _process_model(model: Model, processing: Processing) -> Model:
    size, order = model.vocab_size, model.order
    contexts = np.indices((size,) * order).reshape(order, size**order).T.astype(np.int32)
    return TableModel(processing.rows(model.rows(contexts)).reshape((size,) * (order + 1)), contexts[:1])


def _rank(mutants: Sequence[Mutant], seen: Sequence[_Seen], in_time: Callable[[], None]) -> list[Scored]:
    """Rank the mistakes; only those that fit the first case are tested on all."""
    first, again = [], []
    for mutant in mutants:
        in_time()
        first.append(_score(mutant, seen[:1]))
    for one in (one for one in first if one.fit >= FIT):
        in_time()
        again.append(_score(one.mutant, seen))
    return ranks.merge_rankings(first, again)


def _score(mutant: Mutant, seen: Sequence[_Seen]) -> Scored:
    """`mutant` with the draft length and the parameter of largest likelihood."""
    best = _of_best_length(mutant, seen)
    for parameter in mutant.parameters[:1] * ROUNDS:  # each at the other's optimum
        tried = best.mutant

        def loss(value: float, tried: Mutant = tried, name: str = parameter.name) -> float:
            return -_score_fixed(tried.with_parameters(**{name: value}), seen).log_likelihood

        value = ranks.likeliest(parameter, loss)
        best = _of_best_length(tried.with_parameters(**{parameter.name: value}), seen)
        if best.mutant.decode == tried.decode:  # of the same draft length: another round would find the same
            break
    return best


def _of_best_length(mutant: Mutant, seen: Sequence[_Seen]) -> Scored:
    longest = max(one.case.max_new_tokens for one in seen) - 1  # a longer draft is never used
    lengths = sorted({min(gamma, longest) for gamma in LENGTHS})
    assert isinstance(mutant.decode, Decoder)
    scored = (_score_fixed(replace(mutant, decode=replace(mutant.decode, gamma=n)), seen) for n in lengths)
    return max(scored, key=lambda one: one.log_likelihood)


def _score_fixed(mutant: Mutant, seen: Sequence[_Seen]) -> Scored:
    total, statistic, df, never, steps = 0.0, 0.0, 0, False, 0
    for one in seen:
        law = one.law(mutant)
        keys = sorted(law.keys() | one.counts.keys())
        predicted = np.array([max(float(law.get(key, 0.0)), 0.0) for key in keys])
        observed = np.array([one.counts.get(key, 0) for key in keys])
        total += float(observed @ np.log(np.maximum(predicted, 1e-12)))
        x2, cells = ranks.misfit_of(observed, predicted)
        statistic, df, steps = statistic + x2, df + cells, steps + int(observed.sum())
        never = never or bool((observed[predicted < 1e-12] > 0).any())
    total -= 0.5 * np.log(max(steps, 1)) * len(mutant.parameters)
    return Scored(mutant, total, 0.0 if never else fit_of(statistic, df))


def _evidence(best: Scored, seen: Sequence[_Seen]) -> str:
    """The sequence that best separates the mistake from an exact decoder."""
    gains = []
    for one in seen:
        here, right = one.law(best.mutant), one.law(EXACT)
        total = sum(one.counts.values())
        for tokens, count in one.counts.items():
            predicted, exact = float(here.get(tokens, 0.0)), float(right.get(tokens, 0.0))
            gain = count * np.log(max(predicted, 1e-12) / max(exact, 1e-12))
            gains.append((gain, one.case.name, tokens, count / total, predicted, exact))
    _, name, tokens, share, predicted, exact = max(gains)
    return (
        f"Evidence (case {name!r}): {100 * share:.4g} % of the sequences were {list(tokens)} (this bug: "
        f"{100 * predicted:.4g} %; an exact decoder: {100 * exact:.4g} %)."
    )
