"""`specsim trace` with import, info, alpha, audit and record."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import specsim
from specsim import decoding
from specsim.cli import _options as option
from specsim.cli._app import command, refuse, trace_app
from specsim.cli._terminal import TEXT, TEXT_OR_PICTURE, Form, PictureForm, print_result
from specsim.core._json import printable
from specsim.core._tables import Listing


@command(trace_app, name="import")
def trace_import(
    source: Path,
    *,
    out: Path,
    draft: Path | None = None,
    format: str | None = None,
    vocab_size: option.Whole = None,
    dtype: str = "float32",
) -> None:
    """Convert a log of p and q to a trace; docs/importing-logs.md describes the formats."""
    how: dict[str, Any] = {"draft": draft, "format": format, "vocab_size": vocab_size, "dtype": dtype}
    print(_written(specsim.traces.import_trace(source, out, **how)))


def _written(trace: Any, texts: int | None = None) -> str:
    """What was written, in numbers, and where."""
    of = "" if texts is None else f" of {texts:,} texts"
    size = f"{trace.num_rows:,} rows, {trace.num_bytes / 1e6:.1f} MB"
    return f"wrote {trace.num_steps:,} steps{of}, {size} to {trace.path}"


@command(trace_app, name="info")
def trace_info(path: Path | None = None, *, form: Form = TEXT) -> int:
    """Describe a trace, and check the checksum of every row."""
    trace = option.trace_of(path)
    shards = trace.verify()
    lines = [f"{one.name}  {one.num_rows:,} rows  {'ok' if one.ok else one.damage}" for one in shards]
    rows = [{"shard": one.name, "rows": one.num_rows, "ok": one.ok, "damage": one.damage} for one in shards]
    counted = {"steps": trace.num_steps, "rows": trace.num_rows, "bytes": trace.num_bytes}
    about = {"path": str(trace.path), **counted, **trace.layout._asdict(), "complete": trace.complete}
    document = about | {"provenance": dict(trace.provenance), "shards": rows}
    print_result(Listing([*_description(trace), *lines], rows), form, document)
    return 0 if all(shard.ok for shard in shards) else 2


def _description(trace: Any) -> Iterator[str]:
    """What the manifest says, in lines."""
    layout = trace.layout
    rows = f"{trace.dtype} rows" if trace.top is None else f"{trace.dtype} rows of the top {trace.top}"
    logged = {"accept flags": layout.flags, "q at the bonus": layout.bonus}
    lacks = [what for what, there in logged.items() if not there]
    steps = f"{trace.num_steps:,} steps of γ = {trace.gamma}"
    if not trace.gamma:
        steps = f"{trace.num_rows:,} places of a text"
    yield f"{trace.path}: {steps}, V = {trace.vocab_size:,}, {rows}"
    yield (
        f"{trace.num_rows:,} rows, {trace.num_bytes / 1e6:.1f} MB"
        + ("" if trace.complete else ", cut short")
        + (f"; without {' and '.join(lacks)}" if lacks and trace.gamma else "")
    )
    yield from (f"  {name}: {value}" for name, value in trace.provenance.items())


@command(trace_app, name="alpha")
def trace_alpha(
    path: Path | None = None,
    *,
    skip_damaged: option.Flag = False,
    entropy_of: str = "q",
    bins: Annotated[int, option.WHOLE] = 8,
    seed: Annotated[int, option.WHOLE] = 0,
    form: PictureForm = TEXT_OR_PICTURE,
) -> None:
    """The three α of a trace by position, entropy and document, with confidence intervals."""
    from specsim.traces._analysis import summarise_and_read
    from specsim.traces._summary import is_whole

    trace = option.trace_of(path)
    if not is_whole(trace.layout):
        form.check_no_picture("bounds")
    options: dict[str, Any] = {"entropy_of": entropy_of, "bins": bins, "rng": seed}
    found, reading = summarise_and_read(trace, skip_damaged=skip_damaged, **options)
    if "text" in trace.provenance and form.in_words:
        print("the text is", printable(str(trace.provenance["text"])))
    print_result(found, form, found.to_dict() | {"reading": reading.to_dict()})
    if form.in_words:
        print()
        print_result(reading)


@command(trace_app, name="audit")
def trace_audit(
    path: Path | None = None,
    *,
    lenience: option.Real = None,
    logprobs: str | None = None,
    temperature: option.Real = None,
    tolerance: option.Real = None,
    seed: Annotated[int, option.WHOLE] = 0,
    form: Form = TEXT,
) -> int:
    """Check a log against its own rows.

    Of a trace: the accept flags and drafted tokens, for the standard rule, or lenience. Of served responses:
    whether each emitted token follows the logged log-probabilities."""
    values = locals()
    of_served: dict[str, Any] = {"logprobs": logprobs, "temperature": temperature, "tolerance": tolerance}
    is_served = path is not None and path.exists()
    if path is not None and path.is_dir():  # of JSON Lines, and no trace
        is_served = not (path / "manifest.json").exists() and any(path.glob("*.jsonl"))
    if path is not None and is_served:
        refuse(trace_audit, values, "served")
        return print_result(specsim.audit_served(path, **option.given(of_served), rng=seed), form)
    refuse(trace_audit, values, "trace")
    lenience = 1.0 if lenience is None else lenience
    return print_result(specsim.traces.audit_log(option.trace_of(path), lenience=lenience, rng=seed), form)


@command(trace_app, name="record")
def trace_record(
    path: Path,
    *,
    models: str = "ngram",
    steps: Annotated[int, option.WHOLE] = 1000,
    target: str | None = None,
    draft: str | None = None,
    prompts: Path | None = None,
    max_new_tokens: Annotated[int, option.WHOLE] = 128,
    temperature: Annotated[float, option.REAL] = 1.0,
    top_k: option.Whole = None,
    top_p: Annotated[float, option.REAL] = 1.0,
    device: str = "cpu",
    gamma: Annotated[int, option.WHOLE] = 5,
    rule: str = "standard",
    dtype: str = "float32",
    top: option.Whole = None,
    seed: option.Whole = None,
) -> None:
    """Decode speculatively, with n-grams or two Hugging Face models, and log the drafts with p and q."""
    layout: dict[str, Any] = {"gamma": gamma, "rule": rule, "dtype": dtype, "top": top, "rng": seed}
    if target is None:
        trace = decoding.record(path, *option.models_of(models), steps=steps, **layout)
        done = _written(trace)
    else:
        from specsim.decoding._recording.huggingface import read_prompts

        if draft is None or prompts is None:
            raise ValueError("--target: --draft or --prompts is missing; give both")
        texts = read_prompts(prompts)
        sampling: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        limits: dict[str, Any] = {"max_new_tokens": max_new_tokens, "device": device}
        trace = decoding.record_hf(path, target, draft, texts, **sampling, **layout, **limits)
        done = _written(trace, len(texts))
    print(f"{done} (seed {trace.provenance['root']})")
