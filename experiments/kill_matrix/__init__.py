"""The kill matrix: which published criterion lets which known-wrong verifier pass.

Every criterion of `experiments.kill_matrix.criteria`, and the audit itself, is run on every verifier, several times with different
seeds, and the fraction of runs that pass is kept. A criterion that passes a wrong verifier is blind to that mistake; one
that fails an exact verifier raises false alarms. A wrong *decoder* draws its own drafts, or keeps its own state: no test
that hands tokens to a kernel can see it, and only the audit of decoders stands beside it.
"""

from experiments.kill_matrix.run import AUDIT, audit_criterion, exact_tv, kill_matrix
from experiments.kill_matrix.table import Cell, Column, KillMatrix, Row, shipped

__all__ = [
    "AUDIT",
    "Cell",
    "Column",
    "KillMatrix",
    "Row",
    "audit_criterion",
    "exact_tv",
    "kill_matrix",
    "shipped",
]
