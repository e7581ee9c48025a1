"""Serving engines that are installed here, audited with planted checkpoints.

Each engine serves pairs whose distribution is known (`specsim.engines`), with its draft and without, and is
audited as the command in its row does it. Servers are started as their rows say, each in a process of its
own. specsim's own server, right and with a mistake, is the control. Not all engines can be installed side by
side: `--keep --only` runs those that are again, and keeps the rows of the others. The numbers of tokens per
second are those of one machine.
"""

import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from experiments import Row
from experiments._pages import audited_on, explained, joined, known_findings, markdown_table, written
from experiments.engines._serving import installed, served, version_of
from specsim import audit_engine, plant
from specsim.engines import Sampling, open_engine

TITLE = "Serving engines that are installed, audited with planted checkpoints"
MINUTES = 40

#: The planted pairs, with the options of `specsim plant` and of `plant`.
PAIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "order-2": ("--order 2 --format hf,gguf", {"order": 2}),
    "pages": ("--offsets 1,17 --openers 4 --format hf,gguf", {"offsets": (1, 17), "openers": 4}),
    "head": ("--architecture gated-delta --heads mtp", {"architecture": "gated-delta", "heads": "mtp"}),
    "llama-head": ("--heads mtp", {"heads": "mtp"}),
}


class Subject(NamedTuple):
    """What is audited: the engine by name, its distribution package and the module that has to be importable,
    whether it drafts, the command of a server, the tokens that are asked for, the pairs and the temperature.

    In the command PAIR is replaced by the folder of the pair. It begins with "python", or with the name of a
    module that Python runs, and takes a `--port`."""

    engine: str
    package: str
    module: str
    speculative: bool = True
    serve: str = ""
    tokens: int = 20_000
    pairs: Sequence[str] = ("order-2", "pages")
    temperature: float = 1.0


SUBJECTS = {
    name: Subject(**row)
    for name, row in tomllib.loads(
        Path(__file__).with_name("subjects.toml").read_text(encoding="utf-8")
    ).items()
}


def cells(*, fast: bool) -> list[tuple[str, str]]:
    """(subject, pair), for what is installed."""
    here = [name for name, subject in SUBJECTS.items() if installed(subject.module)]
    return [(name, pair) for name in here for pair in SUBJECTS[name].pairs[: 1 if fast else None]]


def kept_cells() -> list[tuple[str, str]]:
    """The cells of the page, installed here or not."""
    return [(name, pair) for name, subject in SUBJECTS.items() for pair in subject.pairs]


def run_cell(cell: tuple[str, str], *, fast: bool, rng: int) -> Row:
    """The audit of one subject with one pair."""
    name, pair = cell
    subject = SUBJECTS[name]
    with tempfile.TemporaryDirectory() as folder:
        formats = ("hf", "gguf") if subject.engine == "llama.cpp" else ("hf",)
        planted = plant(Path(folder) / pair, formats=formats, rng=1, **PAIRS[pair][1])
        with (
            served(subject.serve, pair, folder) if subject.serve else nullcontext(subject.engine) as address,
            closing(open_engine(address, planted, speculative=subject.speculative)) as engine,
        ):
            tokens, sampling = 2_000 if fast else subject.tokens, Sampling(subject.temperature)
            found = audit_engine(engine, planted, tokens=tokens, sampling=sampling, rng=rng)
    return {
        "subject": name,
        "pair": pair,
        "package": subject.package,
        "version": version_of(subject.package),
        "serve": subject.serve.replace("PAIR", pair),
        "command": _command(subject, pair, rng),
        "verdict": str(found.verdict),
        "findings": "\n".join(f"{one.kind}: {one.text}" for one in found.findings),
        "diagnosis": found.diagnosis[0].name if found.diagnosis else None,
        "efficiency": found.efficiency and found.efficiency.ratio,
        "detectable_tv": found.detectable_tv,
        "tokens": found.tokens,
        "seconds": found.seconds,
        "judging": found.judging,
        "date": date.today().isoformat(),
    }


def _command(subject: Subject, pair: str, seed: int) -> str:
    address = "http://127.0.0.1:8000" if subject.serve else subject.engine
    words = [f"specsim audit engine {address} --planted {pair}"]
    if not subject.speculative and not subject.serve:
        words.append("--no-speculative")
    if subject.tokens != 100_000:
        words.append(f"--tokens {subject.tokens}")
    if subject.temperature != 1.0:
        words.append(f"--temperature {subject.temperature:g}")
    return " ".join([*words, f"--seed {seed}"])


# --- the page --------------------------------------------------------------------------------------------

#: Findings, as "engine: kind". Of each one on the page there has to be one here.
REPRODUCTIONS = known_findings(__file__)


def page(rows: Sequence[Row]) -> str:
    """docs/results/engines.md."""
    parts = {"commands": joined(_commands(rows)), "findings": joined(_findings(rows))}
    return written("engines", {"audited": audited_on(rows), "table": _table(rows), **parts})


COLUMNS = (
    *("subject", "pair", "version", "verdict", "findings"),
    *("efficiency", "detectable TV", "tokens", "tokens/s", "judging"),
)


def _table(rows: Sequence[Row]) -> str:
    lines = []
    for row in rows:
        seconds = row["seconds"] + row["judging"]
        kinds = ", ".join(dict.fromkeys(kind for kind, _ in _found(row)))
        lines.append(
            [
                row["subject"],
                row["pair"],
                f"{row['package']} {row['version']}",
                row["verdict"],
                kinds or "none",
                "–" if row["efficiency"] is None else f"{row['efficiency']:.2f}",
                f"{row['detectable_tv']:.3f}",
                f"{row['tokens']:,}",
                f"{row['tokens'] / seconds:,.0f}",
                f"{row['judging'] / seconds:.0%}",
            ]
        )
    return markdown_table(COLUMNS, lines, numbers=5)


def _found(row: Row) -> list[tuple[str, str]]:
    """(kind, text) of each finding of a row."""
    found = [line.partition(": ") for line in row["findings"].splitlines()]
    return [(kind, text) for kind, _, text in found]


def _commands(rows: Sequence[Row]) -> Iterator[str]:
    yield "## Commands"
    plants = (f"specsim plant {pair} {options} --seed 1" for pair, (options, _) in PAIRS.items())
    yield "The pairs:\n\n" + _indented(plants)
    yield "Engines in the process of the audit:\n\n" + _indented(
        row["command"] for row in rows if not row["serve"]
    )
    yield "A server, in a terminal of its own, and its audit:\n\n" + _indented(
        line for row in rows if row["serve"] for line in (row["serve"], row["command"])
    )


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"    {line}" for line in lines)


def _findings(rows: Sequence[Row]) -> Iterator[str]:
    """Each kind of finding of an engine once, as its first audit reported it."""
    yield "## Findings"
    shown: set[str] = set()
    for row in rows:
        where = f"{row['package']} {row['version']}, pair {row['pair']}"
        for kind, text in _found(row):
            key = f"{SUBJECTS[row['subject']].engine}: {kind}"
            if key not in shown:
                shown.add(key)
                yield from explained(REPRODUCTIONS[key], row["package"], where, f"{kind}: {text}")
