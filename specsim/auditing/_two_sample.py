"""Old against new: two verifiers on the same cases, asking only whether they follow one law.

Nothing is assumed of that law, so a lossy kernel may be compared with its rewrite. Each case is drawn for both, with
random numbers of their own, in blocks that grow by a half; after each block every table is tested by
`stats.log_two_sample_e`: the tokens after each prefix, the bins of the audit, the share of tokens that the target holds
impossible, and the numbers of accepted tokens, so that a change in speed is found too. Before that both are given the
same drafts and the same rng, to see whether they are the same token by token.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from specsim import rules
from specsim.auditing._cases.battery import BITS, Case
from specsim.auditing._cases.decoder_battery import DecoderCase
from specsim.auditing._checks.subjects import Subject, rule_function
from specsim.auditing._checks.tables import Table
from specsim.auditing._checks.trial import Trial, case_key, offset
from specsim.auditing._execution.execution import Place, is_rule, placed
from specsim.auditing._results import BUDGET
from specsim.auditing._runner import check_limits
from specsim.auditing._verifier.calls import TIMEOUT
from specsim.auditing._verifier.contract import BrokenVerifier, NotADraftPath, Verifier
from specsim.core._accepted_lengths import mean_tokens
from specsim.core._provenance import Provenance
from specsim.core._streams import Key, RandomSource, key_of, root_of
from specsim.core.distributions import Ints
from specsim.core.stats import detectable_tv, log_two_sample_e
from specsim.simulation._counting import Counts, Progress, run
from specsim.simulation._sources import Batch

__all__ = ["Comparison", "Difference", "audit_against"]

#: Ends of the blocks, as fractions of a case's steps.
BLOCKS = tuple(1.5**-k for k in range(14, -1, -1))
#: Steps that both verify with the same rng.
TWINS = 512


@dataclass(frozen=True)
class Difference:
    """One case: how many steps each side drew, tokens per step, and the table that tells the two apart best.

    `interrupted` if it was cut short by Ctrl-C, `changed` if some table rejects that they follow one law; `text` says
    where, or what could not be run. `twins` is the share of steps with the same tokens from the same rng. A total variation of `detectable_tv` between the laws of
    the first token would have been found with probability .999.
    """

    case: str
    purpose: str
    steps: int
    log10_e: float
    changed: bool
    broken: bool
    text: str
    twins: float
    tokens_per_step: tuple[float, float]
    detectable_tv: float
    interrupted: bool = False


@dataclass(frozen=True)
class Comparison:
    """The result of `audit_against`. `budget` is the false-alarm probability of the whole, split over `tests`."""

    new: str
    old: str
    level: str
    cases: tuple[Difference, ...]
    budget: float
    tests: int
    interrupted: bool
    provenance: Provenance

    @property
    def verdict(self) -> str:
        """same (no difference found), changed, or broken (one of the two could not be run)."""
        if any(case.broken for case in self.cases):
            return "broken"
        return "changed" if any(case.changed for case in self.cases) else "same"

    @property
    def identical(self) -> bool:
        """Whether both gave the same tokens wherever they were given the same rng."""
        return bool(self.cases) and all(case.twins == 1.0 for case in self.cases)

    @property
    def exit_code(self) -> int:
        """0 same, 1 changed or broken, 3 interrupted before a difference was found."""
        if self.verdict == "same":
            return 3 if self.interrupted else 0
        return 1

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, for JSON."""
        return {
            "new": self.new,
            "old": self.old,
            "level": self.level,
            "verdict": self.verdict,
            "identical": self.identical,
            "exit_code": self.exit_code,
            "interrupted": self.interrupted,
            "budget": self.budget,
            "tests": self.tests,
            "cases": [asdict(case) for case in self.cases],
            "provenance": self.provenance.to_dict(),
        }


