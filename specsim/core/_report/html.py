"""A result with a verdict as one HTML file by itself: verdict, findings, evidence, how to run it again."""

import re
import sys
from pathlib import Path
from typing import Any

from specsim.core._tables import COLORS, printable
from specsim.core._verdicts import UNDECIDED, Judged


def page_of(result: Judged, folder: Path | None = None, name: str = "page.html.j2", **more: Any) -> str:
    """The page, from the template `name` in `folder`, which may build on those beside this file."""
    import jinja2

    own = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder or own, own]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    environment.filters["linked"] = _linked
    return environment.get_template(name).render(
        result=result,
        verdict=result.headline().removeprefix(f"{result.subject}: "),
        tone="none" if result.exit_code == UNDECIDED else str(result.verdict),
        facts=result.facts() | _facts(result),
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


def _facts(result: Judged) -> dict[str, Any]:
    """When, where and with what it was run."""
    run = getattr(result, "provenance", None)
    if run is None:
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
