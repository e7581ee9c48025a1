"""Compare two servers with weights whose distribution is unknown: do they draw texts from one distribution?

Both servers get the same prompts with different seeds, in blocks that grow by a half. The texts of the first
block fix the tables, and `log_pooled_two_sample_e` tests these on the blocks that follow."""

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specsim.auditing._checks.two_samples import block_ends
from specsim.core._json import printable
from specsim.core._progress import Progress, ShowProgress, shows_progress, told
from specsim.core._provenance import Provenance
from specsim.core._streams import RandomSource, root_of
from specsim.core._types import Ints, check_count, check_seconds, count_of
from specsim.core._verdicts import BUDGET
from specsim.engines._audit import counters, results
from specsim.engines._audit.run import PLAIN, open_store
from specsim.engines._audit.store import Asking, TextStore
from specsim.engines._audit.two_servers_tests import PromptTexts, Text, all_tests
from specsim.engines._clients.http import FORMS, TextCompletion, TextRequest, TextServer, common_form
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
        return [one for one in self.asking.store.texts() if isinstance(one, TextCompletion)]

    @property
    def failures(self) -> list[Failure]:
        """Requests without a text, and texts in a form that cannot be compared."""
        return [*self.asking.store.failures.values(), *self.unread]

    def record(self, form: str) -> results.ServerSide:
        texts, failures = self.texts, self.failures
        drafts = counters.total(texts, self.asking.gained())
        return results.ServerSide(
            url=self.server.url,
            engine=printable(self.server.name),
            version=printable(self.server.version),
            texts=len(texts),
            tokens=sum(len(one.forms.get(form, ())) for one in texts),
            drafted=max(0, drafts.drafted) if drafts else None,
            accepted=max(0, drafts.accepted) if drafts else None,
            failures=dict(sorted(Counter(one.kind for one in failures).items())),
            failure=printable(f"{failures[-1].kind}, {failures[-1].text}") if failures else "",
            seconds=self.seconds,
        )


@dataclass
class Serving:
    """The requests to both servers, block by block."""

    sides: Sequence[Side]
    prompts: Sequence[str]
    length: int
    sampling: Sampling
    rounds: int
    copies: int
    root: int
    progress: Progress
    form: str = FORMS[0]

    def __post_init__(self) -> None:
        generator = np.random.default_rng(np.random.SeedSequence(self.root, spawn_key=(0,)))
        size = (len(self.sides), self.rounds, len(self.prompts))
        self.seeds: Ints = generator.choice(2**31 - 1, size=int(np.prod(size)), replace=False).reshape(size)
        self.asked = self.length * sum(len(side.texts) for side in self.sides)

    def block(self, start: int, stop: int) -> list[Texts]:
        """Rounds `start` to `stop` of requests after each prompt, to both servers. Raises EndedError."""
        count = len(self.prompts)
        found: list[Texts] = [[[] for _ in self.prompts] for _ in self.sides]
        for side, seeds, texts in zip(self.sides, self.seeds.tolist(), found, strict=True):
            requests = [
                TextRequest(r * count + p, (), self.length, seeds[r][p], self.copies, self.sampling, prompt)
                for r in range(start, stop)
                for p, prompt in enumerate(self.prompts)
            ]
            began = time.perf_counter()
            try:
                for _ in side.asking.answers(requests):
                    self.asked += self.length
                    self.progress(self.asked, self.seeds.size * self.copies * self.length)
            finally:
                side.seconds += time.perf_counter() - began
            if side.asking.ended:
                raise EndedError
            for one in side.texts:
                if start * count <= one.number < stop * count:
                    texts[one.number % count].append(one)
        return found

    def read(self, i: int, texts: Sequence[TextCompletion]) -> list[Text]:
        """The texts of server `i` in the form that is compared; those without it are failures."""
        said = f"{self.form} are missing in some answers"
        lacking = [one.number for one in texts if self.form not in one.forms]
        self.sides[i].unread += [Failure(number, "garbage", said) for number in lacking]
        return [Text(one.forms[self.form], one.finish) for one in texts if self.form in one.forms]


#: The blocks of rounds.
BLOCKS = 6
#: The files of texts in the folder of a comparison.
TEXTS = "first.jsonl", "second.jsonl"
#: Tokens of a text: where distributions are compared, and at temperature 0.
LENGTH, GREEDY_LENGTH = 8, 64


