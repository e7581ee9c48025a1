"""The five documents, and all claims that are checked."""

from __future__ import annotations

from experiments.literature.claims import (
    exact_speedups,
    guide,
    guide_rules,  # noqa: F401 - adds claims to the guide
    guide_run,  # noqa: F401 - and so does this
    naive_speculate,
    notes,
    problem,
)
from experiments.literature.claims.claim import Claim, Document

__all__ = ["CLAIMS", "DOCUMENTS"]

DOCUMENTS: tuple[Document, ...] = (
    problem.DOCUMENT,
    naive_speculate.DOCUMENT,
    notes.DOCUMENT,
    exact_speedups.DOCUMENT,
    guide.DOCUMENT,
)
CLAIMS: tuple[Claim, ...] = tuple(claim for document in DOCUMENTS for claim in document.claims)
