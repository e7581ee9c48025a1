"""The audit: is a verifier exact, and if not, where does it deviate?"""

from specsim.auditing.cases import LEVELS
from specsim.auditing.results import Audit, CaseResult, Finding, TableResult, Verdict
from specsim.auditing.runner import BUDGET, audit

__all__ = ["BUDGET", "LEVELS", "Audit", "CaseResult", "Finding", "TableResult", "Verdict", "audit"]
