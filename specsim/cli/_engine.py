"""`specsim audit engine`, `audit matrix` and `audit servers`: audits of serving engines."""

import re
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from specsim.cli._app import VERDICT, audit_app, command
from specsim.cli._options import NOT_SAVE, REAL, Seed, Time, given, refuse, whole
from specsim.cli._terminal import TEXT, Form, print_result, write_report
from specsim.core._files import read_text
from specsim.core._numbers import whole as whole_of
from specsim.core._registry import check_known

Count = Parameter(converter=whole)
#: What --requests takes: numbers, and words.
NUMBERS, WORDS = ("texts", "logprobs"), ("penalties", "unseeded", "unequal")

SERVER = "the address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1"
NAMES = (
    "hf, hf-lookup, hf-universal, hf-early-exit, hf-mtp, llama.cpp, mlx-lm, onnxruntime, onnxruntime-ngram, "
    f"openvino, specsim (also specsim:rule=block,mistake=NAME, see 'specsim list mistakes'), or {SERVER}"
)
Checkpoint = Annotated[
    Path, Parameter(help="Folder of the checkpoint that the engine serves; 'specsim plant' makes one.")
]
Temperature = Annotated[float, REAL, Parameter(help="Sampling temperature.")]
TopK = Annotated[int | None, Count, Parameter(help="Top-k of the requests. Default: all tokens.")]
TopP = Annotated[float, REAL, Parameter(help="Top-p of the requests.")]
MinP = Annotated[float, REAL, Parameter(help="Min-p of the requests.")]
Stop = Annotated[str | None, Parameter(help="A stop string: the text of one token.")]
Model = Annotated[str | None, Parameter(help="The model's name, where a server has several.")]
Connections = Annotated[int | None, Count, Parameter(help="Connections to a server at once. Default: 8.")]
Gamma = Annotated[
    int | None,
    Count,
    Parameter(help="Drafted tokens per step; of a server, those that it was started with."),
]
Tolerance = Annotated[
    float | None,
    REAL,
    Parameter(help="Maximum error of log p in the engine's arithmetic. Default: that of float32."),
]
Out = Annotated[
    Path | None,
    Parameter(
        help="Folder for engine.html, .json, .xml (JUnit) and all texts; an interrupted run continues there"
        + NOT_SAVE
    ),
]
REQUESTS = "texts=3 (texts of each request), logprobs=5 (entries of the lists of log-probabilities; -1: none)"
NEUTRAL = "penalties (send neutral ones: 1, 0, 0, which must have no effect)"


@command(
    audit_app,
    "audit engine http://127.0.0.1:8000 --planted pair",
    "audit engine specsim:mistake=bonus_argmax --planted pair --seed 1",
    "audit engine run/texts.jsonl --planted pair",
    name="engine",
    codes=VERDICT,
)
def audit_engine(
    engine: Annotated[
        str, Parameter(help=f"{NAMES}; or texts.jsonl of an earlier audit, to judge it again.")
    ],
    *,
    planted: Checkpoint,
    tokens: Annotated[int, Count, Parameter(help="Emitted tokens to test.")] = 100_000,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    stop: Stop = None,
    requests: Annotated[
        str | None,
        Parameter(
            help=f"Form of the requests, separated by commas: {REQUESTS}, {NEUTRAL}, unseeded (no seed), "
            "unequal (every second prompt is much longer)."
        ),
    ] = None,
    speculative: Annotated[
        bool, Parameter(help="Use speculation (ignored for a server, which is already configured).")
    ] = True,
    model: Model = None,
    connections: Connections = None,
    gamma: Gamma = None,
    tolerance: Tolerance = None,
    time: Time = None,
    seed: Seed = None,
    out: Out = None,
    form: Form = TEXT,
) -> int:
    """Audit a serving engine: texts, log-probabilities and counters against a planted checkpoint's law."""
    from specsim import engines

    values = locals()
    if out is not None:
        form.make_folder(out, "engine.json")  # before the work, in case it cannot be
    pair = engines.open_planted(planted)
    if engine.endswith(".jsonl"):
        why = "cannot be chosen for texts that are there; they are judged as they were asked for"
        refuse(audit_engine, values, why, but=("engine", "planted", "tolerance", "out", "form"))
        return _ended(engines.judge_texts(engine, pair, tolerance=tolerance), out, form)
    if engine.endswith(".json"):
        raise ValueError(f"{engine}: not an engine; an earlier audit is judged again from its texts.jsonl")
    name, options = _engine_of(engine)
    if not speculative:
        refuse(audit_engine, values, "has no effect with --no-speculative, which has no draft", "gamma")
        if "rule" in options:
            raise ValueError(f"{engine}: rule has no effect with --no-speculative, which has no draft")
    asked, form_of = _sampling(temperature, top_k, top_p, min_p, stop, requests)
    options |= given({"model": model, "connections": connections, "gamma": gamma, "tolerance": tolerance})
    found = engines.audit_engine(
        name,
        pair,
        tokens=tokens,
        sampling=asked,
        texts=form_of.get("texts", 1),
        request_seeds="unseeded" not in form_of,
        unequal_prompts="unequal" in form_of,
        speculative=speculative,
        seconds=time,
        out=out,
        rng=seed,
        **options,
    )
    return _ended(found, out, form)


