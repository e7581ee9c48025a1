"""The forms of an audit's report: text and tables, an HTML page, JSON, JUnit XML, figures. `text` has the sentences of all."""

from specsim.auditing._report.figures import audit_figure
from specsim.auditing._report.html import audit_page
from specsim.auditing._report.json import audit_to_json
from specsim.auditing._report.junit import audit_to_junit

__all__ = ["audit_figure", "audit_page", "audit_to_json", "audit_to_junit"]
