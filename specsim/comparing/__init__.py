"""Rules side by side: tokens per step against total variation, and acceptance against the number of drafts."""

from specsim.comparing.drafts import Acceptance, acceptance_by_drafts
from specsim.comparing.table import Comparison, Entry, as_markdown, compare, shipped

__all__ = ["Acceptance", "Comparison", "Entry", "acceptance_by_drafts", "as_markdown", "compare", "shipped"]
