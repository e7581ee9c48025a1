"""Several candidates or draws where the rule allows for one, and drafts cut short by what was drawn.

The rest of a cut draft is verified as if nothing had been looked at."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from specsim.core._types import Floats, Ints
from specsim.core.distributions import top_p
from specsim.mistakes import _laws as laws
from specsim.mistakes import _reference as ref
from specsim.mistakes._decoding import Decoder, decoder
from specsim.rules._chain.one_hot import recovered as without_drafted


def cut(
    sizes: Callable[..., Ints], x: Ints, p: Floats, q: Floats, rng: np.random.Generator, threshold: float
) -> Ints:
    """Standard verification of the first sizes(x, q, threshold) tokens, then a bonus from the row there."""
    verified = sizes(x, q, threshold)
    passed, u = ref.accept_standard(x, p, q, rng)
    accepted = np.minimum(passed, verified)
    last, bonus = ref.last_token(x, p, q, accepted, u), ref.draw(p[np.arange(len(p)), accepted], u)
    return ref.pack_output(x, accepted, np.where(passed >= verified, bonus, last))


def shared_budget(x: Ints, q: Floats, threshold: float) -> Ints:
    """The tokens of each row before the first whose q is below a quantile of those of all rows."""
    chances = ref.at(q, x)
    return ref.first_failure(chances >= (np.quantile(chances, threshold) if chances.size else 0.0))


def cut_law(size: Callable[..., int]) -> Callable[..., laws.StepLaw]:
    """The law of the same; size(tokens, q, threshold) drafted tokens are verified."""

    @laws.of_chain
    def step(tokens: Sequence[int], p: laws.Rows, q: laws.Rows, threshold: Any) -> laws.StepLaw:
        n = size(tokens, q, threshold)
        stop = [*laws.stop_law(laws.ratios(tokens[:n], p, q)), *[0] * (len(tokens) - n)]
        return stop, [*laws.follow_rows(tokens, p[: n + 1], q[:n]), *p[n + 1 :]]

    return step


def until(tokens: Sequence[int], q: laws.Rows, threshold: Any) -> int:
    return next((i for i, x in enumerate(tokens) if q[i][x] < threshold), len(tokens))


MISTAKES = (
    ref.mistake(
        "any_draw_matches",
        passes=lambda u, x, p, q, draws: u < 1.0 - (1.0 - ref.at(p, x)) ** draws,
        recover=ref.mask_drafted,
        law=laws.law(
            lambda p, q, x, draws: 1 - (1 - p[x]) ** int(draws),
            lambda p, q, x, draws: without_drafted(p, q, x),
        ),
    ),
    ref.mistake(
        "match_redrawn",
        passes=lambda u, x, p, q: u < ref.at(p, x),
        recover=ref.target,
        law=laws.law(lambda p, q, x: p[x], lambda p, q, x: p),
    ),
    ref.mistake(
        "nucleus_match",
        passes=lambda u, x, p, q, mass: u < ref.at(top_p(p, mass), x),
        recover=ref.target,
        law=laws.law(lambda p, q, x, mass: laws.by_rows(top_p)(p, mass=mass)[x], lambda p, q, x, mass: p),
    ),
    decoder("longest_of_tries", Decoder(tries=lambda tries: int(tries))),
    ref.mistake(
        "discards_unlikely_last",
        verify=partial(cut, lambda x, q, threshold: x.shape[1] - (ref.at(q, x)[:, -1] < threshold)),
        law=cut_law(lambda tokens, q, threshold: len(tokens) - (q[len(tokens) - 1][tokens[-1]] < threshold)),
    ),
    ref.mistake(
        "cuts_at_unlikely",
        verify=partial(cut, lambda x, q, threshold: ref.first_failure(ref.at(q, x) >= threshold)),
        law=cut_law(until),
    ),
    ref.mistake("batch_cuts_at_unlikely", verify=partial(cut, shared_budget)),
    decoder(
        "cuts_at_eos",
        Decoder(cut=lambda drafted, eos: drafted.index(eos) if eos in drafted else len(drafted)),
    ),
)
