"""Rows of the wrong position or of the wrong request, or rows used one token late."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from specsim.core._types import Floats, Ints, Tokens
from specsim.mistakes import _reference as ref
from specsim.mistakes._decoding import Decoder, decoder
from specsim.mistakes._laws import Rows, StepLaw, chain_law, of_chain, ratios, stop_law
from specsim.mistakes._reference import mistake, pack_output, verify


def next_rows(rows: Floats) -> Floats:
    """At each position the row after it; the last has none, and keeps its own."""
    return np.concatenate([rows[:, 1:], rows[:, -1:]], axis=1)


@of_chain
def one_late_law(tokens: Sequence[int], p: Rows, q: Rows) -> StepLaw:
    *before, rejected, whole = stop_law(ratios(tokens, p, q))
    return [0 * whole, *before, rejected + whole], [list(row) for row in p]


def neighbours(rows: Any) -> Any:
    """Of each step of the batch, the one before."""
    return np.roll(rows, 1, axis=0)


def at_places_of_target(q: Floats) -> Floats:
    """The row of q at each place of p in one flat array of all rows: one further for each row before."""
    steps, gamma, size = q.shape
    places = np.arange(steps)[:, None] * (gamma + 1) + np.arange(gamma)
    return q.reshape(-1, size)[np.minimum(places, steps * gamma - 1)]


def cartesian_write(draft_tokens: Ints, accepted: Ints, last: Ints) -> Ints:
    """output[:, accepted] = last writes every row's token to all rows: the last row with that count stays."""
    written = np.zeros(draft_tokens.shape[1] + 1, dtype=np.int64)
    written[accepted] = last
    return pack_output(draft_tokens, accepted, written[accepted])


def least_of_call(passed: Any) -> Ints:
    """The least number of accepted tokens of all rows."""
    return least_of(ref.first_failure(passed), passed.shape[1])


def least_of(accepted: Ints, most: int) -> Ints:
    return np.full_like(accepted, accepted.min(initial=most))


def shortest_redrawn(x: Ints, p: Floats, q: Floats, rng: np.random.Generator) -> Ints:
    """All rows stop where the first of them does, and a row whose draft was accepted there draws from p."""
    accepted, u = ref.accept_standard(x, p, q, rng)
    least = least_of(accepted, x.shape[1])
    cut = accepted > least
    return pack_output(x, least, ref.last_token(x, p, np.where(cut[:, None, None], 0.0, q), least, u))


def whole_draft(drafted: Tokens, accepted: int, last: int) -> Tokens:
    """All drafted tokens, the rejected ones included."""
    return (*drafted, last)


def without_last(drafted: Tokens, accepted: int, last: int) -> Tokens:
    """After a draft accepted whole the bonus is missing."""
    return drafted if accepted == len(drafted) > 0 else (*drafted[:accepted], last)


def without_last_drafted(drafted: Tokens, accepted: int, last: int) -> Tokens:
    """After a draft accepted whole its last token, which was never fed to the draft model, is missing."""
    return (*drafted[: min(accepted, max(len(drafted) - 1, 0))], last)


def without_recovered(drafted: Tokens, accepted: int, last: int) -> Tokens:
    """After some, but not all, drafted tokens were accepted the recovered one is dropped."""
    return drafted[:accepted] if 0 < accepted < len(drafted) else (*drafted[:accepted], last)


def overwritten(drafted: Tokens, accepted: int, last: int) -> Tokens:
    """The recovered token takes the place of the last accepted one too."""
    return (
        (*drafted[: accepted - 1], last, last) if 0 < accepted < len(drafted) else (*drafted[:accepted], last)
    )


#: Rows of a block of a call.
BLOCK = 32


MISTAKES = (
    mistake("bonus_row_before", rows=lambda x, p, q: (p[:, [*range(x.shape[1]), -2]], q)),
    mistake("recovers_from_next_row", rows=lambda x, p, q: (next_rows(p), next_rows(q))),
    mistake("residual_next_draft_row", rows=lambda x, p, q: (p, next_rows(q))),
    mistake("residual_first_target_row", rows=lambda x, p, q: (p[:, [0] * x.shape[1] + [-1]], q)),
    mistake(
        "tests_next_row",
        verify=lambda x, p, q, rng: verify(x, p[:, 1:], q, rng, rows=lambda *_: (p, q)),
        law=chain_law(lambda tokens, p, q: ratios(tokens, p[1:], q)),
    ),
    mistake(
        "rejects_one_late",
        count=lambda passed: np.minimum(ref.first_failure(passed) + 1, passed.shape[1]),
        recover=ref.target,
        law=one_late_law,
    ),
    mistake("neighbours_target_rows", verify=partial(verify, rows=lambda x, p, q: (neighbours(p), q))),
    mistake("neighbours_draft_rows", verify=partial(verify, rows=lambda x, p, q: (p, neighbours(q)))),
    mistake("draft_rows_strided", verify=partial(verify, rows=lambda x, p, q: (p, at_places_of_target(q)))),
    mistake("neighbours_token", pack=lambda x, accepted, last: pack_output(x, accepted, neighbours(last))),
    mistake("neighbours_draft", pack=lambda x, accepted, last: pack_output(neighbours(x), accepted, last)),
    mistake("cartesian_write", pack=cartesian_write),
    mistake(
        "unverified_rest",
        passes=lambda u, x, p, q: (
            ref.ratio_test(u, x, p, q) | (np.arange(len(x)) >= max(len(x) // BLOCK * BLOCK, 1))[:, None]
        ),
    ),
    mistake("rows_by_rank", verify=lambda x, p, q, rng: verify(x, p[x[:, 0].argsort(kind="stable")], q, rng)),
    mistake("shortest_of_call", count=least_of_call),
    mistake("shortest_redrawn", verify=shortest_redrawn),
    decoder("keeps_rejected", Decoder(emits=whole_draft, draft_keeps=whole_draft, target_keeps=whole_draft)),
    decoder(
        "drops_recovered",
        Decoder(emits=without_recovered, draft_keeps=without_recovered, target_keeps=without_recovered),
    ),
    decoder("late_rejection", Decoder(late=True)),
    decoder("target_not_rolled_back", Decoder(target_keeps=whole_draft)),
    decoder("bonus_not_processed", Decoder(target_keeps=without_last)),
    decoder("target_one_short", Decoder(target_keeps=without_last_drafted)),
    decoder("draft_not_rolled_back_rescored", Decoder(draft_keeps=whole_draft, rescored=True)),
    decoder("draft_one_short_rescored", Decoder(draft_keeps=without_last_drafted, rescored=True)),
    decoder("text_overwritten", Decoder(emits=overwritten)),
    decoder("repeats_last", Decoder(emits=lambda drafted, accepted, last: (*drafted[:accepted], last, last))),
    decoder("decoder_bonus_from_draft", Decoder(bonus_of_draft=True)),
    decoder(
        "token_after_eos",
        Decoder(ends=lambda step, eos: (step[: step.index(eos) + 2], True) if eos in step else (step, False)),
    ),
    decoder("eos_in_draft_unseen", Decoder(ends=lambda step, eos: (step, step[-1] == eos))),
)
