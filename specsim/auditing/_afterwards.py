"""The diagnosis of an audit that is over: saved, or merged from parts.

More steps of the verifier are drawn, so it must be here, and the one that was audited."""

from contextlib import ExitStack
from dataclasses import replace

from specsim import adapters
from specsim.adapters._contract import Verifier
from specsim.auditing._checks import subjects
from specsim.auditing._checks.contract_checks import PROMISES
from specsim.auditing._diagnosis.diagnose import diagnosis_of
from specsim.auditing._report.audit import Audit
from specsim.auditing._results.audit import Diagnosis
from specsim.auditing._verifier.calls import TIMEOUT
from specsim.auditing._verifier.origin import digest_of, source_of
from specsim.core._arguments import checked
from specsim.rules import names


@checked
def diagnose(result: Audit, verifier: str | Verifier | None = None) -> Audit:
    """Diagnose the failures of an audit that is over, without a time limit.

    Parameters
    ----------
    result : Audit
        Such as `specsim.load` reads it.
    verifier : str or callable, optional
        What was audited, as in `specsim.audit`. By default an engine that `specsim list engines` lists: a
        result may be somebody else's, and nothing that it alone names is imported.

    Returns
    -------
    Audit
        The result with its diagnosis, which says why if none was made.

    Raises
    ------
    ValueError
        Without `verifier`, where it is no such engine, and for one of another name.

    Examples
    --------
    >>> import specsim
    >>> diagnose(specsim.audit("standard", "smoke", rng=1)).diagnosis is None
    True
    """
    name = result.verifier
    if not any(case.findings for case in result.cases) or name.partition(":")[0] in names():
        return result
    if verifier is None:
        if not is_installed(name):
            raise ValueError(f"verifier: not given, and it would be imported; name {name!r} if you trust it")
        verifier = name
    if isinstance(verifier, str) and verifier != name:
        raise ValueError(f"verifier: {verifier!r} is not the audited one; name {name!r}")
    return replace(result, diagnosis=diagnosed(result, verifier))


def is_installed(name: str) -> bool:
    """Whether specsim adapts the engine `name`, and its code is an installed package, not a folder in it."""
    return adapters.name_of(name) in adapters.ENGINES and "source=" not in name


def diagnosed(result: Audit, verifier: str | Verifier, *, whole: bool = False) -> Diagnosis | None:
    """The diagnosis of a verifier's audit, or why it has none. A file is compared before it is imported."""
    audited = result.origin and result.origin.digest
    another = Diagnosis(reason="It was not made: the verifier's file is not the one that was audited.")
    if isinstance(verifier, str) and audited and not adapters.is_engine(verifier):
        here = digest_of(source_of(verifier.partition(":")[0]))
        if here is not None and here != audited:
            return another
    with ExitStack() as stack:
        try:
            subject = stack.enter_context(subjects.open_subject(verifier, 1, TIMEOUT))
        except (ValueError, TypeError) as error:
            return Diagnosis(reason=f"It was not made: the verifier cannot be opened here: {error}.")
        if subject.origin is None or (subject.origin.digest or None) != audited:
            return another
        had, has = {case.case for case in result.cases} - {PROMISES}, {case.name for case in subject.cases}
        if not (had == has if whole else had <= has):
            return Diagnosis(reason="It was not made: the verifier declares something else here.")
        return diagnosis_of(subject, result)