def audit_against(
    new: str | Verifier,
    old: str | Verifier,
    level: str = "quick",
    rng: RandomSource = None,
    *,
    timeout: float = TIMEOUT,
    progress: Progress | None = None,
) -> Comparison:
    """Whether two verifiers follow one law, whatever it is, on the cases that both take.

    Each is a function, "package.module:function", or the name of a rule, which is then called as a function. Two that
    follow one law are called changed with probability at most `results.BUDGET`. Raises as `audit`, and ValueError where
    the two share no case.

    >>> from specsim import rules
    >>> audit_against("standard", "standard", "smoke", rng=0).verdict
    'same'
    """
    check_limits(level, None, timeout)
    root, started = root_of(rng), time.perf_counter()
    with (
        placed(_as_function(new), 1, timeout) as one,
        placed(_as_function(old), 1, timeout) as other,
    ):
        pairs = _shared(one.subject, other.subject)
        trials = [one.subject.trial(i, level) for i, _ in pairs]
        tests = sum(_tests(trial) for trial in trials)
        total = 2 * sum(trial.steps for trial in trials)
        found, interrupted = [], False
        try:
            for k, (trial, places) in enumerate(zip(trials, pairs, strict=True)):
                before = 2 * sum(earlier.steps for earlier in trials[:k])
                report = offset(progress, before, total)
                found.append(_compare(one, other, trial, places, level, root, BUDGET / tests, report))
                interrupted = found[-1].interrupted
                if interrupted:
                    break
        except KeyboardInterrupt:
            interrupted = True
        names = [_name(side, place) for side, place in ((new, one), (old, other))]
    return Comparison(
        new=names[0],
        old=names[1],
        level=level,
        cases=tuple(found),
        budget=BUDGET,
        tests=tests,
        interrupted=interrupted,
        provenance=Provenance.record(root, 1, time.perf_counter() - started),
    )


def _as_function(verifier: str | Verifier) -> str | Verifier:
    return rule_function(rules.get(verifier)) if isinstance(verifier, str) and is_rule(verifier) else verifier


def _name(verifier: str | Verifier, place: Place) -> str:
    return verifier if isinstance(verifier, str) else place.subject.name


def _shared(one: Subject, other: Subject) -> list[tuple[int, int]]:
    """The cases of both: their numbers on either side."""
    here, there = ([_identity(case) for case in side.cases] for side in (one, other))
    pairs = [(i, there.index(case)) for i, case in enumerate(here) if case in there]
    if not pairs:
        raise ValueError(
            "the two verifiers share no case: they declare other dtypes, lengths of drafts, or shapes"
        )
    return pairs


def _identity(case: Case | DecoderCase) -> tuple[Any, ...]:
    if isinstance(case, DecoderCase):
        return (case.name,)
    return case.name, case.tree, BITS[case.dtype], case.rotated, case.uneven, case.certain


def _compare(
    one: Place,
    other: Place,
    trial: Trial,
    places: tuple[int, int],
    level: str,
    root: int,
    alarm: float,
    progress: Progress | None,
) -> Difference:
    sides = list(zip(("new", "old"), (one, other), places, strict=True))
    words = case_key(0, trial.case)
    twin_key = key_of(root, (*words, 2))
    blocks: list[tuple[Counts, Counts]] = []
    done, twins, failure, telling, interrupted = 0, 0.0, "", (-np.inf, ""), False
    try:
        first, second = (_run(*side, _tokens, level, twin_key) for side in sides)
        twins = float((first == second).all(axis=0).mean())
        for share in BLOCKS:
            until = max(8, int(trial.steps * share))
            if until == done:
                continue
            a, b = (
                _run(*side, _block, level, key_of(root, (*words, k)), done, until - done)
                for k, side in enumerate(sides)
            )
            blocks, done = [*blocks, (a, b)], until
            if progress is not None:
                progress(2 * done, 2 * trial.steps)
            telling = _most_telling(trial, blocks)
            if telling[0] >= -np.log(alarm):
                break
    except BrokenVerifier as error:
        failure = str(error)
    except KeyboardInterrupt:
        if not blocks:
            raise
        interrupted, telling = True, _most_telling(trial, blocks)
    lengths = [
        sum((block[side]["lengths"] for block in blocks), np.zeros(trial.positions, int)) for side in (0, 1)
    ]
    changed = bool(telling[0] >= -np.log(alarm))
    return Difference(
        case=trial.case,
        purpose=trial.purpose,
        steps=done,
        log10_e=float(max(telling[0], -99.0) / np.log(10.0)),
        changed=changed,
        broken=bool(failure),
        text=failure or (telling[1] if changed else ""),
        twins=twins,
        tokens_per_step=tuple(mean_tokens(side)[0] if side.any() else 0.0 for side in lengths),  # type: ignore[arg-type]
        detectable_tv=_detectable(trial, done, alarm),
        interrupted=interrupted,
    )


