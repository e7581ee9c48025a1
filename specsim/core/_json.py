"""JSON that others wrote, or that may be damaged: whatever is wrong with it, the error is a ValueError."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

#: The entry of an object with the SHA-256 of all others.
SEAL = "sha256"


def parse_json(text: str | bytes) -> Any:
    """The value that `text` is. Raises ValueError also for what is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def sealed(values: Mapping[str, Any]) -> dict[str, Any]:
    """`values` as JSON holds them, with the SHA-256 of its own content. It guards against accidents."""
    plain: dict[str, Any] = json.loads(json.dumps(values))  # JSON has no tuples, and only strings as keys
    return plain | {SEAL: seal_of(plain)}


def seal_of(values: Mapping[str, Any]) -> str:
    """The SHA-256 of all entries but that one, as JSON in ASCII with sorted keys and without blanks."""
    covered = {name: value for name, value in values.items() if name != SEAL}
    return hashlib.sha256(json.dumps(covered, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
