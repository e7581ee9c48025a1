"""Parts of a run put together: what shards and checkpoints counted, as the result of one run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specsim.simulation._checkpoints import add_parts
from specsim.simulation._engine import Simulation, merge_simulation

if TYPE_CHECKING:
    from specsim.auditing import Audit


def merge(paths: Sequence[str | os.PathLike[str]]) -> Simulation | Audit:
    """The run whose parts are in the files `paths`, as if it had been one.

    They are checkpoints of `specsim.simulate`, or what `specsim.auditing.audit_shard` wrote. Raises ValueError for
    files that are damaged or no parts, parts of different runs (naming what differs), and steps or cases that are in two of
    them or in none.
    """
    total = add_parts(paths)
    if "audit of" in total.run:
        from specsim.auditing._shards import merge_audit

        return merge_audit(total)
    return merge_simulation(total)
