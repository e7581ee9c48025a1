"""The diagnosis of whatever failed: a verifier of chains or trees, or a decoder."""

import math
import time
import warnings
from collections.abc import Sequence

import numpy as np

from specsim.adapters._contract import BrokenVerifier, NotADraftPath
from specsim.auditing._cases.battery import case_key
from specsim.auditing._checks.contract_checks import PROMISES, RARE_TOKEN, rare_draft_case, rare_rows
from specsim.auditing._checks.subjects import DecoderSubject, RuleSubject, Subject, VerifierSubject
from specsim.auditing._diagnosis import posterior as odds
from specsim.auditing._diagnosis.decoders import diagnose_decoder
from specsim.auditing._diagnosis.likelihood import Prediction
from specsim.auditing._diagnosis.reproduction import Audited
from specsim.auditing._diagnosis.trees import diagnose_tree
from specsim.auditing._diagnosis.verifiers import diagnose_chain
from specsim.auditing._results.audit import Audit, CaseResult, Diagnosis
from specsim.auditing._verifier.calls import VerifierSource
from specsim.core._streams import Key
from specsim.mistakes import Mistake, catalogue


def diagnosis_of(subject: Subject, found: Audit, seconds: float | None = None) -> Diagnosis | None:
    """Diagnose what failed, in at most `seconds` if a time limit leaves that many."""
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    results = [case for case in found.cases if not case.broken and case.case != PROMISES]
    root = found.provenance.root
    try:
        if found.edge_case and isinstance(subject, VerifierSubject):
            return diagnose_edge_case(subject, case_key(root, PROMISES))
        if not any(case.findings for case in results):
            return None
        return diagnose_failed(subject, results, found.level, root, deadline=deadline)
    except odds.OutOfTime as why:
        return Diagnosis(reason=str(why))
    except (BrokenVerifier, NotADraftPath, KeyboardInterrupt):
        pass
    except Exception as error:  # an error of the diagnosis must not lose the verdict
        warnings.warn(f"the diagnosis failed ({error!r}); the verdict stands", RuntimeWarning, stacklevel=3)
    return None


def diagnose_failed(
    subject: Subject,
    results: Sequence[CaseResult],
    level: str,
    root: int,
    known: Sequence[Mistake] | None = None,
    deadline: float = math.inf,
) -> Diagnosis | None:
    """Diagnose `subject` from results with counts; None for a rule. Raises OutOfTime after `deadline`."""
    if isinstance(subject, RuleSubject):
        return None
    audited, mistakes = Audited(subject, results, level, root, odds.Limits(deadline)), known or catalogue()
    if isinstance(subject, DecoderSubject):
        return diagnose_decoder(audited, mistakes)
    return diagnose_tree(audited, mistakes) if subject.declared.tree else diagnose_chain(audited, mistakes)


# Diagnose a verifier that goes wrong in an edge case alone: a draft whose residual has next to no mass.

#: Steps that are drawn.
STEPS = 2**12


def diagnose_edge_case(
    subject: VerifierSubject, key: Key, known: Sequence[Mistake] | None = None
) -> Diagnosis | None:
    """Diagnose `subject` by the tokens that follow a draft of almost no mass; None if it does not take it."""
    if (case := rare_draft_case(subject.declared)) is None:
        return None
    calls = VerifierSource(subject.callee, case, subject.timeout)
    tokens, accepted = calls.verify(rare_rows(calls, key, STEPS), key, 0)
    size = case.vocab_size
    counts = np.bincount(accepted * size + tokens[accepted, np.arange(STEPS)], minlength=2 * size)[None]
    p, q = ([float(weight) for weight in model.row(())] for model in (case.target, case.draft))

    def predictions(mistake: Mistake) -> odds.Seen:
        assert mistake.law is not None
        stop, follow = mistake.law((0,), (RARE_TOKEN,), [p, p], [q], **mistake.values)
        law = np.array(stop, dtype=np.float64)[:, None] * np.array(follow, dtype=np.float64)
        return [(Prediction(np.clip(law, 0.0, None).reshape(1, -1)), counts)]

    mistakes = [one for one in known or catalogue() if one.verify is not None and one.law is not None]
    *scored, exact = [odds.fitted(one, one.parameters, predictions) for one in (*mistakes, odds.STANDARD)]
    return odds.conclude(odds.posterior(scored, [exact], len(mistakes)), STEPS)
