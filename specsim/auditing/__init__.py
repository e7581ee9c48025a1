"""The audit: is a verifier exact, and if not, where does it deviate?"""

from specsim.auditing.cases import LEVELS
from specsim.auditing.contract import Declared, declares
from specsim.auditing.results import BUDGET, Audit, CaseResult, Finding, TableResult, Verdict
from specsim.auditing.runner import audit

__all__ = [
    "BUDGET",
    "LEVELS",
    "Audit",
    "CaseResult",
    "Declared",
    "Finding",
    "TableResult",
    "Verdict",
    "audit",
    "declares",
]
