"""A result with a verdict as JUnit XML, which continuous integration reads."""

import re
from xml.etree import ElementTree

from specsim.core._verdicts import BUDGET, Check, Judged

#: What no XML document may hold, not even as a reference: control characters and lone surrogates.
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_of(result: Judged) -> str:
    """A test case for each of the result's checks.

    A failure is a bias or a change, an error a broken contract or too little power for a verdict. Times are
    seconds, of a check and of the whole."""
    cases, run = [_case(result, check) for check in result.checks()], getattr(result, "provenance", None)
    suite = ElementTree.Element(
        "testsuite",
        name=f"specsim audit {result.subject}",
        tests=str(len(cases)),
        failures=str(_having(cases, "failure")),
        errors=str(_having(cases, "error")),
        skipped=str(_having(cases, "skipped")),
    )
    interrupted = str(getattr(result, "interrupted", False)).lower()
    told = {"verdict": result.verdict, "interrupted": interrupted} | result.properties()
    told |= {"false alarm": f"{getattr(result, 'budget', BUDGET):g}"}
    if run is not None:
        suite.set("time", f"{run.seconds:.3f}")
        told |= {"seed": run.root, "specsim": run.specsim}
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in told.items():
        ElementTree.SubElement(properties, "property", name=name, value=str(value))
    suite.extend(cases)
    ElementTree.SubElement(suite, "system-out").text = "\n".join(filter(None, result.said()))
    ElementTree.indent(suite)
    for element in suite.iter():
        element.attrib = {name: _written_out(value) for name, value in element.attrib.items()}
        element.text = None if element.text is None else _written_out(element.text)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def _written_out(text: str) -> str:
    """`text` with what XML cannot hold as Python writes it, such as \\x1b."""
    return NOT_XML.sub(lambda found: ascii(found[0])[1:-1], text)


def _case(result: Judged, check: Check) -> ElementTree.Element:
    element = ElementTree.Element("testcase", classname=result.subject, name=check.name)
    if check.seconds is not None:
        element.set("time", f"{check.seconds:.3f}")
    if check.outcome:
        ElementTree.SubElement(element, check.outcome, message=check.message).text = check.text
    return element


def _having(cases: list[ElementTree.Element], kind: str) -> int:
    return sum(case.find(kind) is not None for case in cases)
