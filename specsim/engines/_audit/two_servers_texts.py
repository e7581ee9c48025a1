"""Ask two servers for texts, block by block."""

import time
from collections import Counter
from collections.abc import Sequence

import numpy as np

from specsim.core._progress import Progress
from specsim.core._tables import printable
from specsim.core._types import Ints
from specsim.engines._audit.store import Asking, TextStore
from specsim.engines._audit.two_servers_result import ServerSide
from specsim.engines._audit.two_servers_tests import Text
from specsim.engines._clients.texts import FORMS, TextCompletion, TextRequest, TextServer
from specsim.engines._planted.requests import Failure, Sampling

#: The texts of one server in a block, by prompt.
Texts = list[list[TextCompletion]]


class EndedError(Exception):
    """The time is over, or a server does not answer."""


class Side:
    """One server, and what came back from it."""

    def __init__(self, server: TextServer, store: TextStore, deadline: float | None):
        self.server, self.asking = server, Asking(server, store, deadline)
        self.unread: list[Failure] = []
        self.seconds = 0.0

    @property
    def texts(self) -> list[TextCompletion]:
        """All texts, by request and index."""
        return [one for one in self.asking.store.texts() if isinstance(one, TextCompletion)]

    @property
    def failures(self) -> list[Failure]:
        """Requests without a text, and texts in a form that cannot be compared."""
        return [*self.asking.store.failures.values(), *self.unread]

    def record(self, form: str) -> ServerSide:
        drafted, accepted = self._drafts()
        texts, failures = self.texts, self.failures
        return ServerSide(
            url=self.server.url,
            engine=printable(self.server.name),
            version=printable(self.server.version),
            texts=len(texts),
            tokens=sum(len(one.forms.get(form, ())) for one in texts),
            drafted=drafted,
            accepted=accepted,
            failures=dict(sorted(Counter(one.kind for one in failures).items())),
            failure=printable(f"{failures[-1].kind}, {failures[-1].text}") if failures else "",
            seconds=self.seconds,
        )

    def _drafts(self) -> tuple[int | None, int | None]:
        """Drafted and accepted tokens, of the texts where they are reported there, else of the server."""
        told = [
            (a.drafted, a.accepted) for a in self.texts if a.drafted is not None and a.accepted is not None
        ]
        if told:
            return sum(a for a, _ in told), sum(b for _, b in told)
        gained = self.asking.gained()
        return (None, None) if gained is None else (max(0, gained["drafted"]), max(0, gained["accepted"]))


class Serving:
    """The requests to both servers, block by block."""

    def __init__(
        self,
        sides: Sequence[Side],
        prompts: Sequence[str],
        length: int,
        sampling: Sampling,
        rounds: int,
        copies: int,
        root: int,
        progress: Progress | None,
    ):
        self.sides, self.prompts, self.length, self.sampling = sides, prompts, length, sampling
        self.rounds, self.copies, self.root, self.progress = rounds, copies, root, progress
        self.started = time.perf_counter()
        generator = np.random.default_rng(np.random.SeedSequence(root, spawn_key=(0,)))
        size = (len(sides), rounds, len(prompts))
        self.seeds: Ints = generator.choice(2**31 - 1, size=int(np.prod(size)), replace=False).reshape(size)
        self.form, self.interrupted = FORMS[0], False
        self.asked = length * sum(len(side.texts) for side in sides)

    def block(self, start: int, stop: int) -> list[Texts]:
        """Rounds `start` to `stop` of requests after each prompt, to both servers. Raises EndedError."""
        return [self._of_side(i, start, stop) for i in range(len(self.sides))]

    def _of_side(self, i: int, start: int, stop: int) -> Texts:
        side, count = self.sides[i], len(self.prompts)
        requests = [
            TextRequest(
                r * count + p, (), self.length, int(self.seeds[i, r, p]), self.copies, self.sampling, prompt
            )
            for r in range(start, stop)
            for p, prompt in enumerate(self.prompts)
        ]
        began = time.perf_counter()
        try:
            for _ in side.asking.answers(requests):
                self.asked += self.length
                if self.progress is not None:
                    self.progress(self.asked, self.seeds.size * self.copies * self.length)
        finally:
            side.seconds += time.perf_counter() - began
        if side.asking.ended:
            raise EndedError
        found: Texts = [[] for _ in self.prompts]
        for one in side.texts:
            if start * count <= one.number < stop * count:
                found[one.number % count].append(one)
        return found

    def read(self, i: int, texts: Sequence[TextCompletion]) -> list[Text]:
        """The texts of server `i` in the form that is compared; those without it are failures."""
        found = []
        for one in texts:
            if self.form in one.forms:
                found.append(Text(one.forms[self.form], one.finish))
            else:
                missing = Failure(one.number, "garbage", f"{self.form} are missing in some answers")
                self.sides[i].unread.append(missing)
        return found
