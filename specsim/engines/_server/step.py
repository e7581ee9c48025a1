"""The state of texts that are decoded together, and one step of them, whose parts a mistake can change."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.core._streams import PER_SLOT, WORD, Purpose, philox
from specsim.core._types import Floats, Ints, TokenArray
from specsim.core.distributions import normalise
from specsim.engines._planted.law import Memory, log_softmax
from specsim.engines._planted.processing import FIRST_ORDER, Seen, processed
from specsim.engines._planted.requests import Request, Sampling
from specsim.models._drafts.sampling import draw_siblings

#: A change of the sampling parameters of a text.
Change = Callable[[Sampling], Sampling]


@dataclass
class Text:
    """One text of a request, while it grows; `top` has a list for each token if lists are asked for."""

    request: Request
    index: int
    started: float
    top: list[dict[int, float]] = field(default_factory=list)

    @cached_property
    def sampling(self) -> Sampling:
        """What of the request's sampling changes rows."""
        return replace(self.request.sampling.filled, stop=(), logprobs=None)


@dataclass
class Running:
    """B texts that are decoded together.

    `seen` [B, W] holds the tokens that both models have read, `length` [B] their number. `out` [B, M] holds
    the tokens that are returned with their log-probabilities, `count` [B] their number. Of models with a
    state, `state` [B, 2, slots] has those of target and draft after all tokens but the newest, and `window`
    [B, 2] the token that each has seen last."""

    texts: list[Text]
    seen: Ints
    length: Ints
    out: Ints
    logprobs: Floats
    count: Ints
    keys: NDArray[np.uint64]
    steps: Ints
    drafted: Ints
    accepted: Ints
    state: Ints
    window: Ints

    @classmethod
    def of(
        cls, texts: list[Text], keys: list[tuple[int, int]], gamma: int, memory: Memory | None
    ) -> "Running":
        """Texts that begin, with room for one step more than they ask for."""
        n, slots, empty = len(texts), memory.slots if memory else 0, memory.words if memory else 0
        longest = max((text.request.max_tokens for text in texts), default=0) + gamma + 1
        length = np.array([len(text.request.prompt) for text in texts], dtype=np.int64)
        seen = np.zeros((n, length.max(initial=0) + longest), dtype=np.int64)
        for row, text in zip(seen, texts, strict=True):
            row[: len(text.request.prompt)] = text.request.prompt
        out, logprobs = np.zeros((n, longest), dtype=np.int64), np.zeros((n, longest))
        words = np.array(keys, dtype=np.uint64).reshape(-1, 2)
        count, steps, drafted, accepted = np.zeros((4, n), dtype=np.int64)
        state, window = np.full((n, 2, slots), empty), np.full((n, 2), empty)
        made = cls(texts, seen, length, out, logprobs, count, words, steps, drafted, accepted, state, window)
        if memory:
            for which in (0, 1):
                made.advance(memory, which, seen, length - 1)
        return made

    def advance(self, memory: Memory, which: int, tokens: Ints, numbers: Ints) -> None:
        """Let the states of the target (0) or the draft (1) see the first `numbers` [B] of tokens [B, n]."""
        for i in range(int(numbers.max(initial=0))):
            where = numbers > i
            memory.update(self.state[:, which], self.window[:, which], tokens[:, i], where)
            self.window[where, which] = tokens[where, i]

    def take(self, kept: NDArray[np.bool_]) -> "Running":
        texts = [text for text, keep in zip(self.texts, kept, strict=True) if keep]
        return Running(texts, *(array[kept] for array in self._arrays()))

    def join(self, other: "Running") -> "Running":
        if not other.texts:
            return self
        pairs = zip(self._arrays(), other._arrays(), strict=True)
        return Running(self.texts + other.texts, *(_stack(a, b) for a, b in pairs))

    def _arrays(self) -> list[Any]:
        return [getattr(self, one.name) for one in fields(self)[1:]]  # all but the texts


