"""`specsim trace` with import, info, alpha, audit, simulate, plan and policies."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from specsim.cli._app import VERDICT, ending, trace_app
from specsim.cli._options import RATIO, REAL, CHat, Dtype, Folder, Most, Rule, Seed, Steps, Threads, whole
from specsim.cli._pair_options import draft_of, trace_of
from specsim.cli._plan import print_trace_plan, sorted_runs
from specsim.cli._simulate import simulate_and_print
from specsim.cli._terminal import TEXT, TEXT_OR_PICTURE, Form, PictureForm, listing, print_result, written


@trace_app.command(name="import", help_epilogue=ending("trace import log.npz --out ours"))
def trace_import(
    source: Annotated[
        Path, Parameter(help="The log: .npz (or a folder of .npy), .safetensors, .parquet or .jsonl.")
    ],
    *,
    out: Annotated[Path, Parameter(help="Folder to write; must be new or empty.")],
    draft: Annotated[
        Path | None, Parameter(help="The draft's .jsonl, with the same texts as the target's, line by line.")
    ] = None,
    format: Annotated[
        str | None, Parameter(help="jsonl, npz, parquet or safetensors; default: by the file's ending.")
    ] = None,
    vocab_size: Annotated[
        int | None,
        Parameter(
            converter=whole, help="V, if a log of truncated rows does not have it; default: largest id + 1."
        ),
    ] = None,
    dtype: Dtype = "float32",
) -> None:
    """Convert a log of p and q to a trace; docs/importing-logs.md describes the formats."""
    from specsim.traces._importing import import_trace

    trace = import_trace(source, out, draft=draft, format=format, vocab_size=vocab_size, dtype=dtype)
    print(written(trace))


@trace_app.command(
    name="info",
    help_epilogue=ending(
        "trace info ours", codes="0 every row is as it was written, 2 one is not, or bad input"
    ),
)
def trace_info(path: Folder = None, *, form: Form = TEXT) -> int:
    """Describe a trace, and check the checksum of every row."""
    trace = trace_of(path)
    shards = trace.verify()
    lines = [f"{one.name}  {one.num_rows:,} rows  {'ok' if one.ok else one.damage}" for one in shards]
    rows = [{"shard": one.name, "rows": one.num_rows, "ok": one.ok, "damage": one.damage} for one in shards]
    counted = {"steps": trace.num_steps, "rows": trace.num_rows, "bytes": trace.num_bytes}
    layout = {
        name: getattr(trace.layout, name)
        for name in ("vocab_size", "gamma", "dtype", "top", "flags", "bonus")
    }
    about = {"path": str(trace.path), **counted, **layout, "complete": trace.complete}
    document = about | {"provenance": dict(trace.provenance), "shards": rows}
    print_result(listing([*_description(trace), *lines], rows), form, document)
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
    for name, value in trace.provenance.items():
        yield f"  {name}: {value}"


@trace_app.command(name="alpha", help_epilogue=ending("trace alpha ours", "trace alpha ours -o alpha.png"))
def trace_alpha(
    path: Folder = None,
    *,
    skip_damaged: Annotated[
        bool, Parameter(negative="", help="Skip damaged shards, with a warning.")
    ] = False,
    entropy_of: Annotated[str, Parameter(help="Group contexts by the entropy of q, or of p.")] = "q",
    bins: Annotated[int, Parameter(converter=whole, help="Number of groups of equal size.")] = 8,
    seed: Annotated[int, Parameter(converter=whole, help="Seed of the bootstrap over documents.")] = 0,
    form: PictureForm = TEXT_OR_PICTURE,
) -> None:
    """The three α of a trace by position, entropy and document, with confidence intervals."""
    from specsim.traces._analysis import summarise_and_read
    from specsim.traces._summary import is_whole

    trace = trace_of(path)
    if not is_whole(trace.layout):
        form.check_no_picture("bounds")
    options: dict[str, Any] = {"entropy_of": entropy_of, "bins": bins, "rng": seed}
    found, reading = summarise_and_read(trace, skip_damaged=skip_damaged, **options)
    if "text" in trace.provenance and not (form.as_json or form.as_csv):
        print(f"the text is {trace.provenance['text']}")
    print_result(found, form, found.to_dict() | {"reading": reading.to_dict()})
    if not (form.as_json or form.as_csv):
        print()
        print_result(reading)


@trace_app.command(
    name="audit", help_epilogue=ending("trace audit ours", "trace audit served.jsonl", codes=VERDICT)
)
def trace_audit(
    path: Annotated[
        Path | None,
        Parameter(
            help="Folder of a trace, or 'transformers' (default: the bundled one of n-grams), or served "
            "responses: a file of JSON Lines, or a folder of them."
        ),
    ] = None,
    *,
    lenience: Annotated[
        float | None,
        REAL,
        Parameter(help="Of a trace: lenience of the decoding, in (0, 1]. Default: 1."),
    ] = None,
    logprobs: Annotated[
        str | None,
        Parameter(
            help="Of served responses: raw log-probabilities (default), before temperature and truncation, "
            "or processed ones."
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        REAL,
        Parameter(
            help="Of served responses: temperature of requests that do not have one in the log.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        REAL,
        Parameter(
            help="Of served responses: error of the log-probabilities, in nats. Default: 1e-5.",
        ),
    ] = None,
    seed: Annotated[int, Parameter(converter=whole, help="Seed of the map of tokens to uniforms.")] = 0,
    form: Form = TEXT,
) -> int:
    """Check a log against its own rows.

    Of a trace: the accept flags and drafted tokens, for the standard rule, or lenience. Of served responses:
    whether each emitted token follows the logged log-probabilities."""
    of_served: dict[str, Any] = {"logprobs": logprobs, "temperature": temperature, "tolerance": tolerance}
    of_served = {name: value for name, value in of_served.items() if value is not None}
    found: Any
    if path is not None and _is_served(path):
        from specsim.served import audit_served

        if lenience is not None:
            raise ValueError(f"--lenience is for traces, and {path} is a log of served responses")
        found = audit_served(path, **of_served, rng=seed)
    else:
        from specsim.traces import audit_log

        if of_served:
            raise ValueError(f"--{next(iter(of_served))} is for logs of served responses, not for a trace")
        lenience = 1.0 if lenience is None else lenience
        found = audit_log(trace_of(path), lenience=lenience, rng=seed)
    print_result(found, form)
    return int(found.exit_code)


def _is_served(path: Path) -> bool:
    """Whether `path` is a file, or a folder of JSON Lines, and no trace."""
    if not path.is_dir():
        return path.exists()
    return not (path / "manifest.json").exists() and any(path.glob("*.jsonl"))


@trace_app.command(name="simulate", help_epilogue=ending("trace simulate ours --rule block --gamma 3"))
def trace_simulate(
    path: Folder = None,
    *,
    rule: Rule = "standard",
    gamma: Annotated[
        int | None, Parameter(converter=whole, help="Drafted tokens per step; default: as logged.")
    ] = None,
    steps: Steps = None,
    seed: Seed = None,
    threads: Threads = None,
    form: PictureForm = TEXT_OR_PICTURE,
) -> int:
    """Simulate another rule, or fewer drafted tokens, on the logged rows (frozen: drafts are redrawn).

    For truncated rows: bounds of the expected tokens per step along the logged drafts."""
    from specsim.models import Pair

    trace = trace_of(path)
    pair = Pair(trace, None, str(trace.path))
    shape = draft_of(pair, rule, gamma, None, None)
    options: dict[str, Any] = {"rule": rule, "gamma": shape, "steps": steps, "rng": seed, "threads": threads}
    return simulate_and_print(pair, form, **options)


@trace_app.command(name="plan", help_epilogue=ending("trace plan ours --c 0.05"))
def trace_plan(
    path: Folder = None,
    *,
    c: Annotated[float, RATIO],
    c_hat: CHat = None,
    most: Most = 64,
    form: Form = TEXT,
) -> None:
    """Find the best γ from a trace's rates by position, as 'specsim plan --trace'."""
    print_trace_plan(trace_of(path), c, c_hat, most, form)


@trace_app.command(name="policies", help_epilogue=ending("trace policies ours --c 0.05 --csv"))
def trace_policies(path: Folder = None, *, c: Annotated[float, RATIO], form: Form = TEXT) -> None:
    """Compare policies that choose γ step by step along a trace: drafted tokens and speedup.

    Learned policies are not included: a log has no rows of the draft after a rejected token."""
    from specsim.planning import policies as lookahead

    trace = trace_of(path)
    log, most = lookahead.log_from_trace(trace), trace.gamma
    policies = (
        lookahead.Constant(most),
        lookahead.Heuristic(),
        lookahead.ConfidenceThreshold(most=most),
        lookahead.SVIP(most=most),
        lookahead.Goodput(),
        lookahead.Cascade(),
        lookahead.Oracle(),
    )
    runs = lookahead.simulate_policies(log, policies, draft_cost=c)
    print_result(sorted_runs(runs) if form.is_text else runs, form)
