"""The forms of a report on a result with a verdict: JSON, JUnit XML, an HTML page."""

import json

from specsim.core._report.html import page_of
from specsim.core._report.junit import junit_of
from specsim.core._verdicts import Judged

__all__ = ["json_of", "junit_of", "page_of"]


def json_of(result: Judged) -> str:
    """`to_dict` of the result as JSON; there is no NaN or infinity in it."""
    text = json.dumps(result.to_dict(), indent=1, allow_nan=False, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()  # an escape, where UTF-8 has no code
