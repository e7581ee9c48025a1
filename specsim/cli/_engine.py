"""`specsim audit engine`, `audit matrix`, `audit servers`, `plant` and `serve`: serving engines."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

import specsim
from specsim import engines
from specsim.cli._app import app, audit_app, command, refuse
from specsim.cli._options import HELP, REAL, WHOLE, Flag, Real, Whole, given, whole_numbers
from specsim.cli._terminal import TEXT, Form, print_judged, print_result
from specsim.core._files import read_table, read_text
from specsim.core._numbers import real, whole
from specsim.core._parameters import read_options, split_name
from specsim.core._types import check_count, check_known, said_of

if TYPE_CHECKING:
    from specsim.engines._planted.folder import Planted


def _numbers(text: str, marks: str) -> Any:
    """Numbers in tuples of tuples, as in 3:-100/5:1.5."""
    if not marks:
        return int(number) if (number := real(text)).is_integer() else number
    return tuple(_numbers(part, marks[1:]) for part in text.split(marks[0]))


LIMITS, MARKS = (read_table("servers")[name] for name in ("limits", "marks"))
#: What --requests takes: values, and words.
VALUES: dict[str, Callable[[str], Any]] = {
    **{name: whole if type(low) is int else real for name, (low, *_) in LIMITS.items() if name not in HELP},
    **{name: partial(_numbers, marks=marks) for name, marks in MARKS.items()},
    "texts": whole,
    "logprobs": lambda text: None if whole(text) < 0 else whole(text),
    "stop_id": lambda text: (whole(text),),
}
WORDS = "unseeded", "unequal", "shared", "mixed", "defaults"


@Parameter(name="*")
@dataclass(frozen=True)
class Asked:
    """What a request asks for."""

    temperature: Annotated[float, REAL, HELP["temperature"]] = 1.0
    top_k: Annotated[int | None, WHOLE, HELP["top_k"]] = None
    top_p: Annotated[float, REAL, HELP["top_p"]] = 1.0
    min_p: Annotated[float, REAL, HELP["min_p"]] = 0.0
    stop: Annotated[str | None, HELP["stop"]] = None
    requests: Annotated[str | None, HELP["requests"]] = None

    def read(self) -> tuple[Any, dict[str, int]]:
        """Return how an engine samples, and the other entries of --requests."""
        found: dict[str, Any] = {}
        for part in self.requests.split(",") if self.requests is not None else ():
            name, equals, value = part.partition("=")
            check_known("form of requests", name, [*VALUES, *WORDS])
            if bool(equals) is not (name in VALUES):
                example = f"{name}=2" if name in VALUES else name
                raise ValueError(f"--requests: {part!r} is not of the form {example}")
            with said_of(f"--requests: {part!r}"):
                found[name] = VALUES[name](value) if equals else 1
        values = asdict(self) | {"stop": () if self.stop is None else (self.stop,)}
        values |= {"logprobs": found.pop("logprobs", 0), "stop_ids": found.pop("stop_id", ())}
        values |= {name: found.pop(name) for name in VALUES if name in found and name != "texts"}
        del values["requests"]
        return engines.Sampling(**values), found


@Parameter(name="*")
@dataclass(frozen=True)
class Server:
    """How a server is reached."""

    model: Annotated[str | None, HELP["model"]] = None
    connections: Annotated[int | None, WHOLE, HELP["connections"]] = None


@Parameter(name="*")
@dataclass(frozen=True)
class Engine(Server):
    """How an engine is opened."""

    gamma: Annotated[int | None, WHOLE, HELP["engine_gamma"]] = None
    tolerance: Annotated[float | None, REAL, HELP["tolerance"]] = None


ASKED, ANY_SERVER, ANY_ENGINE = Asked(), Server(), Engine()


@command(audit_app, name="engine")
def audit_engine(
    engine: str,
    *,
    planted: Path,
    tokens: Annotated[int, WHOLE] = 100_000,
    asked: Asked = ASKED,
    speculative: bool = True,
    opened: Engine = ANY_ENGINE,
    time: Real = None,
    seed: Whole = None,
    out: Path | None = None,
    form: Form = TEXT,
) -> int:
    """Audit a serving engine: texts, log-probabilities and counters against a planted distribution."""
    values = locals()
    form.make_folder(out, "engine.json")
    pair = specsim.open_planted(planted)
    if engine.endswith(".jsonl"):
        refuse(audit_engine, values, "texts")
        found = engines.judge_texts(engine, pair, tolerance=opened.tolerance)
        return print_judged(found, form, out, "engine")
    if engine.endswith(".json"):
        raise ValueError(f"{engine}: not an engine; an earlier audit is judged again from its texts.jsonl")
    name, options = _engine_of(engine)
    if not speculative and "rule" in options:
        raise ValueError(f"{engine}: rule has no effect with --no-speculative, which has no draft")
    sampling, form_of = asked.read()
    if "defaults" in form_of:
        if not pair.defaults:
            raise ValueError(f"--requests: {planted} has no defaults; plant it with --generation-config")
        sampling = replace(sampling, defaults=tuple(pair.defaults.items()))
    found = specsim.audit_engine(
        name,
        pair,
        tokens=tokens,
        sampling=sampling,
        texts=form_of.get("texts", 1),
        request_seeds="unseeded" not in form_of,
        unequal_prompts="unequal" in form_of,
        shared_prompts="shared" in form_of,
        mixed_requests="mixed" in form_of,
        speculative=speculative,
        seconds=time,
        out=out,
        rng=seed,
        **options,
        **given(asdict(opened)),
    )
    return print_judged(found, form, out, "engine")


@command(audit_app, name="matrix")
def audit_matrix(
    engine: str,
    *,
    planted: Path,
    without: str | None = None,
    battery: str = "mid",
    tokens: Whole = None,
    opened: Engine = ANY_ENGINE,
    seed: Whole = None,
    out: Path | None = None,
    form: Form = TEXT,
) -> int:
    """Audit a serving engine under the settings of a battery, with speculation and without."""
    form.make_folder(out, "engine.json")
    name, options = _engine_of(engine)
    options |= {**given(asdict(opened)), "without": without, "battery": battery, "tokens": tokens}
    found = engines.audit_matrix(name, specsim.open_planted(planted), out=out, rng=seed, **options)
    return print_judged(found, form, out, "engine")


@command(audit_app, name="servers")
def audit_servers(
    one: str,
    other: str,
    *,
    prompts: Path,
    tokens: Annotated[int, WHOLE] = 200_000,
    asked: Asked = ASKED,
    server: Server = ANY_SERVER,
    time: Real = None,
    seed: Whole = None,
    out: Path | None = None,
    form: Form = TEXT,
) -> int:
    """Compare the texts of two servers of one model, without a planted checkpoint."""
    form.make_folder(out, "engine.json")
    lines = prompts_of(prompts)
    sampling, form_of = asked.read()
    for name in WORDS:
        if name in form_of:
            raise ValueError(f"--requests: {name} has no effect on a comparison of servers")
    work: dict[str, Any] = {"texts": form_of.get("texts", 1), "seconds": time, "out": out, "rng": seed}
    found = engines.compare_servers(
        one, other, lines, tokens=tokens, sampling=sampling, **work, **given(asdict(server))
    )
    return print_judged(found, form, out, "engine")


def prompts_of(path: Path) -> list[str]:
    """Return the lines of a file that are not empty. Raises ValueError for an empty file."""
    if not (lines := [line for line in read_text(path).splitlines() if line.strip()]):
        raise ValueError(f"{path}: the file has no prompt; write one on each line")
    return lines


def _engine_of(text: str) -> tuple[str, dict[str, Any]]:
    """The name and the options of an engine, as in "specsim:rule=block,mistake=bonus_argmax"."""
    name, options = split_name(text, ["specsim"])
    if name != "specsim" or options is None:
        return text, {}
    return name, read_options(name, options, {"rule": str, "mistake": str})


@command(app)
def plant(
    folder: Path,
    *,
    check: Flag = False,
    order: Whole = None,
    offsets: str | None = None,
    openers: Whole = None,
    vocab_size: Whole = None,
    kind: str | None = None,
    overlap: Real = None,
    context: Whole = None,
    format: str | None = None,
    architecture: str | None = None,
    heads: str | None = None,
    generation_config: str | None = None,
    dtype: str | None = None,
    seed: Whole = None,
    form: Form = TEXT,
) -> int:
    """Make a target and a draft, real transformers with known next-token distributions, or check them.

    'specsim audit engine' tests an engine that serves them; SERVE.md in the folder says how."""
    values = locals()
    if check:
        dtypes = () if dtype is None else dtype.split(",")
        return print_result(engines.check(folder, dtypes=dtypes, rng=0), form)
    if form.file is not None or {*form.given} - {"--json"}:
        refuse(plant, values, "shown")
    own = ("order", "openers", "vocab_size", "kind", "overlap", "context", "architecture", "heads")
    options = {name: values[name] for name in own} | {"rng": seed}
    options["offsets"] = None if offsets is None else whole_numbers("offsets", offsets, "1,17,64")
    if generation_config is not None:
        readers = {"top_k": whole, **dict.fromkeys(("temperature", "top_p", "repetition_penalty"), real)}
        options["generation_config"] = read_options("--generation-config", generation_config, readers)
    options["formats"] = None if format is None else format.split(",")
    made = specsim.plant(folder, **given(options))
    print(json.dumps(made.to_dict(), allow_nan=False) if form.as_json else _summary(made))
    return 0


def _summary(made: "Planted") -> str:
    from specsim.engines._planted.law import MEMORIES

    reads = ", ".join(map(str, made.target.offsets)) or "none"
    drafts = f"about {made.tokens_per_step(4):.3f} tokens per step of 4 drafted ones"
    if made.heads:
        drafts = f"that of the draft; the target drafts by a head ({made.heads})"
    openers = f" and one of {len(made.target.openers)} openers" if made.target.openers else ""
    if made.target.memory:
        openers += f", and in a state {MEMORIES[made.target.memory.kind]}"
    return (
        f"wrote target and draft ({', '.join(made.formats)}) to {made.folder}: {made.target.words:,} words, "
        f"reading offsets {reads}{openers}, {made.context:,} positions (seed {made.seed})\n"
        f"α {made.alpha:.4f}, the mean over {made.alpha_over}; {drafts}\n"
        f"digest {made.digest[:16]}; see {made.folder / 'SERVE.md'} to serve them"
    )


@command(app)
def serve(
    source: str = "ngram",
    *,
    rule: str = "standard",
    gamma: Annotated[int, WHOLE] = 4,
    mistake: str | None = None,
    plain: Flag = False,
    host: str = "127.0.0.1",
    port: Annotated[int, WHOLE] = 8000,
    seed: Whole = None,
) -> None:
    """Serve a target with a draft over an OpenAI-compatible API, until interrupted.

    A correct server, or one with a known bug (--mistake), to try audits on."""
    from specsim.engines._planted.served_pair import ngram_pair
    from specsim.engines._server.decoding import Decoder
    from specsim.engines._server.http import Server

    pair = ngram_pair() if source == "ngram" else specsim.open_planted(source)
    decoder = Decoder(pair, rule=rule, gamma=gamma, mistake=mistake, speculative=not plain, seed=seed)
    check_count("port", port, 0, 65535)
    with Server(decoder, host, port) as server:
        print(f"serving {server.model} at {server.url}; interrupt to stop", flush=True)
        server.serve_forever()
