"""An audit as JSON."""

from __future__ import annotations

import json

from specsim.auditing._results import Audit


def audit_to_json(audit: Audit) -> str:
    """`Audit.to_dict` as JSON; there is no NaN or infinity in it."""
    return json.dumps(audit.to_dict(), indent=1, allow_nan=False, ensure_ascii=False)
