"""The forms of a report: text, an HTML page, JSON, JUnit XML, figures. `text` has the sentences of all."""

import json

from specsim.auditing._report.figures import audit_figure
from specsim.auditing._report.html import audit_page
from specsim.auditing._report.junit import audit_to_junit
from specsim.auditing._results.audit import Audit

__all__ = ["audit_figure", "audit_page", "audit_to_json", "audit_to_junit"]


def audit_to_json(audit: Audit) -> str:
    """`Audit.to_dict` as JSON; there is no NaN or infinity in it."""
    return json.dumps(audit.to_dict(), indent=1, allow_nan=False, ensure_ascii=False)
