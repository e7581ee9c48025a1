"""Audits as assertions, for the tests of an engine.

    def test_our_kernel_is_exact():
        assert_exact(verify)

Each run draws fresh steps unless `rng` is given; a failure names the seed that repeats it. The pytest fixture
`specsim_audit` is `assert_exact` with the level and the seed of the options --specsim-level and
--specsim-seed."""

from typing import Any

from specsim.adapters._contract import Verifier
from specsim.auditing import Verdict, audit_against
from specsim.auditing._report.audit import Audit
from specsim.auditing._results.two_sample import TwoSampleAudit
from specsim.auditing._runner import audit
from specsim.core._streams import RandomSource

__all__ = ["assert_exact", "assert_same"]

__dir__ = __all__.copy  # for completion


def assert_exact(
    verifier: str | Verifier,
    level: str = "smoke",
    *,
    rng: RandomSource = None,
    allow_wasteful: bool = True,
    seconds: float | None = None,
    **options: Any,
) -> Audit:
    """Audit `verifier`, and fail unless the verdict is `consistent`.

    Parameters
    ----------
    verifier, level, rng, seconds, **options
        As in `specsim.audit`.
    allow_wasteful : bool
        If False, also fail if the verifier certainly accepts less than the standard rule.

    Returns
    -------
    Audit

    Raises
    ------
    AssertionError
        For any other verdict, `lossy` and `inconclusive` included, with the findings and the call that
        repeats the audit.
    KeyboardInterrupt
        If the audit was interrupted. Other exceptions are those of `specsim.audit`.

    Examples
    --------
    >>> assert_exact("standard").verdict
    <Verdict.CONSISTENT: 'consistent'>
    """
    __tracebackhide__ = True  # pytest then shows the caller's line
    found = audit(verifier, level, rng=rng, seconds=seconds, **options)
    if found.interrupted:
        raise KeyboardInterrupt
    if found.verdict is not Verdict.CONSISTENT or (found.wasteful and not allow_wasteful):
        raise AssertionError("\n".join(found.said()))
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
