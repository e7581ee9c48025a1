"""`specsim serve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from specsim.cli._app import app, ending
from specsim.cli._options import Gamma, Rule, Seed, refuse, whole

if TYPE_CHECKING:
    from specsim.engines._planted.served_pair import Pair

#: Drafted tokens per step, where no other number is given.
GAMMA = 4


@app.command(help_epilogue=ending("serve pair --port 8000", "serve --mistake list"))
def serve(
    source: Annotated[
        str, Parameter(help="Folder of planted checkpoints, or 'ngram' (the bundled pair).")
    ] = "ngram",
    *,
    rule: Rule = "standard",
    gamma: Gamma = GAMMA,
    mistake: Annotated[
        str | None,
        Parameter(help="Decode with a known mistake; 'list' prints all of them. Default: none."),
    ] = None,
    plain: Annotated[bool, Parameter(negative="", help="Sample from the target, without a draft.")] = False,
    host: Annotated[
        str, Parameter(help="Address to listen at; others than this computer's are open.")
    ] = "127.0.0.1",
    port: Annotated[int, Parameter(converter=whole, help="Port to listen at; 0 is a free one.")] = 8000,
    seed: Seed = None,
) -> None:
    """Serve a target and its draft with OpenAI's completions, until interrupted.

    The server is right, or wrong in one known way: an engine to try audits on."""
    from specsim.engines._server.decoding import Decoder
    from specsim.engines._server.http import Server

    if mistake == "list":
        _print_mistakes()
        return
    if plain:
        refuse({"rule": rule != "standard", "gamma": gamma != GAMMA}, "with --plain, which has no draft")
    decoder = Decoder(_pair_of(source), rule=rule, gamma=gamma, mistake=mistake, plain=plain, seed=seed)
    if not 0 <= port <= 65535:
        raise ValueError(f"port: {port} is not in [0, 65535]")
    with Server(decoder, host, port) as server:
        print(f"serving {server.model} at {server.url}; interrupt to stop", flush=True)
        server.serve_forever()


def _pair_of(source: str) -> Pair:
    """The planted pair in a folder, or the bundled one."""
    if source == "ngram":
        from specsim.engines._planted.served_pair import ngram_pair

        return ngram_pair()
    from specsim.engines import open_planted

    return open_planted(source)


def _print_mistakes() -> None:
    """All mistakes, those of verifiers last."""
    from specsim.engines._server.mistakes import find_mistake, mistake_names

    for name in mistake_names():
        found = find_mistake(name)
        print(f"{name:<30} {found.says if found else ''}")
