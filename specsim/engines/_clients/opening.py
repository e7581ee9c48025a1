"""The engines by name."""

import re
from inspect import signature
from pkgutil import resolve_name
from typing import Any

from specsim.core._files import read_table
from specsim.core._types import check_known
from specsim.engines._planted.requests import Engine
from specsim.engines._planted.served_pair import Pair

#: An address without its beginning: a host with a port, or with a path.
ADDRESS = re.compile(r"[\w.-]+(:\d+|/)")
#: The engines by name: where the class of each is.
ENGINES = read_table("clients")


def open_engine(name_or_url: str, planted: Pair, *, speculative: bool = True, **options: Any) -> Engine:
    """Open an engine that serves a planted checkpoint.

    Parameters
    ----------
    name_or_url : str
        A name of `ENGINES`, or the address of a server, such as http://localhost:8000.
    planted : Planted
        The checkpoints that the engine serves.
    speculative : bool
        Decode with the draft. Ignored for a server, which is already configured.
    **options
        Of the engine.

    Returns
    -------
    Engine
        To be closed by its `close`.

    Raises
    ------
    ValueError
        For an unknown name, an option with a value that the engine does not have, or a checkpoint in a format
        that is not there.
    ImportError
        If the engine's package is not installed; the message says how to install it.

    Examples
    --------
    >>> import tempfile
    >>> from specsim import plant
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     engine = open_engine("specsim", plant(f"{folder}/pair", vocab_size=4, context=64, rng=1))
    ...     engine.close()
    >>> engine.name
    'specsim'
    """
    arguments: tuple[Any, ...] = (planted,)
    if "://" in name_or_url:
        place, arguments = "_clients.http:HttpEngine", (name_or_url, planted)
    else:
        if ADDRESS.match(name_or_url):
            raise ValueError(f"engine {name_or_url!r}: addresses begin with http://, as http://{name_or_url}")
        check_known("engine", name_or_url, list(ENGINES))
        place = ENGINES[name_or_url]
    make = resolve_name(f"specsim.engines.{place}")
    options["speculative"] = speculative
    taken = [name for name in signature(make).parameters if name not in ("url", "pair", "planted")]
    if unknown := [name for name in options if name not in taken]:
        raise ValueError(f"{unknown[0]}: engine {name_or_url!r} lacks this option; it has {', '.join(taken)}")
    return make(*arguments, **options)
