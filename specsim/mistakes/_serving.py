"""Mistakes of a serving engine around its verification, made by `specsim serve` or named by an audit.

They are in how each path processes rows, in what caches hold after a step, in which text's rows and random
numbers are taken, and in what is reported. Each was seen in an engine, or is a small step from one that
was."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from specsim.core._parameters import Parameter
from specsim.mistakes._base import Mistake

_VALUE = (Parameter("temperature", 0.7, 0.0, np.inf, "of the rows", above_low=True),)


def _of_processing() -> Iterator[Mistake]:
    """One mistake for each parameter of sampling and each path that may lack it."""
    processing = partial(Mistake, family="uneven processing")
    for word in ("temperature", "top-k", "top-p", "min-p"):
        name = word.replace("-", "_")
        yield processing(f"{name}_ignored", mechanism=f"Rows are processed without {word}.")
        yield processing(
            f"{name}_not_in_test",
            mechanism=f"Drafts are tested with p without {word}; recovered tokens are right.",
        )
        if word == "temperature":  # of verifiers: residual_temperature, bonus_temperature
            continue
        yield processing(f"{name}_not_in_recovered", mechanism=f"The residual is taken of p without {word}.")
        yield processing(f"{name}_not_in_bonus", mechanism=f"The bonus is drawn without {word}.")
    yield processing("other_temperature", mechanism="Rows are at another temperature.", parameters=_VALUE)


#: Families, with the name and the sentence of each mistake.
_TEXTS = {
    "uneven processing": (
        ("temperature_twice", "The target's rows are divided by the temperature twice."),
        ("truncation_first", "The target's rows are truncated before the temperature, not after it."),
        ("other_order", "The target's rows are processed in another order."),
        ("raw_p_in_test", "Drafts are tested with p before its processing; recovered tokens are right."),
        ("raw_q_in_test", "Drafts of processed rows are tested with q before its processing."),
        ("raw_drafts", "Drafts are drawn from q before its processing, and tested with q after it."),
        ("greedy_after_nothing", "Where no draft is accepted, the argmax of p comes out."),
        ("greedy_every_fourth", "Every fourth text of a batch is decoded greedily."),
        ("greedy_first_token", "The token after the prompt is the argmax of p."),
    ),
    "wrong residual": (
        ("resamples_draft", "A rejected token is replaced by a sample of q instead of the residual."),
        ("emits_residual", "Tokens are drawn from the residual without a rejection."),
    ),
    "wrong row or position": (
        ("bonus_from_draft", "The bonus is drawn from the draft."),
        ("last_of_text_from_draft", "The last token before max_tokens is drawn from the draft."),
        ("recovered_not_cached", "The cache has the rejected token in the place of the recovered one."),
        ("accepted_lost", "After a rejection the cache loses the last accepted token."),
        ("bonus_cached_twice", "After a draft accepted whole the cache has the bonus twice."),
        ("newest_token_unread", "Rows are those before the newest token."),
        ("wrong_token_in_cache", "A token that is read is not that of the text, as after a wrong rollback."),
        ("wrong_page", "Tokens of every second page are read from the page before."),
        ("page_offset", "Tokens are read a page too early."),
        ("unshifted_padding", "Texts are read as if all prompts of a batch had one length."),
        ("first_token_of_next", "A prompt begins with the first token of another request's prompt."),
        ("prompt_of_next", "Every fourth text follows the prompt of another request."),
        ("rows_of_next", "Texts are verified against the rows of the next text in the batch."),
    ),
    "reused randomness": (
        ("seed_ignored", "The seed of a request is ignored."),
        ("one_seed", "All requests have the same random numbers."),
        ("copies_alike", "The n texts of a request have the same random numbers."),
        ("draft_numbers_in_check", "A draft is checked with the uniform that drew it."),
    ),
    "precision and edges": (("coarse_uniforms", "Uniforms of the verification have 3 bits."),),
    "what is reported": (
        ("logprobs_one_late", "Log-probabilities within a step are those of the place before."),
        ("logprobs_of_draft", "Log-probabilities are those of the draft."),
        ("logprobs_zero_if_accepted", "Log-probabilities of accepted tokens are 0."),
        ("logprobs_zero", "All log-probabilities are 0."),
        ("logprobs_mixed", "Log-probabilities of accepted tokens are those of processed rows."),
        ("bonus_counted", "The counter of accepted tokens counts the last token of each step."),
        ("tested_counted", "The counter of drafted tokens leaves out those after a rejection."),
        ("stop_cuts_more", "A text that a stop string ends loses one token too many."),
    ),
}

MISTAKES = (
    *_of_processing(),
    *(Mistake(name, family, says) for family, texts in _TEXTS.items() for name, says in texts),
)
