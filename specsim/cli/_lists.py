"""`specsim list`."""

from pathlib import Path
from typing import Any

import specsim
from specsim.cli._app import app, command
from specsim.cli._terminal import TEXT, Form, print_result
from specsim.core._tables import NONE, Listing, Table
from specsim.core._types import check_known


@command(app, name="list")
def list_command(
    what: str, target: Path | None = None, draft: Path | None = None, /, *, form: Form = TEXT
) -> int:
    """List the rules, methods, engines or mistakes, or compare the tokens of two models."""
    check_known("list", what, [*LISTS, "tokens"])
    if what == "tokens":
        if target is None or draft is None:
            raise ValueError("tokens: two models are missing; as in 'specsim list tokens TARGET DRAFT'")
        return print_result(specsim.models.compare_vocabularies(target, draft), form)
    if target is not None:
        raise ValueError(f"{target}: 'specsim list {what}' takes no model")
    return print_result(LISTS[what](), form)


def _rules() -> Listing:
    from specsim.rules import GROUPS, get, names
    from specsim.simulation._comparison import load_bundled
    from specsim.simulation._grid import show_tv

    comparison = load_bundled()
    found = {entry.name: entry for entry in comparison}
    parts: list[Any] = []
    records: list[dict[str, Any]] = []
    for group, claim in GROUPS.items():
        rows = []
        for name in names(group):
            rule, entry = get(name), found.get(name)  # a rule just added has no entry before make docs
            numbers = (NONE, NONE) if entry is None else (f"{entry.tokens_per_step:.3f}", show_tv(entry.tv))
            rows.append((name, rule.claim, *numbers, rule.citation))
            measured = {"tokens_per_step": entry and entry.tokens_per_step, "tv": entry and entry.tv}
            parameters = [{"name": one.name, "default": one.default} for one in rule.parameters]
            about = {"rule": name, "group": group, "claim": rule.claim, "paper": rule.citation}
            records.append(about | measured | {"parameters": parameters})
        parts += [claim, Table(("rule", "lossless for, or distribution", "tokens/step", "TV", "paper"), rows)]
    parts.append(
        f"tokens/step and TV: n-gram pair, {comparison.gamma} drafted tokens, or two chains of them for "
        f"trees; {comparison.steps:,} steps, seed {comparison.provenance.root}. Parameters: a rule's name, "
        "then name=value, as in lenience:lenience=0.5."
    )
    parts += [f"  {name}: {one.described}" for name in names() for one in get(name).parameters]
    return Listing(parts, records)


def _methods() -> Listing:
    from specsim.simulation.methods import get, names

    rows, records = [], []
    parts: list[Any] = []
    for name in names():
        one = get(name)
        rows.append((name, one.title, one.rule, one.citation))
        parameters = [
            {"name": each.name, "default": each.default, "range": each.range, "meaning": each.meaning}
            for each in one.parameters
        ]
        about: dict[str, Any] = {"method": name, "title": one.title, "rule": one.rule, "paper": one.citation}
        records.append(
            about | {"modelled": one.modelled, "not_modelled": one.left_out, "parameters": parameters}
        )
        parts += [f"{name}: {one.modelled}", f"  not modelled: {one.left_out}"]
        parts += [f"  {each.described}" for each in one.parameters]
    return Listing([Table(("method", "system", "rule", "paper"), rows), *parts], records)


def _engines() -> Listing:
    from specsim.adapters import catalogue

    rows = [*catalogue().items()]
    records = [dict(zip(("engine", "audited"), row, strict=True)) for row in rows]
    return Listing([Table(("engine", "what is audited"), rows)], records)


def _mistakes() -> Listing:
    from specsim.engines._server.mistakes import mistake_names
    from specsim.mistakes import get, names

    served = {*mistake_names()}
    records = [
        {"mistake": one.name, "family": one.family, "server": one.name in served, "wrong": one.mechanism}
        | {"reported": ", ".join(one.threads)}
        for one in map(get, [*names(), *names("engine")])
    ]
    parts: list[Any] = []
    for family in dict.fromkeys(row["family"] for row in records):
        rows = [
            (row["mistake"], "yes" if row["server"] else "no", row["wrong"], row["reported"])
            for row in records
            if row["family"] == family
        ]
        parts += [family, Table(("mistake", "server", "what goes wrong", "reported"), rows)]
    return Listing([*parts, "server: accepted by 'specsim serve --mistake'."], records)


LISTS = {"rules": _rules, "methods": _methods, "engines": _engines, "mistakes": _mistakes}
