"""Merge the shards or checkpoints of a run into its result."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specsim.core._arguments import checked
from specsim.simulation._checkpoints import add_parts
from specsim.simulation._engine import Simulation, merge_simulation

if TYPE_CHECKING:
    from specsim.auditing import Audit


@checked
def merge(paths: Sequence[str | os.PathLike[str]], *, diagnose: bool = True) -> Simulation | Audit:
    """Return the result of the run whose parts are in the files `paths`.

    Parameters
    ----------
    paths : sequence of path
        Checkpoints of `specsim.simulate`, or files of `specsim.auditing.audit_shard`, in any order.
    diagnose : bool
        Open the verifier of an audit that failed, by the name in the files, and draw more of its steps, as
        `specsim.audit` does; the diagnosis says so if it cannot be opened, or is not the audited one.

    Returns
    -------
    Simulation or Audit
        As if the run had not been split.

    Raises
    ------
    ValueError
        If a file is damaged or not a part, the parts belong to different runs, or a step or case is missing
        or in two of them.

    Examples
    --------
    >>> import tempfile, specsim
    >>> pair = [0.5, 0.5], [0.8, 0.2]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     files = [f"{folder}/{i}" for i in range(2)]
    ...     for i, file in enumerate(files):
    ...         part = specsim.simulate(*pair, steps=10, rng=1, checkpoint=file, shard=(i, 2))
    ...     merge(files).steps
    10
    """
    total = add_parts(paths)
    if "audit of" in total.run:
        from specsim.auditing._shards import merge_audit

        return merge_audit(total, diagnose)
    return merge_simulation(total)
