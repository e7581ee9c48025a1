"""The decoder of specsim as an engine: the reference, and with a mistake the control."""

from collections.abc import Iterator, Sequence
from typing import Any

from specsim.core._provenance import specsim_version
from specsim.core._streams import RandomSource
from specsim.engines._planted.requests import Completion, Failure, Request
from specsim.engines._planted.served_pair import Pair
from specsim.engines._server.decoding import Decoder


class LocalEngine:
    """Decodes in this process. Parameters and errors are those of `Decoder`."""

    name = "specsim"

    def __init__(
        self,
        pair: Pair,
        *,
        speculative: bool = True,
        rule: str = "standard",
        gamma: int = 4,
        mistake: str | None = None,
        seed: RandomSource = None,
    ):
        self._decoder = Decoder(
            pair, rule=rule, gamma=gamma, mistake=mistake, plain=not speculative, seed=seed
        )
        self.version = specsim_version()

    def describe(self) -> dict[str, Any]:
        return {"engine": self.name, "version": self.version, **self._decoder.describe()}

    def complete(self, requests: Sequence[Request]) -> Iterator[Completion | Failure]:
        for request in requests:
            try:
                self._decoder.add(request)
            except ValueError as error:
                yield Failure(request.number, "refused", str(error))
        try:
            while self._decoder.busy:
                yield from self._decoder.step()
        finally:
            self._decoder.clear()  # whoever reads this may have stopped reading

    def counters(self) -> dict[str, int] | None:
        return None if self._decoder.plain else dict(self._decoder.totals)

    def close(self) -> None:
        """Nothing is held."""
