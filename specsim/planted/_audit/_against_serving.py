"""Ask two servers for texts, block by block."""

import time
from collections.abc import Mapping, Sequence

import numpy as np

from specsim.core._types import Ints
from specsim.planted._audit._against_results import ServerSide
from specsim.planted._audit._against_tables import Text
from specsim.planted._audit._run import HOPELESS, Progress
from specsim.planted._engines._requests import Failure, Sampling
from specsim.planted._engines._texts import FORMS, TextCompletion, TextRequest, TextServer

#: The texts of one server in a block, by prompt.
Texts = list[list[TextCompletion]]


class EndedError(Exception):
    """The time is over, or a server does not answer."""


class Side:
    """One server, and what came back from it."""

    def __init__(self, server: TextServer):
        self.server = server
        self.texts: list[TextCompletion] = []
        self.failures: dict[str, list[str]] = {}
        self.last = ""
        self.in_a_row = 0
        self.seconds = 0.0
        self.before = server.counters()

    def failed(self, failure: Failure) -> None:
        self.last = f"{failure.kind}, {failure.text}"
        self.failures.setdefault(failure.kind, []).append(failure.text)

    def record(self, form: str) -> ServerSide:
        drafted, accepted = self._drafts()
        return ServerSide(
            url=self.server.url,
            engine=_printable(self.server.name),
            version=_printable(self.server.version),
            texts=len(self.texts),
            tokens=sum(len(one.forms.get(form, ())) for one in self.texts),
            drafted=drafted,
            accepted=accepted,
            failures={kind: len(texts) for kind, texts in sorted(self.failures.items())},
            failure=_printable(self.last),
            seconds=self.seconds,
        )

    def _drafts(self) -> tuple[int | None, int | None]:
        """Drafted and accepted tokens, of the texts where they are reported there, else of the server."""
        told = [
            (a.drafted, a.accepted) for a in self.texts if a.drafted is not None and a.accepted is not None
        ]
        if told:
            return sum(a for a, _ in told), sum(b for _, b in told)
        after = self.server.counters()
        if self.before is None or after is None:
            return None, None
        return _gained(self.before, after, "drafted"), _gained(self.before, after, "accepted")


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
        seconds: float | None,
        progress: Progress | None,
    ):
        self.sides, self.prompts, self.length, self.sampling = sides, prompts, length, sampling
        self.rounds, self.copies, self.root, self.progress = rounds, copies, root, progress
        self.started, self.limit = time.perf_counter(), seconds
        generator = np.random.default_rng(np.random.SeedSequence(root, spawn_key=(0,)))
        size = (len(sides), rounds, len(prompts))
        self.seeds: Ints = generator.choice(2**31 - 1, size=int(np.prod(size)), replace=False).reshape(size)
        self.form, self.interrupted, self.asked = FORMS[0], False, 0

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
        began, found = time.perf_counter(), []
        answers = side.server.complete(requests)
        try:
            for answer in answers:
                if isinstance(answer, TextCompletion):
                    found.append(answer)
                    side.in_a_row = 0
                elif isinstance(answer, Failure):
                    side.failed(answer)
                    side.in_a_row += 1
                self._advance(side)
        finally:
            side.texts += found
            side.seconds += time.perf_counter() - began
        found.sort(key=lambda one: (one.number, one.index))
        return [[one for one in found if one.number % count == p] for p in range(count)]

    def _advance(self, side: Side) -> None:
        """Note a text or a failure. Raises EndedError if no other is to be waited for."""
        self.asked += self.length
        if self.progress is not None:
            self.progress(self.asked, self.seeds.size * self.copies * self.length)
        late = self.limit is not None and time.perf_counter() - self.started > self.limit
        if late or side.in_a_row >= HOPELESS:
            raise EndedError

    def read(self, i: int, texts: Sequence[TextCompletion]) -> list[Text]:
        """The texts of server `i` in the form that is compared; those without it are failures."""
        found = []
        for one in texts:
            if self.form in one.forms:
                found.append(Text(one.forms[self.form], one.finish))
            else:
                self.sides[i].failed(
                    Failure(one.number, "garbage", f"{self.form} are missing in some answers")
                )
        return found


def _gained(before: Mapping[str, int], after: Mapping[str, int], name: str) -> int:
    return max(0, after[name] - before[name])


def _printable(text: str) -> str:
    """What a server says of itself, in characters that can be printed."""
    return "".join(c if c.isprintable() else " " for c in text)[:300]
