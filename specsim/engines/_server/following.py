"""What a wrong engine would have read while it wrote given texts.

The server decodes the texts again, and each emitted token is that of the text. Whether it was an accepted
draft is drawn, given the token: with probability min(p, q) / p. Drafts after a rejection are drawn from q."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from specsim.core._types import Ints
from specsim.core.distributions import normalise
from specsim.engines._planted.folder import Planted
from specsim.engines._planted.requests import Completion, Request
from specsim.engines._server.decoding import Decoder
from specsim.engines._server.step import Step
from specsim.models._drafts.sampling import draw_siblings


def contexts_read(
    planted: Planted,
    requests: Mapping[int, Request],
    texts: Sequence[Completion],
    mistake: str,
    gamma: int,
    right: Ints,
    times: int,
) -> Ints:
    """The contexts [times, n, k] that the target reads for each token of `texts`, in their order, under a
    mistake, each time with other drafts. They are `right` [n, k] in texts with tokens that never come."""
    follower = _Follower(planted, gamma=gamma, mistake=mistake, seed=0)
    lengths = np.tile([len(one.tokens) for one in texts], times)
    follower.read, follower.starts = np.tile(right, (times, 1)), np.cumsum(lengths) - lengths
    tokens = np.concatenate([np.array(one.tokens, dtype=np.int64) for one in texts])
    follower.tokens, follower.rng = np.tile(tokens, times), np.random.default_rng(0)
    for which in range(times):
        for i, one in enumerate(texts):
            if one.tokens and max(one.tokens) < planted.target.words and min(one.tokens) >= 0:
                asked, number = requests[one.number], which * len(texts) + i
                sampling = replace(asked.sampling, stop=(), logprobs=None)
                follower.add(
                    replace(asked, number=number, n=1, max_tokens=len(one.tokens), sampling=sampling)
                )
    while follower.busy:
        follower.step()
    return follower.read.reshape(times, *right.shape)


class _Follower(Decoder):
    """Decodes the texts with the numbers of their requests, and keeps what is read."""

    read: Ints
    starts: Ints
    tokens: Ints
    rng: np.random.Generator

    def _draft(self, step: Step) -> None:
        run, target = step.run, self.pair.target
        at = self.starts[[text.request.number for text in run.texts]] + run.count
        most = np.array([text.request.max_tokens for text in run.texts]) - run.count
        going, step.accepted[:], step.tokens[:] = np.ones(step.size, dtype=bool), 0, -1
        for i in range(step.gamma + 1):
            contexts = self._contexts(target, run, i, 1)[:, 0]
            here = np.flatnonzero(going & (i < most))
            token = np.zeros(step.size, dtype=np.int64)
            token[here] = self.tokens[at[here] + i]
            self.read[at[here] + i] = contexts[here]
            step.tokens[i, here] = token[here]
            if i == step.gamma:
                break
            p = step.process(target.scores(contexts)[:, None], first=i)[:, 0]
            q = self._q(step, step.draft_rows(i, 1), i)
            excess = np.maximum(q - p, 0.0)
            own_p, own_q = p[step.every, token], q[step.every, token]
            u = self.rng.random((2, step.size))
            some = np.asarray(excess.any(axis=1))
            accepted = (u[0] * own_p < own_q) | ~some
            rows = np.where((going & ~accepted)[:, None], normalise(excess + ~some[:, None]), q)
            going &= accepted & (i < most)
            drawn = draw_siblings("sampled", np.ascontiguousarray(rows), u[1:])[0]
            step.drafted[:, i] = np.where(going, token, drawn)
            run.seen[step.every, run.length + i] = step.drafted[:, i]
            step.accepted += going

    def _verify_and_emit(self, step: Step) -> None:
        step.raw_p, step.counted_accepted[:] = np.empty((step.size, 0)), step.accepted
        self._settle(step)
