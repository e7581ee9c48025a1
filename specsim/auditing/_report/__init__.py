"""An audit, told: in the terminal, as a page, for Jupyter, as JSON, as JUnit, as a picture.

What is said stands in `words`, so that all forms agree.
"""

from specsim.auditing._report.figures import audit_figure
from specsim.auditing._report.html import audit_page, audit_to_html
from specsim.auditing._report.json import audit_to_json
from specsim.auditing._report.junit import audit_to_junit
from specsim.auditing._report.terminal import audit_to_terminal, comparison_to_terminal

__all__ = [
    "audit_figure",
    "audit_page",
    "audit_to_html",
    "audit_to_json",
    "audit_to_junit",
    "audit_to_terminal",
    "comparison_to_terminal",
]
