"""Merge the parts of a run into its result, and run a simulation again from its result."""

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from specsim._named_pairs import read_pair
from specsim.core._json import rebuilding
from specsim.core._progress import ShowProgress
from specsim.core._saving import load, show_once
from specsim.core._types import checked
from specsim.models import Pair
from specsim.simulation._checkpoints import REMEDY, add_parts
from specsim.simulation._result import Simulation, merge_simulation
from specsim.simulation._simulate import simulate

if TYPE_CHECKING:
    from specsim.auditing._report.audit import Audit


#: The most steps that a file can ask for: those of some hours.
MOST_AGAIN = 2**40


@checked
def merge(
    paths: Sequence[str | os.PathLike[str]], *, diagnose: bool | str | Callable[..., Any] = True
) -> "Simulation | Audit":
    """Return the result of the run whose parts are in the files `paths`.

    Parameters
    ----------
    paths : sequence of path
        Checkpoints of `specsim.simulate`, or files of `specsim.auditing.audit_shard`, in any order.
    diagnose : bool, str or callable
        The verifier of an audit that failed, as `audit_shard` took it, or the function: more of its steps are
        drawn, as `specsim.audit` does, if its file is the one that was audited. True opens only engines that
        `specsim list engines` lists: files may be somebody else's, and name another verifier.

    Returns
    -------
    Simulation or Audit
        As if the run had not been split.

    Raises
    ------
    ValueError
        For damaged files, parts of different runs, steps or cases that are missing or twice there, and
        another verifier.

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
    audited = total.run.get("audit of")
    if audited is None and not isinstance(diagnose, bool):
        raise ValueError("diagnose: the parts are of a simulation, which has no verifier; leave it out")
    if isinstance(diagnose, str) and diagnose != audited:
        raise ValueError(f"diagnose: {diagnose!r} is not the audited verifier; name {audited!r}")
    with rebuilding(paths[0], REMEDY):
        if audited is None:
            return show_once(merge_simulation(total))
        from specsim.auditing._shards import merge_audit

        return show_once(merge_audit(total, diagnose))


@checked
def rerun(
    run: Simulation | str | os.PathLike[str],
    target: Any = None,
    draft: Any = None,
    *,
    threads: int | None = None,
    device: str | None = None,
    progress: ShowProgress = None,
) -> Simulation:
    """Run a simulation again: the same pair, rule, draft, number of steps and seed.

    Parameters
    ----------
    run : Simulation or path
        A result, or a file that its `save` wrote.
    target, draft : optional
        The pair, where the file lacks its name and could not hold the models.
    threads, device, progress
        As in `specsim.simulate`.

    Returns
    -------
    Simulation
        Equal to `run`, unless that was interrupted.

    Raises
    ------
    ValueError
        If the pair is missing, or another one than it was, and for a part of a run.

    Examples
    --------
    >>> import specsim
    >>> run = specsim.simulate(specsim.read_pair("zipf:vocab_size=50"), steps=1000, rng=1)
    >>> rerun(run) == run
    True
    """
    saved = run if isinstance(run, Simulation) else load(run)
    if not isinstance(saved, Simulation):
        raise ValueError(f"run: a {type(saved).__name__}; give a Simulation")
    if saved.shard is not None:
        part = "{}/{}".format(*saved.shard)
        raise ValueError(
            f"run: part {part} of a run, without its other steps; merge the parts, and run the result again"
        )
    if saved.planned > MOST_AGAIN:
        raise ValueError(f"run: {saved.planned:,} steps were planned; at most {MOST_AGAIN:,} are run again")
    pair = saved.pair if target is None else Pair(target, draft, saved.pair.name)
    if pair.target is None:
        if pair.name is None:
            raise ValueError("target: missing; give the pair, whose models no file can hold")
        pair = read_pair(pair.name)
    how: dict[str, Any] = {"rule": saved.rule, "gamma": saved.tree}
    if saved.method is not None:
        how = {"method": saved.method}
    work: dict[str, Any] = {"threads": threads, "device": device, "progress": progress}
    again = simulate(pair, **how, steps=saved.planned, rng=saved.provenance.root, **work)
    if again.pair != saved.pair:
        raise ValueError(
            f"target: another pair than that of the result ({again.pair.sha256}, not {saved.pair.sha256}); "
            "give the one that was simulated"
        )
    return again
