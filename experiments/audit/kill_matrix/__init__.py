"""The kill matrix: how often each criterion that engines test with passes each verifier that is known to be
wrong.

Every criterion of `experiments.audit._criteria`, and specsim's own audit, is run on every verifier with
several seeds. A criterion that passes a wrong verifier does not detect that bug; one that fails an exact
verifier raises a false alarm. A decoder draws its own drafts and keeps its own state, so criteria that hand
tokens to a kernel do not apply to it: only the audit is run on decoders.
"""

from __future__ import annotations

from experiments.audit.kill_matrix.runs import AUDIT, LEVEL, cells, exact_tv, measure, run_cell
from experiments.audit.kill_matrix.table import Cell, KillMatrix, Verifier, kept_matrix, page

__all__ = [
    "AUDIT",
    "LEVEL",
    "MINUTES",
    "TITLE",
    "Cell",
    "KillMatrix",
    "Verifier",
    "cells",
    "exact_tv",
    "kept_matrix",
    "measure",
    "page",
    "run_cell",
]

TITLE = "Known-wrong verifiers that the tests of inference engines pass"
MINUTES = 60
