"""Audits as assertions, for the tests of an engine.

    def test_our_kernel_is_exact():
        assert_exact(verify)

Each run draws fresh steps unless `rng` is given; a failure names the seed that repeats it. The pytest fixture
`specsim_audit` is `assert_exact` with the level and the seed of the options --specsim-level and
--specsim-seed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.adapters._contract import Verifier
from specsim.auditing import Verdict, audit_against
from specsim.auditing._report.audit import Audit
from specsim.auditing._results.two_sample import TwoSampleAudit
from specsim.auditing._runner import audit
from specsim.core._streams import RandomSource

if TYPE_CHECKING:  # audits of kernels need no engines
    from specsim.engines._audit.run import EngineAudit, Planted

__all__ = ["assert_exact", "assert_same"]

__dir__ = __all__.copy  # for completion


def assert_exact(
    verifier: str | Verifier,
    level: str = "smoke",
    *,
    planted: "str | Path | Planted | None" = None,
    rng: RandomSource = None,
    allow_wasteful: bool = True,
    seconds: float | None = None,
    **options: Any,
) -> "Audit | EngineAudit":
    """Audit `verifier`, or the engine that serves `planted`, and fail unless the verdict is `consistent`.

    Parameters
    ----------
    verifier, level, rng, seconds, **options
        As in `specsim.audit`; with `planted`, an engine and options as in `specsim.audit_engine`, whose
        `tokens` takes the place of `level`.
    planted : path or Planted, optional
        The checkpoints that the engine serves.
    allow_wasteful : bool
        If False, also fail if the verifier certainly accepts less than the standard rule.

    Returns
    -------
    Audit or EngineAudit

    Raises
    ------
    AssertionError
        For any other verdict, `lossy` and `inconclusive` included, with what `print` shows of the audit.
    KeyboardInterrupt
        If the audit was interrupted. Other exceptions are those of the audit.

    Examples
    --------
    >>> assert_exact("standard").verdict
    <Verdict.CONSISTENT: 'consistent'>
    """
    __tracebackhide__ = True  # pytest then shows the caller's line
    if planted is None:
        found: Any = audit(verifier, level, rng=rng, seconds=seconds, **options)
    else:
        from specsim.engines._audit.run import audit_engine
        from specsim.engines._planted.folder import open_planted

        served = open_planted(planted) if isinstance(planted, str | Path) else planted
        found = audit_engine(verifier, served, rng=rng, seconds=seconds, **options)  # type: ignore[arg-type]
    if found.interrupted:
        raise KeyboardInterrupt
    if found.verdict is not Verdict.CONSISTENT or (not allow_wasteful and getattr(found, "wasteful", False)):
        raise AssertionError(str(found))
    return found


def assert_same(
    new: str | Verifier,
    old: str | Verifier,
    level: str = "smoke",
    *,
    rng: RandomSource = None,
    **options: Any,
) -> TwoSampleAudit:
    """Compare two verifiers, and fail if their distributions differ; neither need be exact.

    Parameters
    ----------
    new, old, level, rng, **options
        As in `specsim.auditing.audit_against`.

    Returns
    -------
    TwoSampleAudit

    Raises
    ------
    AssertionError
        With the cases that differ.

    Examples
    --------
    >>> assert_same("standard", "standard").identical
    True
    """
    __tracebackhide__ = True
    found = audit_against(new, old, level, rng=rng, **options)
    if found.interrupted:
        raise KeyboardInterrupt
    if found.verdict != "same":
        again = f'assert_same(new, old, "{level}", rng={found.provenance.root})'
        raise AssertionError("\n".join([*found.said(), f"In Python: {again}"]))
    return found
