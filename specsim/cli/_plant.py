"""`specsim plant` and `serve`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import specsim
from specsim.cli._app import app, command, refuse
from specsim.cli._options import WHOLE, Flag, Real, Whole, given, whole_numbers
from specsim.cli._terminal import TEXT, Form, print_result
from specsim.core._checks import check_count
from specsim.core._numbers import real, whole
from specsim.core._parameters import read_options

if TYPE_CHECKING:
    from specsim.engines._planted.folder import Planted


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
        return print_result(specsim.engines.check(folder, dtypes=dtypes, rng=0), form)
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
    from specsim.engines._planted.memory import KINDS

    reads = ", ".join(map(str, made.target.offsets)) or "none"
    drafts = f"about {made.tokens_per_step(4):.3f} tokens per step of 4 drafted ones"
    if made.heads:
        drafts = f"that of the draft; the target drafts by a head ({made.heads})"
    openers = f" and one of {len(made.target.openers)} openers" if made.target.openers else ""
    if made.target.memory:
        openers += f", and in a state {KINDS[made.target.memory.kind]}"
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
