"""Merge the shards or checkpoints of a run into its result."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from specsim.core._arguments import checked
from specsim.simulation._checkpoints import add_parts
from specsim.simulation._engine import Simulation, merge_simulation

if TYPE_CHECKING:
    from specsim.auditing import Audit


@checked
def merge(
    paths: Sequence[str | os.PathLike[str]], *, diagnose: bool | str | Callable[..., Any] = True
) -> Simulation | Audit:
    """Return the result of the run whose parts are in the files `paths`.

    Parameters
    ----------
    paths : sequence of path
        Checkpoints of `specsim.simulate`, or files of `specsim.auditing.audit_shard`, in any order.
    diagnose : bool, str or callable
        The verifier of an audit that failed, as `audit_shard` took it, or the function: more of its steps are
        drawn, as `specsim.audit` does, if its file is the one that was audited. The name in the files is not
        enough, since they may be somebody else's; True opens only engines that `specsim engines` lists.

    Returns
    -------
    Simulation or Audit
        As if the run had not been split.

    Raises
    ------
    ValueError
        If a file is damaged or not a part, the parts belong to different runs, a step or case is missing or
        in two of them, or `diagnose` names another verifier than the parts.

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
    if not isinstance(diagnose, bool):
        raise ValueError("diagnose: the parts are of a simulation, which has no verifier; leave it out")
    return merge_simulation(total)
