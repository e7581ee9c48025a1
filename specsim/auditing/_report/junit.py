"""An audit as JUnit XML, which continuous integration reads."""

import re
from xml.etree import ElementTree

from specsim.auditing._report import text as words
from specsim.auditing._results.audit import Audit, CaseResult, Verdict

#: What no XML document may hold, not even as a reference: control characters and lone surrogates.
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def audit_to_junit(audit: Audit) -> str:
    """One test case for each case, one for the proof and one for the power.

    A failure is a bias, an error a broken verifier or too little power for a verdict. A case without power,
    or that was not run to its end, is skipped.

    Times are seconds, of a case and of the whole."""
    cases = [*(_case(audit, case) for case in audit.cases), *_proof(audit), _power(audit)]
    suite = ElementTree.Element(
        "testsuite",
        name=f"specsim audit {audit.verifier}",
        tests=str(len(cases)),
        failures=str(_having(cases, "failure")),
        errors=str(_having(cases, "error")),
        skipped=str(_having(cases, "skipped")),
        time=f"{audit.provenance.seconds:.3f}",
    )
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (
        ("verdict", audit.verdict),
        ("level", audit.level),
        ("seed", audit.provenance.root),
        ("interrupted", str(audit.interrupted).lower()),
        ("dependent", str(audit.dependent).lower()),
        ("edge case", str(audit.edge_case).lower()),
        ("wasteful", str(audit.wasteful).lower()),
        ("false alarm", f"{audit.budget:g}"),
        ("specsim", audit.provenance.specsim),
    ):
        ElementTree.SubElement(properties, "property", name=name, value=str(value))
    suite.extend(cases)
    output = ElementTree.SubElement(suite, "system-out")
    said = [words.headline(audit), *words.diagnosis(audit), words.test_line(audit), words.wanted_line(audit)]
    said += [*words.time_lines(audit), words.limits_line(audit), words.replay(audit)]
    output.text = "\n".join(filter(None, said))
    ElementTree.indent(suite)
    for element in suite.iter():
        element.attrib = {name: _written_out(value) for name, value in element.attrib.items()}
        element.text = None if element.text is None else _written_out(element.text)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def _written_out(text: str) -> str:
    """`text` with what XML cannot hold as Python writes it, such as \\x1b."""
    return NOT_XML.sub(lambda found: ascii(found[0])[1:-1], text)


def _case(audit: Audit, case: CaseResult) -> ElementTree.Element:
    element = ElementTree.Element(
        "testcase", classname=audit.verifier, name=case.case, time=f"{case.seconds:.3f}"
    )
    if case.findings:
        kind = "error" if case.verdict is Verdict.BROKEN else "failure"
        texts = (
            f"{one.kind}: {one.text}" + (f"\n{one.details}" if one.details else "") for one in case.findings
        )
        said = "\n".join(texts)
        _outcome(element, kind, case.findings[0].text, f"{said}\nagain: {words.replay(audit)}")
    elif case.interrupted:
        _outcome(element, "skipped", f"interrupted after {case.steps:,} of {case.planned:,} steps", None)
    elif words.left_out_for_time(audit, case):
        _outcome(element, "skipped", f"left out for time after {case.steps:,} steps", None)
    elif case.verdict is Verdict.NO_POWER:
        least = case.first_token.detectable_tv if case.first_token else 1.0
        said = f"a total variation of {least:.4f} of the first token was detectable"
        _outcome(element, "skipped", f"{case.verdict}: {said}, {case.wanted_tv:g} wanted", None)
    return element


def _proof(audit: Audit) -> list[ElementTree.Element]:
    if audit.proof is None:
        return []
    element = ElementTree.Element("testcase", classname=audit.verifier, name="proof")
    if not audit.proof.as_claimed:
        line = words.proof_line(audit)
        _outcome(element, "failure", str(line), line)
    return [element]


def _power(audit: Audit) -> ElementTree.Element:
    element = ElementTree.Element("testcase", classname=audit.verifier, name="power")
    if audit.verdict is Verdict.INCONCLUSIVE:
        _outcome(element, "error", words.headline(audit), words.wanted_line(audit))
    return element


def _outcome(element: ElementTree.Element, kind: str, message: str, text: str | None) -> None:
    ElementTree.SubElement(element, kind, message=message).text = text


def _having(cases: list[ElementTree.Element], kind: str) -> int:
    return sum(case.find(kind) is not None for case in cases)
