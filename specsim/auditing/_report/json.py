"""An audit as JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from specsim.auditing._results import Audit

__all__ = ["audit_to_json"]


def audit_to_json(audit: Audit) -> str:
    """`Audit.to_dict` as JSON; there is no NaN or infinity in it."""
    return json.dumps(audit.to_dict(), indent=1, allow_nan=False, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no JSON form")