@command(
    audit_app,
    "audit matrix llama.cpp --planted pair",
    "audit matrix http://one:80 --planted pair --without http://two:80",
    name="matrix",
    codes=VERDICT,
)
def audit_matrix(
    engine: Annotated[str, Parameter(help=f"{NAMES}.")],
    *,
    planted: Checkpoint,
    without: Annotated[
        str | None, Parameter(help="The address of the same server without speculation.")
    ] = None,
    tokens: Annotated[int, Count, Parameter(help="Emitted tokens to test of each setting.")] = 20_000,
    model: Model = None,
    connections: Connections = None,
    gamma: Gamma = None,
    tolerance: Tolerance = None,
    seed: Seed = None,
    out: Out = None,
    form: Form = TEXT,
) -> int:
    """Audit a serving engine under many settings, with speculation and without.

    The settings are those of 'specsim audit engine': temperatures, truncation, penalties, stop strings,
    several texts, no seeds, unequal prompts."""
    from specsim import engines

    if out is not None:
        form.make_folder(out, "engine.json")
    name, options = _engine_of(engine)
    options |= given({"model": model, "connections": connections, "gamma": gamma, "tolerance": tolerance})
    found = engines.audit_matrix(
        name, engines.open_planted(planted), without=without, tokens=tokens, out=out, rng=seed, **options
    )
    return _ended(found, out, form)


@command(
    audit_app,
    "audit servers http://one:8000 http://two:8000 --prompts prompts.txt",
    name="servers",
    codes="0 the texts have one law, 1 it is changed or a server is broken, 2 usage or bad input, 3 no "
    "verdict, interrupted, or texts at temperature 0 differ",
)
def audit_servers(
    one: Annotated[str, Parameter(help=f"{SERVER[0].upper()}{SERVER[1:]}.")],
    other: Annotated[str, Parameter(help="The address of the other server.")],
    *,
    prompts: Annotated[Path, Parameter(help="File with a prompt in each line.")],
    tokens: Annotated[int, Count, Parameter(help="Emitted tokens to compare.")] = 200_000,
    temperature: Temperature = 1.0,
    top_k: TopK = None,
    top_p: TopP = 1.0,
    min_p: MinP = 0.0,
    stop: Stop = None,
    requests: Annotated[
        str | None,
        Parameter(help=f"Form of the requests, separated by commas: {REQUESTS}, {NEUTRAL}."),
    ] = None,
    model: Model = None,
    connections: Connections = None,
    time: Time = None,
    seed: Seed = None,
    out: Out = None,
    form: Form = TEXT,
) -> int:
    """Compare the texts of two servers of one model, without a planted checkpoint."""
    from specsim import engines

    if out is not None:
        form.make_folder(out, "engine.json")
    lines = prompts_of(prompts)
    asked, form_of = _sampling(temperature, top_k, top_p, min_p, stop, requests)
    for name in ("unseeded", "unequal"):
        if name in form_of:
            raise ValueError(f"--requests: {name} has no effect on a comparison of servers")
    found = engines.compare_servers(
        one,
        other,
        lines,
        tokens=tokens,
        sampling=asked,
        texts=form_of.get("texts", 1),
        seconds=time,
        out=out,
        rng=seed,
        **given({"model": model, "connections": connections}),
    )
    return _ended(found, out, form)


def prompts_of(path: Path) -> list[str]:
    """Return the lines of a file that are not empty. Raises ValueError if there is none."""
    lines = [line for line in read_text(path).splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"{path}: it has no prompt; write one in each line")
    return lines


def _engine_of(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the options of an engine: those of "specsim:rule=block,mistake=bonus_argmax"."""
    name, colon, rest = text.partition(":")
    if name != "specsim" or not colon:
        return text, {}
    parts = [part.partition("=") for part in re.split(",(?=rule=|mistake=)", rest)]
    if any(key not in ("rule", "mistake") or not value for key, _, value in parts):
        raise ValueError(f"engine: {text!r} is not of the form specsim:rule=block,mistake=bonus_argmax")
    return name, {key: value for key, _, value in parts}


def _sampling(
    temperature: float, top_k: int | None, top_p: float, min_p: float, stop: str | None, requests: str | None
) -> tuple[Any, dict[str, int]]:
    """How an engine is asked to sample, and the other entries of --requests."""
    from specsim.engines import Sampling

    found: dict[str, int] = {}
    for part in requests.split(",") if requests is not None else ():
        name, equals, value = part.partition("=")
        check_known("form of requests", name, [*NUMBERS, *WORDS])
        if bool(equals) is not (name in NUMBERS):
            example = f"{name}=2" if name in NUMBERS else name
            raise ValueError(f"--requests: {part!r} is not of the form {example}")
        found[name] = whole_of(value) if equals else 1
    logprobs = found.pop("logprobs", 0)
    asked = Sampling(
        temperature,
        top_k,
        top_p,
        min_p,
        () if stop is None else (stop,),
        None if logprobs < 0 else logprobs,
        bool(found.pop("penalties", 0)),
    )
    return asked, found


def _ended(found: Any, out: Path | None, form: Form) -> int:
    """Print a result, write it to the folder `out`, and return its exit code."""
    print_result(found, form)
    if out is not None:
        write_report(found, out, "engine")
        if form == TEXT:
            print(f"wrote engine.html, .json and .xml (JUnit) to {out}")
    code: int = found.exit_code
    return code
