"""The diagnosis of whatever failed: a verifier of chains or trees, or a decoder."""

import math
from collections.abc import Sequence

from specsim.auditing._checks.subjects import DecoderSubject, Subject, VerifierSubject
from specsim.auditing._diagnosis.decoders import diagnose_decoder
from specsim.auditing._diagnosis.trees import diagnose_tree
from specsim.auditing._diagnosis.verifiers import diagnose_chain
from specsim.auditing._results import CaseResult, Diagnosis
from specsim.auditing.mutants import Mutant


def diagnose_failed(
    subject: Subject,
    failed: Sequence[CaseResult],
    level: str,
    root: int,
    known: Sequence[Mutant] | None = None,
    deadline: float = math.inf,
) -> Diagnosis | None:
    """Diagnose `subject`, whose cases `failed`, by default with all known mistakes; None for a built-in rule.

    Raises OutOfTime after `deadline`, a time of `time.monotonic`."""
    if isinstance(subject, DecoderSubject):
        return diagnose_decoder(subject, failed, root, known, deadline)
    if not isinstance(subject, VerifierSubject):
        return None
    if subject.declared.tree:
        return diagnose_tree(subject, failed, root, known, deadline)
    return diagnose_chain(subject, failed, level, root, known, deadline)