@shows_progress("compare", " tokens")
def compare_servers(
    one: str,
    other: str,
    prompts: Sequence[str],
    *,
    tokens: int | str = 200_000,
    length: int | None = None,
    sampling: Sampling = PLAIN,
    texts: int = 1,
    model: str | None = None,
    connections: int = 8,
    seconds: float | None = None,
    out: str | Path | None = None,
    rng: RandomSource = None,
    progress: ShowProgress = None,
) -> results.ServerComparison:
    """Test whether two OpenAI-compatible servers draw texts from the same distribution.

    The distribution need not be known: compare a model with and without speculation, or an old and a new
    version. The probability of a false alarm is at most 1e-6.

    At temperature 0 the texts themselves are compared. They may differ without a mistake, since rounding
    differs between kernels.

    Parameters
    ----------
    one, other : str
        Addresses, such as "http://127.0.0.1:8000/v1".
    prompts : sequence of str
        A few are enough: texts after the same prompt are compared.
    tokens : int or str
        Emitted tokens of both servers together, at least 1. Not used at temperature 0, where each server
        gets each prompt twice.
    length : int, optional
        Tokens of a text, at least 1; by default 8, and 64 at temperature 0.
    sampling : Sampling
        How both servers sample.
    texts : int
        Texts of each request, its `n`, at least 1: more are faster where both servers know `n`. Not used at
        temperature 0.
    model : str, optional
        Name of the model; by default the first that each server lists.
    connections : int
        Requests under way at once.
    seconds : float, optional
        Time limit. What was asked until then is compared.
    out : path, optional
        Folder in which the texts are kept as they arrive, in `first.jsonl` and `second.jsonl`. With texts of
        the same comparison in it, the comparison continues from there.
    rng : int, Generator, SeedSequence or None
        Source of the requests' seeds, all different.
    progress : bool or callable, optional
        A bar by default, as in `specsim.simulate`. A function is called with the numbers of tokens
        asked for so far and planned.

    Returns
    -------
    ServerComparison
        The verdict ("same", "changed", "broken", "inconclusive"; at temperature 0 "texts differ"), and what
        would have been found.

    Raises
    ------
    ValueError, TypeError
        For an address that is not one of HTTP, no prompts, values out of range, or a folder with texts of
        another comparison.

    References
    ----------
    Turner, Ly & Grünwald, "Generic e-variables for exact sequential k-sample tests that allow for optional
    stopping", arXiv 2106.02693.

    Examples
    --------
    >>> compare_servers("http://127.0.0.1:8000", "http://127.0.0.1:8001", [])
    Traceback (most recent call last):
    ...
    ValueError: prompts: the sequence is empty; give at least one text
    """
    tokens = count_of("tokens", tokens)
    if isinstance(prompts, str) or not all(isinstance(prompt, str) for prompt in prompts):
        raise TypeError("prompts: expected a sequence of str")
    if not prompts or not all(prompts):
        raise ValueError(
            f"prompts: {'one is empty' if prompts else 'the sequence is empty'}; give at least one text"
        )
    if seconds is not None:
        check_seconds("seconds", seconds)
    for name in ("bad_words", "grammar"):
        if ids := getattr(sampling, name):
            raise ValueError(f"{name}: {ids} are ids of tokens not known here; leave them out")
    greedy = sampling.temperature == 0.0
    usual = GREEDY_LENGTH if greedy else LENGTH
    length = usual if length is None else check_count("length", length)
    copies = 1 if greedy else check_count("texts", texts)
    rounds = 2 if greedy else -(-tokens // (2 * length * len(prompts) * copies))
    root, deadline = root_of(rng), None if seconds is None else time.perf_counter() + seconds
    more = {"prompts": list(prompts), "length": length, "rounds": rounds, "texts": copies}
    started, interrupted = time.perf_counter(), False
    tests: list[results.TestResult] = []
    with ExitStack() as stack:
        sides = []
        for url, file in zip((one, other), TEXTS, strict=True):
            server = TextServer(url, model=model, connections=connections)
            stack.callback(server.close)
            sides.append(Side(server, open_store(out, file, server, root, sampling, more), deadline))
        run = Serving(sides, prompts, length, sampling, rounds, copies, root, told(progress))
        try:
            if greedy:
                run.block(0, rounds)
            else:
                _compare_blocks(run, tests)
        except KeyboardInterrupt:
            interrupted = True
        except EndedError:
            pass
        by_prompt = _greedy(run) if greedy else []
        records = [side.record(run.form) for side in sides]
    faulty = [
        finding
        for side, name in zip(sides, ("first", "second"), strict=True)
        for finding in results.faults(side.failures, f"requests to the {name} server")
    ]
    rejected = [test for test in tests if test.rejected]
    return results.ServerComparison(
        one=records[0],
        other=records[1],
        prompts=tuple(prompts),
        form=run.form,
        length=length,
        planned=rounds * copies,
        tests=tuple(tests),
        greedy=tuple(by_prompt),
        findings=(*faulty, *results.most_significant("deviation", rejected, "more tests")),
        interrupted=interrupted,
        provenance=Provenance.record(root, 1, time.perf_counter() - started),
    )


def _compare_blocks(run: Serving, tests: list[results.TestResult]) -> None:
    """Put the tests of all blocks that came whole into `tests`, until one of them rejects."""
    prompts: list[PromptTexts] = []
    done = 0
    for until in block_ends(run.rounds, BLOCKS, 1):
        block, done = run.block(done, until), until
        if not prompts:
            if not all(any(side) for side in block):
                return  # a server without any text
            run.form = common_form([one for side in block for texts in side for one in texts])
        sides = [[run.read(i, texts) for texts in side] for i, side in enumerate(block)]
        if not prompts:
            prompts = [PromptTexts([*a, *b], run.length) for a, b in zip(*sides, strict=True)]
        for prompt, a, b in zip(prompts, *sides, strict=True):
            prompt.add(a, b)
        tests[:] = all_tests(prompts, BUDGET)
        if any(test.rejected for test in tests):
            return


def _greedy(run: Serving) -> list[results.GreedyTexts]:
    """Where the texts of each prompt differ, of the prompts to which all four texts came."""
    run.form = common_form([one for side in run.sides for one in side.texts])
    at = [{one.number: one.forms[run.form] for one in side.texts} for side in run.sides]
    count, found = len(run.prompts), []
    for p in range(count):
        four = [side.get(t * count + p) for side in at for t in (0, 1)]
        if any(one is None for one in four):
            continue
        a, again, b, back = (one or () for one in four)
        same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        found.append(results.GreedyTexts(p + 1, None if a == b else same + 1, (a == again, b == back)))
    return found