def _stack(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """The rows of both, filled up with zeros on the right."""
    if a.ndim == 1 or a.shape[1] == b.shape[1]:
        return np.concatenate([a, b])
    width = max(a.shape[1], b.shape[1])
    return np.concatenate([np.pad(x, ((0, 0), (0, width - x.shape[1]))) for x in (a, b)])


def text_uniforms(keys: NDArray[np.uint64], purpose: Purpose, steps: Ints, count: int) -> Floats:
    """`count` uniforms for step `steps[b]` of each text, [count, B]: those of `specsim.core._streams`."""
    slots = np.arange(-(-count // PER_SLOT), dtype=np.uint64)[:, None]
    number = steps.astype(np.uint64)
    counter: Any = (slots, number & np.uint64(WORD), number >> np.uint64(32), np.uint64(purpose))
    words: Any = philox(counter, (keys[:, 0], keys[:, 1]))  # type: ignore[arg-type]  # works on arrays too
    parts = [(words[part] << 10 | words[3] >> 10 * part & 1023) * 2.0**-42 for part in range(PER_SLOT)]
    return np.stack(parts, axis=1).reshape(-1, len(steps))[:count]


@dataclass
class Step:
    """One step of B texts. Drafted tokens int64 [B, γ] with rows q [B, m, V], target rows p [B, γ+1, V];
    `raw_q` and `raw_p` are the logits before they were processed. `tokens` int32 [γ+1, B] come out;
    `accepted` [B] of them were drafted.

    `target_rows(i, m)` and `draft_rows(i, m)` are the logits of places i to i + m - 1 of the step."""

    run: Running
    gamma: int
    draft_u: Floats
    verify_u: Floats
    target_rows: Callable[[int, int], Floats]
    draft_rows: Callable[[int, int], Floats]
    raw_q: Floats
    q: Floats
    raw_p: Floats = field(init=False)
    p: Floats = field(init=False)

    def __post_init__(self) -> None:
        size, gamma = self.size, self.gamma
        self.drafted: Ints = np.empty((size, gamma), dtype=np.int64)
        self.tokens: TokenArray = np.empty((gamma + 1, size), dtype=np.int32)
        self.accepted: Ints = np.empty(size, dtype=np.int64)
        self.logprobs: Floats = np.empty((size, gamma + 1))
        self.counted_drafted, self.counted_accepted = np.full(size, gamma), np.empty(size, dtype=np.int64)

    @property
    def size(self) -> int:
        return len(self.run.texts)

    @property
    def every(self) -> Ints:
        return np.arange(self.size)

    @property
    def rejected(self) -> NDArray[np.bool_]:
        """Whether a drafted token of each text was rejected, [B]; without a draft the token is a bonus."""
        return self.accepted < self.gamma

    @cached_property
    def groups(self) -> dict[Sampling, list[int]]:
        found: dict[Sampling, list[int]] = {}
        for b, text in enumerate(self.run.texts):
            found.setdefault(text.sampling, []).append(b)
        return found

    def process(
        self,
        scores: Floats,
        change: Change | None = None,
        first: int = 0,
        drafts: bool = True,
        order: str = FIRST_ORDER,
    ) -> Floats:
        """The rows of logits `scores` [B, m, V] of the places from `first` on, each processed as its request
        asks, after `change` of its parameters. Without `drafts` none of this step counts as seen."""
        made, count = np.empty_like(scores), scores.shape[1]
        prompts = np.array([len(text.request.prompt) for text in self.run.texts])
        for sampling, members in self.groups.items():
            text = np.repeat(members, count)
            length = self.run.length[text] + drafts * np.tile(np.arange(first, first + count), len(members))
            seen = Seen(self.run.seen, prompts, text, length)
            asked = change(sampling) if change else sampling
            flat = processed(scores[members].reshape(len(text), -1), asked, order, seen)
            made[members] = flat.reshape(len(members), count, -1)
        return made

    def logs(self, scores: Floats) -> Floats:
        """The log-probabilities [B, m] that logits `scores` [B, m, V] give to the first m tokens."""
        tokens = self.tokens.T[:, : scores.shape[1], None].clip(min=0).astype(np.int64)
        found = np.take_along_axis(log_softmax(scores), tokens, axis=2)[..., 0]
        return np.maximum(found, -1e4)  # a mistake can emit what is impossible

    def last(self, rows: Floats) -> Floats:
        """The row [B, V] of `rows` [B, γ+1, V] for the last token of each text."""
        return rows[self.every, self.accepted]

    def residual(self, p: Floats) -> Floats:
        """(p - q)₊ at each text's rejected place, normalised, from rows p [B, γ+1, V]; p without mass."""
        row = self.last(p)
        if not self.gamma:
            return row
        q = self.q[self.every, np.minimum(self.accepted, self.q.shape[1] - 1)]
        excess = np.maximum(row - q, 0.0)
        return normalise(np.where((self.rejected & excess.any(axis=1))[:, None], excess, row))

    def redraw(self, where: NDArray[np.bool_], rows: Floats) -> None:
        """Draw the last token of the texts `where` [B] again, from `rows` [B, V], with new numbers."""
        u = text_uniforms(self.run.keys, Purpose.COUNT, self.run.steps, 1)
        self.set_last(where, draw_siblings("sampled", np.ascontiguousarray(rows), u)[0])

    def set_last(self, where: NDArray[np.bool_], tokens: Ints) -> None:
        self.tokens[self.accepted[where], self.every[where]] = tokens[where]
