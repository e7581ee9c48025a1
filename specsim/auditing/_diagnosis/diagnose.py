"""The diagnosis of whatever failed: a verifier of chains or trees, or a decoder."""

import math
from collections.abc import Sequence

from specsim.auditing._checks.subjects import DecoderSubject, Subject, VerifierSubject
from specsim.auditing._diagnosis.decoders import diagnose_decoder
from specsim.auditing._diagnosis.trees import diagnose_tree
from specsim.auditing._diagnosis.verifiers import diagnose_chain
from specsim.auditing._results.audit import CaseResult
from specsim.auditing._results.diagnosis import Diagnosis
from specsim.auditing.mutants import Mutant


def diagnose_failed(
    subject: Subject,
    results: Sequence[CaseResult],
    level: str,
    root: int,
    known: Sequence[Mutant] | None = None,
    deadline: float = math.inf,
) -> Diagnosis | None:
    """Diagnose `subject` from the results of its audit, by default with all known mistakes; None for a
    built-in rule.

    Without what broke the contract: `results` have counts to compare with.
    Raises OutOfTime after `deadline`, a time of `time.monotonic`."""
    failed = [result for result in results if result.findings]
    if isinstance(subject, DecoderSubject):
        return diagnose_decoder(subject, results, root, known, deadline)
    if not isinstance(subject, VerifierSubject):
        return None
    if subject.declared.tree:
        return diagnose_tree(subject, failed, root, known, deadline)
    return diagnose_chain(subject, results, level, root, known, deadline)
