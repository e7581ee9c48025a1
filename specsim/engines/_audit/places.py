"""The emitted tokens of many texts as arrays, and what the distribution says of each."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specsim.core._types import Floats, Ints
from specsim.engines._planted.folder import Planted
from specsim.engines._planted.law import log_softmax
from specsim.engines._planted.processing import Seen, processed
from specsim.engines._planted.requests import Completion, Request, Sampling
from specsim.mistakes._rows import Pair

#: Entries of rows that are held at once, 8 bytes each.
ENTRIES = 2**20

#: From contexts [m, k] to rows [m, V] of the target.
Rows = Callable[[Ints], Floats]


@dataclass(frozen=True)
class Places:
    """The emitted tokens that have a distribution, one entry each, in the order of the texts.

    `text` is the text's index, `place` counts from 0 at the first emitted token, `last` says whether the
    text may have no more tokens, `contexts` [n, k] is what the distribution reads, `index` the token's number
    among all emitted ones. Where rows depend on all of a text, its index and the number of its tokens so far
    are the last two columns of `contexts`. A token without a distribution comes after one that is no word;
    `outside` counts the emitted ids that are not in the vocabulary."""

    text: Ints
    place: Ints
    last: NDArray[np.bool_]
    contexts: Ints
    tokens: Ints
    index: Ints
    outside: int = 0

    def __len__(self) -> int:
        return len(self.tokens)

    def chosen(self, kept: NDArray[Any] | slice, outside: int = 0) -> "Places":
        names = "text", "place", "last", "contexts", "tokens", "index"
        return replace(self, outside=outside, **{name: getattr(self, name)[kept] for name in names})


class Answered(NamedTuple):
    """Texts of a planted pair, and the requests that they answer, by number."""

    planted: Planted
    requests: Mapping[int, Request]
    texts: Sequence[Completion]

    def places(self, every: bool = False) -> Places:
        """The emitted tokens; those without a distribution too if `every` one is asked for."""
        law, (_, requests, texts) = self.planted.target, self
        reads = any(one.sampling.reads_texts for one in requests.values())
        contexts = [np.zeros((0, len(law.sizes) + 2 * reads), dtype=np.int64)]
        tokens = [np.zeros(0, dtype=np.int64)]
        for i, one in enumerate(texts):
            prompt = requests[one.number].prompt
            tokens.append(np.array(one.tokens, dtype=np.int64))
            whole = np.concatenate([prompt, tokens[-1].clip(0, law.vocab_size - 1)])
            read = law.contexts(whole, len(prompt))
            so_far = np.arange(len(prompt), len(whole))
            contexts.append(np.column_stack([read, np.full(len(read), i), so_far]) if reads else read)
        lengths = np.array([len(one.tokens) for one in texts], dtype=np.int64)
        emitted, text = np.concatenate(tokens), np.repeat(np.arange(len(texts)), lengths)
        index = np.arange(len(emitted))
        most = np.array([requests[one.number].max_tokens for one in texts], dtype=np.int64)
        place = index - (np.cumsum(lengths) - lengths)[text]
        found = Places(text, place, place == most[text] - 1, np.concatenate(contexts), emitted, index)
        known = (emitted >= 0) & (emitted < law.vocab_size)
        words = (found.contexts[:, : len(law.offsets)] < law.words).all(axis=1)
        return found if every else found.chosen(known & words, int((~known).sum()))

    def padded(self) -> tuple[Ints, Ints]:
        """The tokens of prompts and texts [T, W], -1 after their ends, and the lengths of the prompts [T]."""
        prompts = [self.requests[one.number].prompt for one in self.texts]
        whole = [[*prompt, *one.tokens] for prompt, one in zip(prompts, self.texts, strict=True)]
        found = np.full((len(whole), max(map(len, whole), default=0)), -1, dtype=np.int64)
        for row, tokens in zip(found, whole, strict=True):
            row[: len(tokens)] = tokens
        return found, np.array([*map(len, prompts)], dtype=np.int64)


@dataclass(frozen=True)
class Masses:
    """What the distribution says of each place.

    `mass` is the probability of the emitted token. `u` has, for each order of the tokens, the randomised
    probability integral transform: independent and uniform on [0, 1) if the tokens follow the distribution.
    `overlap` is Σ min(p, q), and `accepted` min(p, q) / p of the emitted token: the probability that the
    standard rule accepted it, if it tested a draft there."""

    mass: Floats
    u: dict[str, Floats]
    overlap: Floats
    accepted: Floats


def masses_of(places: Places, rows: Callable[[Ints], Pair], rng: np.random.Generator) -> Masses:
    """`Masses` under the rows of the target, with tokens ordered by p/q, by p and by id."""
    n = len(places)
    mass, overlap, accepted = np.zeros(n), np.zeros(n), np.zeros(n)
    u = {order: np.zeros(n) for order in ("p/q", "p", "id")}
    noise = rng.random(n)
    width = rows(places.contexts[:1]).p.shape[1] if n else 1
    for contexts, at, row in by_context(places.contexts, width):
        here = rows(contexts)
        p, q = here.p[row], here.q[row]
        tokens, each = places.tokens[at], np.arange(len(at))
        mass[at] = p[each, tokens]
        overlap[at] = np.minimum(p, q).sum(axis=1)
        own_p, own_q = mass[at], q[each, tokens]
        accepted[at] = np.minimum(own_p, own_q) / np.where(own_p > 0, own_p, 1.0)
        # in single precision, as the last bits of equal ratios differ from machine to machine
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            ratio = np.where(p > 0, p / q, 0.0).astype(np.float32)
        ids = np.broadcast_to(np.arange(p.shape[1], dtype=float), p.shape)
        scores: dict[str, NDArray[np.floating[Any]]] = {"p/q": ratio, "p": p, "id": ids}
        for order, score in scores.items():
            own = score[each, tokens][:, None]
            below = (p * (score < own)).sum(axis=1)
            tied = (p * (score == own)).sum(axis=1)
            u[order][at] = np.minimum(below + noise[at] * tied, np.nextafter(1.0, 0.0))
    return Masses(mass, u, overlap, accepted)


def mass_under(contexts: Ints, tokens: Ints, rows: Rows, width: int) -> Floats:
    """The probability of each of `tokens` [n] after `contexts` [n, k] under rows of `width` tokens."""
    mass = np.zeros(len(tokens))
    for distinct, at, row in by_context(contexts, width):
        mass[at] = rows(distinct)[row, tokens[at]]
    return mass


def by_context(contexts: Ints, width: int) -> Iterator[tuple[Ints, Ints, Ints]]:
    """`contexts` [n, k] in pieces so small that each can have a row of `width` tokens: the distinct contexts
    of a piece [m, k], the indices of all in it, and which of the m each is."""
    distinct, which = distinct_contexts(contexts)
    order, most = np.argsort(which, kind="stable"), max(1, ENTRIES // width)
    for start in range(0, len(order), most):
        at = order[start : start + most]
        low, high = int(which[at[0]]), int(which[at[-1]]) + 1
        yield distinct[low:high], at, which[at] - low


def distinct_contexts(contexts: Ints) -> tuple[Ints, Ints]:
    """The distinct rows of `contexts` [n, k], and the index of each row among them [n]."""
    if contexts.shape[1] == 0:
        return contexts[:1], np.zeros(len(contexts), dtype=np.int64)
    sizes = contexts.max(axis=0, initial=0) + 1
    if np.prod(sizes.astype(float)) < 2**62:
        codes: NDArray[Any] = np.ravel_multi_index(tuple(contexts.T), tuple(sizes))
    else:  # too large for integers, but the rows themselves have the same order
        codes = np.ascontiguousarray(contexts).view([("", contexts.dtype)] * contexts.shape[1]).reshape(-1)
    _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    return contexts[first], which.reshape(-1)


# The rows of a target and its draft in the contexts of a text.


@dataclass(frozen=True)
class Given:
    """The rows [N, V] of target and draft in some contexts [N, k], before processing and after it in `order`.

    `texts` are the texts, with the lengths of their prompts, if contexts have the index of a text and a place
    in it. Each is made when it is first asked for, and then shared by all that ask."""

    planted: Planted
    sampling: Sampling
    order: str
    contexts: Ints
    texts: tuple[Ints, Ints] | None = None

    @cached_property
    def _scores(self) -> Floats:
        return self.planted.target.scores(self.contexts[:, : len(self.planted.target.sizes)])

    @cached_property
    def _draft_scores(self) -> Floats:
        return self.planted.draft.scores(self.contexts[:, : len(self.planted.target.sizes)])

    @cached_property
    def _seen(self) -> Seen | None:
        if self.texts is None or not self.sampling.reads_texts:
            return None
        tokens, prompts = self.texts
        last = self.planted.target.vocab_size - 1
        return Seen(tokens.clip(0, last), prompts, self.contexts[:, -2], self.contexts[:, -1])

    @cached_property
    def raw(self) -> Pair:
        """p and q before their processing."""
        return Pair(np.exp(log_softmax(self._scores)), np.exp(log_softmax(self._draft_scores)))

    @cached_property
    def p(self) -> Floats:
        return self.changed()

    @cached_property
    def q(self) -> Floats:
        return processed(self._draft_scores, self.sampling, self.order, self._seen)

    @cached_property
    def rows(self) -> Pair:
        return Pair(self.p, self.q)

    def nudged(self, order: str, by: float) -> Floats:
        """The target's rows where equally probable tokens, and the ends of cuts, are up to `by` apart."""
        apart = np.linspace(0.0, by, self._scores.shape[1])
        acting = self.sampling.acting & {"top_p", "min_p"}  # the others may be left to the checkpoint
        cuts = {name: getattr(self.sampling, name) * (1.0 + by) for name in acting}
        sampling = replace(self.sampling, **{name: min(1.0, value) for name, value in cuts.items()})
        return processed(self._scores + apart, sampling, order, self._seen)

    def changed(self, order: str | None = None, **parameters: Any) -> Floats:
        """The target's rows, processed in another order or with other parameters."""
        return processed(self._scores, replace(self.sampling, **parameters), order or self.order, self._seen)
