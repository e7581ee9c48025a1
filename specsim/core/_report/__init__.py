"""The forms of a report on a result with a verdict: JSON, JUnit XML, an HTML page."""

import json
import re
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from specsim.core._json import printable
from specsim.core._tables import COLORS, Shown, pieces
from specsim.core._verdicts import BUDGET, UNDECIDED, Check, Judged

#: What no XML document may hold, not even as a reference: control characters and lone surrogates.
NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def json_of(result: Shown) -> str:
    """`to_dict` of the result as JSON; there is no NaN or infinity in it."""
    text = json.dumps(result.to_dict(), indent=1, allow_nan=False, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()  # an escape, where UTF-8 has no code


def junit_of(result: Any) -> str:
    """JUnit XML for continuous integration, a test case with its seconds for each of the `outcomes`.
    A failure is a bias or a change, an error a broken contract or too little power for a verdict."""
    checks, run = list(result.outcomes()), getattr(result, "provenance", None)
    outcomes = [check.outcome for check in checks]
    suite = ElementTree.Element(
        "testsuite",
        name=f"specsim {result.made.lower()} {result.subject}",
        tests=str(len(checks)),
        failures=str(outcomes.count("failure")),
        errors=str(outcomes.count("error")),
        skipped=str(outcomes.count("skipped")),
    )
    interrupted = str(getattr(result, "interrupted", False)).lower()
    told = {"verdict": result.verdict, "interrupted": interrupted} | result.properties()
    told |= {"false alarm": f"{getattr(result, 'budget', BUDGET):g}"}
    if run is not None:
        suite.attrib |= {"time": f"{run.seconds:.3f}", "timestamp": run.date}
        told |= {"seed": run.root, "specsim": run.specsim}
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in told.items():
        ElementTree.SubElement(properties, "property", name=name, value=str(value))
    suite.extend(_case(result, check) for check in checks)
    ElementTree.SubElement(suite, "system-out").text = "\n".join(result.said())
    ElementTree.indent(suite)
    for element in suite.iter():
        element.attrib = {name: _written_out(value) for name, value in element.attrib.items()}
        element.text = None if element.text is None else _written_out(element.text)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def _written_out(text: str) -> str:
    """`text` with what XML cannot hold as Python writes it, such as \\x1b."""
    return NOT_XML.sub(lambda found: ascii(found[0])[1:-1], text)


def _case(result: Any, check: Check) -> ElementTree.Element:
    element = ElementTree.Element("testcase", classname=result.subject, name=check.name)
    if check.seconds is not None:
        element.set("time", f"{check.seconds:.3f}")
    if check.outcome:
        ElementTree.SubElement(element, check.outcome, message=check.message).text = check.text
    return element


def page_of(result: Shown, command: str = "the same command, with") -> str:
    """One HTML file: verdict, findings, evidence, the `command` to run it again; else all that is shown."""
    import jinja2

    own, judged = Path(__file__).parent, isinstance(result, Judged)
    facts, place, more, again = _facts(result), own / "page.html.j2", dict[str, Any](), ""
    if isinstance(result, Judged):
        place, more = result.template() or (place, more)
        facts, again = result.facts() | facts, result.again()
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([place.parent, own]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    environment.filters["linked"] = _linked
    return environment.get_template(place.name).render(
        result=result,
        judged=judged,
        again=again.replace("the same command, with", command),
        undecided=UNDECIDED,
        kind=re.sub("(?<=[a-z])([A-Z])", lambda one: f" {one[1].lower()}", type(result).__name__),
        pieces=[*pieces(result.parts())],
        facts=facts,
        colors=COLORS,
        **more,
    )


def _printable(value: Any) -> Any:
    """What is put into a page, without the characters that no page may hold; markup unchanged."""
    if isinstance(value, str) and not hasattr(value, "__html__"):
        return printable(value, sys.maxsize, "\n")
    return value


def _linked(text: str) -> Any:
    """`text` with links to the threads that it names, such as owner/name#12."""
    from markupsafe import Markup, escape

    thread = r"\b([\w.-]+/[\w.-]+)#(\d+)\b"
    link = r'<a href="https://github.com/\1/issues/\2">\g<0></a>'
    return Markup(re.sub(thread, link, str(escape(_printable(text)))))


def _facts(result: Shown) -> dict[str, Any]:
    """When, where and with what it was run."""
    if (run := getattr(result, "provenance", None)) is None:
        return {}
    date = run.date.replace("T", " ").replace("+00:00", " UTC") if run.date else None
    threads = f"{run.threads} thread{'' if run.threads == 1 else 's'}"
    found = {
        "seed": run.root,
        "date": date,
        "time": f"{run.seconds:.1f} s on {threads}",
        "specsim": run.specsim,
        "Python": ", ".join([run.python, *(f"{name} {version}" for name, version in run.libraries.items())]),
        "machine": run.machine,
    }
    return {name: fact for name, fact in found.items() if fact is not None}
