"""`specsim audit`, with export, score and replay; `specsim merge` and `engines`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import specsim
from specsim.cli._app import VERDICT, app, audit_app, ending
from specsim.cli._options import REAL, Executor, Level, Seed, Shard, Threads, pair_help, shard_of, whole
from specsim.cli._pair_options import small_pair_of
from specsim.cli._terminal import (
    TEXT,
    TEXT_OR_PICTURE,
    Form,
    PictureForm,
    listing,
    print_result,
    write_report,
)

if TYPE_CHECKING:
    from specsim.auditing import Audit

#: The files that --out writes, besides those in which no result of -o can be.
REPORT, AGAINST = ("audit.json", "audit.png", "audit.svg"), "against.json"

AuditDevice = Annotated[
    str | None,
    Parameter(
        help="Where the rows of a verifier of torch, JAX or CuPy arrays are, such as cuda; default: as it "
        "declares."
    ),
]


@audit_app.default
def audit(
    verifier: Annotated[
        str, Parameter(help="A built-in rule, package.module:function, or an engine, see 'specsim engines'.")
    ] = "standard",
    *,
    against: Annotated[
        str | None, Parameter(help="Another verifier: test only whether the two have the same law.")
    ] = None,
    pair: Annotated[
        str | None,
        Parameter(help="Your own rows, for one case more, and no trace: " + pair_help()),
    ] = None,
    level: Level = "quick",
    seconds: Annotated[
        float | None,
        REAL,
        Parameter(
            name="--time", help="Time limit in seconds; a slow verifier gets fewer steps, or fewer cases."
        ),
    ] = None,
    source: Annotated[
        Path | None,
        Parameter(help="Folder with a clone of the engine that is named, where there is no wheel of it."),
    ] = None,
    case: Annotated[
        list[str] | None,
        Parameter(negative="", help="Run only the case of this name, for a slow verifier; may be repeated."),
    ] = None,
    wanted_tv: Annotated[
        float | None,
        REAL,
        Parameter(
            help="Total variation of the first token that must be detectable at half of the cases, else the "
            "verdict is inconclusive; 0.05, with --against 0.1.",
        ),
    ] = None,
    fail_fast: Annotated[bool, Parameter(negative="", help="Stop after the first case that fails.")] = False,
    timeout: Annotated[
        float, REAL, Parameter(help="Seconds after which a call is reported as hanging.")
    ] = 60.0,
    seed: Seed = None,
    threads: Threads = None,
    executor: Executor = None,
    device: AuditDevice = None,
    shard: Shard = None,
    out: Annotated[
        Path | None,
        Parameter(
            help="Folder for audit.html, .json, .xml (JUnit), .png and .svg; with --against for "
            "against.html, .json and .xml; with --shard the file to write."
        ),
    ] = None,
    form: PictureForm = TEXT_OR_PICTURE,
) -> int:
    """Audit a verifier: verdict, evidence and power."""
    from specsim import auditing
    from specsim.adapters import is_engine

    if source is not None:
        if not is_engine(verifier):
            raise ValueError(f"--source: {verifier} is no engine that specsim knows; see 'specsim engines'")
        verifier = f"{verifier}:source={source}"
    limits: dict[str, Any] = {"seconds": seconds, "timeout": timeout}
    limits |= {"threads": threads, "executor": executor}
    wanted: dict[str, Any] = {} if wanted_tv is None else {"wanted_tv": wanted_tv}
    if shard is not None:
        if device is not None:
            raise ValueError(f"--device: with --shard the verifier has to declare it, as device={device!r}")
        if out is None or against is not None or fail_fast or wanted or case or pair or not form.is_text:
            raise ValueError(
                "--shard counts a part of an audit into the file --out, without --against, --fail-fast, "
                "--case, --pair, --wanted-tv, --json, --csv and --save"
            )
        part = shard_of(shard)
        cases = auditing.audit_shard(verifier, out, part, level, seed, **limits)
        print(f"wrote {out}: {', '.join(cases)}; 'specsim merge' judges all shards together")
        return 0
    if against is not None and (
        seconds is not None or fail_fast or case or pair or executor not in (None, "threads")
    ):
        raise ValueError(
            "--against takes no --time, --fail-fast, --case, --pair and --executor: both verifiers run all "
            "cases to the end, here"
        )
    if against is not None and device is not None:
        raise ValueError(f"--device: with --against the verifiers have to declare it, as device={device!r}")
    if against is not None:
        form.check_no_picture("a comparison of two verifiers")
    if out is not None:
        written = REPORT if against is None else (AGAINST,)
        form.make_folder(out, *written)  # before the work, in case it cannot be
    if against is not None:
        return _audit_against(verifier, against, level, seed, out, form, timeout=timeout, **wanted)
    own = None if pair is None else small_pair_of(pair, "specsim audit --pair")
    result = auditing.audit(
        verifier, level, seed, pair=own, cases=case, fail_fast=fail_fast, device=device, **limits, **wanted
    )
    return report(result, out, form)


@audit_app.command(name="export", help_epilogue=ending("audit export cases --level smoke --seed 1"))
def audit_export(
    folder: Annotated[Path, Parameter(help="Folder to write; must be new or empty.")],
    *,
    level: Level = "smoke",
    dtype: Annotated[str, Parameter(help="float64, float32 or float16.")] = "float32",
    lengths: Annotated[
        bool, Parameter(negative="", help="Include a case with drafts of different lengths.")
    ] = False,
    seed: Seed = None,
) -> None:
    """Write the cases as safetensors files, for an engine that is not written in Python."""
    from specsim.auditing._offline import export

    manifest = export(folder, level, seed, dtype=dtype, lengths=lengths)
    print(f"wrote {manifest}; put each case's tokens into a folder of their own, then: specsim audit score")


@audit_app.command(name="score", help_epilogue=ending("audit score cases answers", codes=VERDICT))
def audit_score(
    folder: Annotated[Path, Parameter(help="Folder that export wrote.")],
    tokens: Annotated[
        Path, Parameter(help="Folder of the engine's tokens, a file of the same name for each case.")
    ],
    *,
    name: Annotated[str, Parameter(help="Name of the engine in the report.")] = "tokens",
    out: Annotated[Path | None, Parameter(help="Folder for the report's files.")] = None,
    form: PictureForm = TEXT_OR_PICTURE,
) -> int:
    """Judge the tokens of an engine for exported cases."""
    from specsim.auditing._offline import score

    if out is not None:
        form.make_folder(out, *REPORT)
    result = score(folder, tokens, name=name)
    return report(result, out, form)


@audit_app.command(
    name="replay",
    help_epilogue=ending(
        "audit replay mine:verify --case 'two-point' --step 3 --seed 1", codes="0 done, 2 usage or bad input"
    ),
)
def audit_replay(
    verifier: Annotated[str, Parameter(help="The verifier that was audited.")],
    *,
    case: Annotated[str, Parameter(help="The case, as the report names it.")],
    step: Annotated[int, Parameter(converter=whole, help="Number of the step, from 0.")],
    seed: Annotated[int, Parameter(converter=whole, help="Seed of the audit, as in its report.")],
    level: Level = "quick",
    device: AuditDevice = None,
) -> None:
    """Print one step of an audit: the draft with p and q, and the tokens of the verifier."""
    from specsim.auditing._replay import replay_step

    print(replay_step(verifier, case, step, seed, level, device=device))


@app.command(help_epilogue=ending("merge one.part two.part", codes=VERDICT))
def merge(
    files: Annotated[list[Path], Parameter(negative="", help="Files that --shard wrote, in any order.")],
    /,
    *,
    diagnose: Annotated[
        str | None,
        Parameter(
            help="The verifier that was audited, package.module:function; it is imported for the diagnosis."
        ),
    ] = None,
    out: Annotated[Path | None, Parameter(help="Folder for the report files of an audit.")] = None,
    form: PictureForm = TEXT_OR_PICTURE,
) -> int:
    """Merge the parts of a run, and print the result of simulate or audit."""
    from specsim.simulation._checkpoints import Part

    if out is not None:
        if "audit of" not in Part.read(files[0]).run:
            raise ValueError("--out has no effect on parts of a simulation; -o writes its result to a file")
        form.make_folder(out, *REPORT)
    found = specsim.merge(files, diagnose=True if diagnose is None else diagnose)
    if isinstance(found, specsim.Audit):
        return report(found, out, form)
    print_result(found, form)
    return 0


@app.command(help_epilogue=ending("engines", codes="0 done"))
def engines(*, form: Form = TEXT) -> None:
    """List the engines that audit knows by name."""
    from specsim.adapters import catalogue
    from specsim.core._tables import Table

    rows = [*catalogue().items()]
    records = [dict(zip(("engine", "audited"), row, strict=True)) for row in rows]
    print_result(listing([Table(("engine", "what is audited"), rows)], records), form)


def report(result: Audit, out: Path | None, form: Form) -> int:
    """Print an audit, and write its report files to `out`."""
    from specsim.auditing._report.figures import audit_figure, worst_tables
    from specsim.auditing._report.html import audit_page
    from specsim.core._report import json_of

    if form.file and form.has_picture and not worst_tables(result):
        print(f"{form.file}: not written, no case has a table that can be plotted", file=sys.stderr)
        form = replace(form, file=None)
    if form.as_json:
        print(json_of(result))
        form.write(result)
    else:
        print_result(result, form)
    if out is not None:
        from specsim.core._plotting import save_figure

        write_report(result, out, "audit", audit_page)
        figure = audit_figure(result)
        for ending in ("png", "svg"):
            save_figure(figure, out / f"audit.{ending}")
        if form.is_text:
            print(f"wrote audit.html, .json, .xml (JUnit), .png and .svg to {out}")
    return result.exit_code


def _audit_against(
    new: str, old: str, level: str, seed: int | None, out: Path | None, form: Form, **limits: Any
) -> int:
    from specsim.auditing import audit_against

    found = audit_against(new, old, level, seed, **limits)
    print_result(found, form)
    if out is not None:
        write_report(found, out, "against")
        if form.is_text:
            print(f"wrote against.html, .json and .xml (JUnit) to {out}")
    return found.exit_code
