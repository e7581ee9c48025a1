"""`specsim prove`, `audit`, `audit offline` and `merge`."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import specsim
from specsim import auditing
from specsim.cli import _options as option
from specsim.cli._app import app, audit_app, command, default
from specsim.cli._terminal import TEXT, TEXT_OR_PICTURE, Form, PictureForm, print_judged, print_result
from specsim.core._saving import is_result

if TYPE_CHECKING:
    from specsim.auditing._report.audit import Audit

#: The files that --out writes.
REPORT, AGAINST = ("audit.json", "audit.png", "audit.svg"), "against.json"
#: What `audit diagnose` reads of them: the result with all counts.
SAVED = "audit.saved"
#: Tokens of a synthetic pair and drafted tokens, where no other numbers are given: all drafts are enumerated.
SMALL, GAMMA = 8, 2


@command(app)
def prove(
    pair: str = "zipf",
    *,
    vocab_size: option.Whole = None,
    overlap: option.Real = None,
    rule: str = "standard",
    gamma: option.Whole = None,
    tree: str | None = None,
    draft_sampling: str | None = None,
    form: Form = TEXT,
) -> int:
    """Prove a rule exact on a small pair, or refute it: every draft is enumerated, in fractions.

    Probabilities are taken as multiples of 2^-24. At most 4096 drafts, V^γ, are enumerated."""
    from specsim.theory._enumeration import MAX_DRAFTS

    synthetic = {"vocab_size": vocab_size, "overlap": overlap, "default_size": SMALL}
    both = option.small_pair_of(pair, "specsim prove", **synthetic)
    if gamma is None and tree is None:
        size = getattr(both.target, "vocab_size", None) or len(both.target)
        gamma = GAMMA if size**GAMMA <= MAX_DRAFTS else 1
    found = specsim.prove(both, rule=rule, gamma=option.draft_of(both, rule, gamma, tree, draft_sampling))
    print_result(found, form)
    return int(not found.as_claimed)


@default(audit_app)
def audit(
    verifier: str = "standard",
    *,
    against: str | None = None,
    pair: str | None = None,
    level: str = "quick",
    time: option.Real = None,
    source: Path | None = None,
    case: option.Several = None,
    wanted_tv: option.Real = None,
    fail_fast: option.Flag = False,
    timeout: Annotated[float, option.REAL] = 60.0,
    seed: option.Whole = None,
    threads: option.Whole = None,
    executor: str | None = None,
    device: str | None = None,
    shard: str | None = None,
    out: Path | None = None,
    form: PictureForm = TEXT_OR_PICTURE,
) -> int:
    """Audit a verifier: verdict, evidence and power."""
    from specsim.adapters import is_engine

    if source is not None:
        if not is_engine(verifier):
            raise ValueError(f"--source: {verifier} is not a known engine; see 'specsim list engines'")
        verifier = f"{verifier}:source={source}"
    limits: dict[str, Any] = {"seconds": time, "timeout": timeout, "threads": threads, "executor": executor}
    wanted: dict[str, Any] = {} if wanted_tv is None else {"wanted_tv": wanted_tv}
    if shard is not None:
        if out is None:
            raise ValueError("--shard: no file for the counts of this part; give it with --out")
        cases = auditing.audit_shard(verifier, out, option.shard_of(shard), level, rng=seed, **limits)
        print(f"wrote {out}: {', '.join(cases)}; 'specsim merge' judges all shards together")
        return 0
    if against is not None:
        form.check_no_picture("a comparison of two verifiers")
        form.make_folder(out, AGAINST)
        compared = auditing.audit_against(verifier, against, level, rng=seed, timeout=timeout, **wanted)
        return print_judged(compared, form, out, "against")
    form.make_folder(out, *REPORT)
    own = None if pair is None else option.small_pair_of(pair, "specsim audit --pair")
    how: dict[str, Any] = {"pair": own, "cases": case, "fail_fast": fail_fast, "device": device}
    return write(specsim.audit(verifier, level, rng=seed, **how, **limits, **wanted), out, form)


@command(audit_app, name="diagnose")
def audit_diagnose(
    report: Path,
    verifier: str | None = None,
    /,
    *,
    out: Path | None = None,
    form: PictureForm = TEXT_OR_PICTURE,
) -> int:
    """Name the mistake of an audit that is over, where its time limit left no time for that."""
    from specsim.auditing._report.audit import Audit

    form.make_folder(out, *REPORT)
    file = report / SAVED if report.is_dir() else report
    if not is_result(file):  # a report beside it
        file = file.with_name(SAVED)
    found = specsim.load(file)
    if not isinstance(found, Audit):
        raise ValueError(f"{file}: not an audit; name a folder that --out of specsim audit wrote")
    return write(auditing.diagnose(found, verifier), out, form)


@command(audit_app, name="offline")
def audit_offline(
    folder: Path,
    answers: Path | None = None,
    /,
    *,
    level: str = "smoke",
    dtype: str = "float32",
    lengths: option.Flag = False,
    seed: option.Whole = None,
    name: str = "tokens",
    out: Path | None = None,
    form: PictureForm = TEXT_OR_PICTURE,
) -> int:
    """Write the cases as safetensors files, for an engine in any language, or judge its answers."""
    from specsim.auditing import _offline

    if answers is None:
        manifest = _offline.export(folder, level, rng=seed, dtype=dtype, lengths=lengths)
        print(
            f"wrote {manifest}; put each case's tokens into a folder ANSWERS, then: "
            f"specsim audit offline {folder} ANSWERS"
        )
        return 0
    form.make_folder(out, *REPORT)
    return write(_offline.score(folder, answers, name=name), out, form)


@command(app)
def merge(
    files: Annotated[list[Path], Parameter(negative="")],
    /,
    *,
    diagnose: str | None = None,
    out: Path | None = None,
    form: PictureForm = TEXT_OR_PICTURE,
) -> int:
    """Merge the parts of a run, and print the result of simulate or audit."""
    from specsim.auditing._report.audit import Audit
    from specsim.simulation._checkpoints import Part

    if out is not None and "audit of" not in Part.read(files[0]).run:
        raise ValueError("--out has no effect on parts of a simulation; use -o for its result")
    form.make_folder(out, *REPORT)
    found = specsim.merge(files, diagnose=True if diagnose is None else diagnose)
    return write(found, out, form) if isinstance(found, Audit) else print_result(found, form)


def write(result: "Audit", out: Path | None, form: PictureForm) -> int:
    """Print an audit, and write its report files to `out`."""
    from specsim.auditing._report.figures import audit_figure, worst_tables

    if form.file and form.has_picture and not worst_tables(result):
        print(f"{form.file}: not written: no case has a table to plot", file=sys.stderr)
        form = replace(form, file=None)
    if out is not None:
        from specsim.core._plotting import save_figure

        for ending in ("png", "svg"):
            save_figure(audit_figure(result), out / f"audit.{ending}")
        result.save(out / SAVED)
    return print_judged(result, form, out, "audit", ", .saved, .png, .svg")