def _run(name: str, place: Place, index: int, job: Callable[..., Any], *arguments: Any) -> Any:
    """What `job` gives on case `index` of one side. Raises BrokenVerifier, naming the side, whatever it did wrong."""
    try:
        return place.run(job, index, *arguments)
    except (BrokenVerifier, NotADraftPath) as error:
        raise BrokenVerifier(f"{name}: {error}") from error


def _most_telling(trial: Trial, blocks: Sequence[tuple[Counts, Counts]]) -> tuple[float, str]:
    """The largest log e-value of all tests of a case, and what it says."""
    asked: list[tuple[Callable[[Counts], Ints], Callable[[Ints, Ints], str]]] = [
        *((table.counts, partial(_words_for, table)) for table in trial.tables),
        *((partial(_possible, i), partial(_words_for_impossible, i)) for i in range(trial.positions)),
        (itemgetter("lengths"), lambda a, b: "the numbers of accepted tokens differ"),
    ]
    log_es = [log_two_sample_e([(cells(a), cells(b)) for a, b in blocks]) for cells, _ in asked]
    best = int(np.argmax(log_es))
    cells, words = asked[best]
    a, b = (np.sum([cells(block[side]) for block in blocks], axis=0) for side in (0, 1))
    return log_es[best], words(a, b)


def _tests(trial: Trial) -> int:
    return len(trial.tables) + trial.positions + 1


def _possible(position: int, counts: Counts) -> Ints:
    """How many tokens at `position` had a probability under the target, and how many had none: tables leave those out."""
    impossible = counts["impossible"][position]
    return np.array([counts["lengths"][position:].sum() - impossible, impossible])


def _words_for_impossible(position: int, a: Ints, b: Ints) -> str:
    shares = (side[1] / max(1, side.sum()) for side in (a, b))
    return f"position {position + 1}: tokens of probability 0 under the target {{:.4f}} new, {{:.4f}} old".format(
        *shares
    )


def _words_for(table: Table, a: Ints, b: Ints) -> str:
    shares = a / max(1, a.sum()), b / max(1, b.sum())
    cell = int(np.abs(shares[0] - shares[1]).argmax())
    after = f" after {list(table.prefix)}" if table.kind == "prefix" and table.prefix else ""
    kind = "" if table.kind == "prefix" else f" ({table.kind})"
    return f"position {table.position + 1}{after}{kind}: {table.label(cell)} {shares[0][cell]:.4f} new, {shares[1][cell]:.4f} old"


def _detectable(trial: Trial, steps: int, alarm: float) -> float:
    """For the first token's table: two samples of n know as much of a difference as one of n/2, and a third of that is
    spent on learning what the difference is.
    """
    first = next((table for table in trial.tables if table.position == 0), None)
    return 1.0 if first is None else detectable_tv(len(first.law), steps / 3.0, alarm)


# --- jobs, which a child process may be given ------------------------------------------------------------


def _block(
    subject: Subject,
    index: int,
    level: str,
    key: Key,
    first: int,
    steps: int,
    progress: Progress | None = None,
) -> Counts:
    trial = subject.trial(index, level)
    return run(trial.source, trial.tally, key, first, steps, threads=1, progress=progress)


def _tokens(subject: Subject, index: int, level: str, key: Key, progress: Progress | None = None) -> Ints:
    """The tokens [positions, TWINS] of the first steps."""
    trial = subject.trial(index, level)
    batches: list[Batch] = list(trial.source.batches(key, 0, min(TWINS, trial.steps)))
    return np.concatenate([batch.tokens for batch in batches], axis=1)
