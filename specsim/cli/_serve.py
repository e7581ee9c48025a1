"""`specsim serve`."""

from typing import TYPE_CHECKING, Annotated

from specsim.cli._app import app, command
from specsim.cli._options import WHOLE, Flag, Gamma, Rule, Seed, refuse
from specsim.core._checks import check_count

if TYPE_CHECKING:
    from specsim.engines._planted.served_pair import Pair


@command(app, "serve pair --port 8000", "serve pair --mistake bonus_argmax --seed 1")
def serve(
    source: str = "ngram",
    *,
    rule: Rule = "standard",
    gamma: Gamma = 4,
    mistake: str | None = None,
    plain: Flag = False,
    host: str = "127.0.0.1",
    port: Annotated[int, WHOLE] = 8000,
    seed: Seed = None,
) -> None:
    """Serve a target with a draft over an OpenAI-compatible API, until interrupted.

    A correct server, or one with a known bug (--mistake), to try audits on.

    Args:
        source: Folder of planted checkpoints, or 'ngram' (the bundled pair).
        mistake: Decode with a known mistake, see 'specsim list mistakes'. Default: none.
        plain: Sample from the target, without a draft.
        host: Address to listen on; 0.0.0.0 accepts connections from the network.
        port: Port to listen on; 0 is a free one."""
    from specsim.engines._server.decoding import Decoder
    from specsim.engines._server.http import Server

    values = locals()
    if plain:
        refuse(serve, values, "has no effect with --plain, which has no draft", "rule", "gamma")
    decoder = Decoder(_pair_of(source), rule=rule, gamma=gamma, mistake=mistake, plain=plain, seed=seed)
    check_count("port", port, 0, 65535)
    with Server(decoder, host, port) as server:
        print(f"serving {server.model} at {server.url}; interrupt to stop", flush=True)
        server.serve_forever()


def _pair_of(source: str) -> "Pair":
    if source == "ngram":
        from specsim.engines._planted.served_pair import ngram_pair

        return ngram_pair()
    from specsim import open_planted

    return open_planted(source)
