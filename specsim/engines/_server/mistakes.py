"""Mistakes of a serving engine, each of which changes one part of a step.

Mistakes of the verification itself are the mutants of `specsim.mistakes` and the wrong rules of the
registry; the ones here are around it: how rows are processed on each path, what caches hold after a step,
which text's rows and random numbers are taken, and what is reported. Each was seen in an engine, or is a
small step from one that was."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim import mistakes
from specsim.core._registry import suggestion
from specsim.core._streams import Purpose, key_of
from specsim.core._types import Floats, Ints
from specsim.core.distributions import temperature
from specsim.engines._planted.requests import Sampling
from specsim.engines._planted.sampling import truncated
from specsim.engines._server.step import Change, Running, Step, text_uniforms
from specsim.models import draw_siblings

#: Where a mistake acts, with what `act` is given.
PLACES = {
    "admission": "when texts begin: act(running, root seed) changes their prompts or keys",
    "reading": "when rows are made: act(running, indices) gives the places in `seen` that are read instead",
    "random numbers": "when a step begins: act(step) changes its uniforms",
    "drafts": "after drafting: act(step) changes the drafts, or the q that verification is given",
    "rows": "before verification: act(step) changes p",
    "verification": "act(drafted tokens, p, q, generator) verifies in place of the rule",
    "last token": "after verification: act(step) changes the recovered or the bonus token",
    "log-probabilities": "act(step) changes what is reported of the tokens",
    "counters": "act(step) changes the numbers of drafted and accepted tokens that are reported",
    "cache": "after a step: act(step) changes what the models have seen",
    "stop": "when a stop string is found: act(tokens) gives the tokens that are returned",
}
#: Tokens in a page of the cache.
PAGE = 16


@dataclass(frozen=True)
class Mistake:
    """A mistake: what it is, in one sentence, and the place, a key of `PLACES`, where it acts."""

    name: str
    says: str
    where: str
    act: Callable[..., Any]


def _on(path: slice, change: Change) -> Callable[[Step], None]:
    """Process the target's rows of the places `path` after a change of the sampling parameters."""

    def act(step: Step) -> None:
        step.p[:, path] = step.process(step.raw_p[:, path], change)

    return act


def _on_recovered(change: Change) -> Callable[[Step], None]:
    """Draw recovered tokens from the residual of rows processed after a change."""

    def act(step: Step) -> None:
        step.redraw(step.rejected, step.residual(step.process(step.raw_p, change)))

    return act


CHECKED, BONUS, ALL = slice(0, -1), slice(-1, None), slice(None)


def _untempered(sampling: Sampling) -> Sampling:
    return replace(sampling, temperature=1.0)


def _without_top_k(sampling: Sampling) -> Sampling:
    return replace(sampling, top_k=None)


def _without_top_p(sampling: Sampling) -> Sampling:
    return replace(sampling, top_p=1.0)


def _without_min_p(sampling: Sampling) -> Sampling:
    return replace(sampling, min_p=0.0)


def _squared_temperature(sampling: Sampling) -> Sampling:
    return replace(sampling, temperature=sampling.temperature**2)


def _draft_untempered(step: Step) -> None:
    step.q = step.process(step.raw_q, _untempered)


def _truncate_first(step: Step) -> None:
    for sampling, members in step.groups.items():
        cut = truncated(step.raw_p[members], sampling)
        step.p[members] = temperature(cut, sampling.temperature)


def _one_hot(rows: Floats) -> Floats:
    return temperature(rows, 0.0)


def _greedy_bonus(step: Step) -> None:
    step.p[:, -1] = _one_hot(step.p[:, -1])


def _greedy_after_nothing(step: Step) -> None:
    step.set_last(step.rejected & (step.accepted == 0), step.p[:, 0].argmax(axis=1))


def _greedy_recovered(step: Step) -> None:
    step.set_last(step.rejected, step.residual(step.p).argmax(axis=1))


def _greedy_every_fourth(step: Step) -> None:
    step.p[3::4] = _one_hot(step.p[3::4])


def _greedy_first_token(step: Step) -> None:
    begins = step.run.steps == 0
    step.p[begins, 0] = _one_hot(step.p[begins, 0])


def _bonus_from_draft(step: Step) -> None:
    step.redraw(~step.rejected, step.process(step.draft_rows(step.gamma, 1))[:, 0])


def _recovered_from_target(step: Step) -> None:
    step.redraw(step.rejected, step.last(step.p))


def _bonus_from_stale_row(step: Step) -> None:
    step.redraw(~step.rejected, step.p[:, max(0, step.gamma - 1)])


def _rows_of_next_text(step: Step) -> None:
    step.p = np.ascontiguousarray(np.roll(step.p, 1, axis=0))


def _argmax_drafts(step: Step) -> None:
    """The last draft alone: the others are read by those after them."""
    if step.gamma:
        step.drafted[:, -1] = step.q[:, step.gamma - 1].argmax(axis=1)
        step.run.seen[step.every, step.run.length + step.gamma - 1] = step.drafted[:, -1]


def _last_of_text_from_draft(step: Step) -> None:
    most = np.array([text.request.max_tokens for text in step.run.texts])
    place = most - step.run.count - 1
    u = text_uniforms(step.run.keys, Purpose.COUNT, step.run.steps, 1)
    for i in range(step.gamma + 1):
        if (at := np.flatnonzero((place == i) & (i <= step.accepted))).size:
            rows = np.ascontiguousarray(step.process(step.draft_rows(i, 1))[:, 0])
            step.tokens[i, at] = draw_siblings("sampled", rows, u)[0, at]


def _keep_rejected(step: Step) -> None:
    """Put the rejected token in front of the recovered one."""
    run, at = step.run, np.flatnonzero(step.rejected)
    end = run.length[at]
    run.seen[at, end] = run.seen[at, end - 1]
    run.seen[at, end - 1] = step.drafted[at, step.accepted[at]]
    run.length[at] += 1


def _forget_accepted(where: Callable[[Step], NDArray[np.bool_]]) -> Callable[[Step], None]:
    """Remove the token before the last one from the texts `where` one was accepted."""

    def act(step: Step) -> None:
        run, at = step.run, np.flatnonzero(where(step) & (step.accepted > 0))
        run.seen[at, run.length[at] - 2] = run.seen[at, run.length[at] - 1]
        run.length[at] -= 1

    return act


def _bonus_twice(step: Step) -> None:
    run, at = step.run, np.flatnonzero(~step.rejected)
    run.seen[at, run.length[at]] = run.seen[at, run.length[at] - 1]
    run.length[at] += 1


def _last_token_unseen(step: Step) -> None:
    """What was drafted stays in the place of the recovered token."""
    run, at = step.run, np.flatnonzero(step.rejected)
    run.seen[at, run.length[at] - 1] = step.drafted[at, step.accepted[at]]


def _wrong_page(run: Running, indices: Ints) -> Ints:
    """Tokens of every second page are read one page before."""
    return np.where(indices // PAGE % 2 == 1, indices - PAGE, indices)


def _unshifted_padding(run: Running, indices: Ints) -> Ints:
    """Prompts are padded on the left to the longest, and the shorter are read as if they were not."""
    prompts = np.array([len(text.request.prompt) for text in run.texts])
    return indices - (prompts.max() - prompts)[:, None, None]


def _first_token_of_next(run: Running, root: int) -> None:
    run.seen[:, 0] = np.roll(run.seen[:, 0], 1)


def _prompt_of_next(run: Running, root: int) -> None:
    """Every fourth text is decoded after the prompt of the text before it."""
    for b in range(3, len(run.texts), 4):
        run.seen[b], run.length[b] = run.seen[b - 1], run.length[b - 1]


def _ignore_seed(run: Running, root: int) -> None:
    fresh = np.random.default_rng()
    run.keys[:] = fresh.integers(2**32, size=run.keys.shape, dtype=np.uint64)


def _one_seed(run: Running, root: int) -> None:
    run.keys[:] = key_of(root)


def _one_seed_for_copies(run: Running, root: int) -> None:
    first: dict[int, Any] = {}
    for key, text in zip(run.keys, run.texts, strict=True):
        key[:] = first.setdefault(text.request.number, key.copy())


def _same_numbers_each_step(step: Step) -> None:
    zeros = np.zeros_like(step.run.steps)
    step.draft_u = text_uniforms(step.run.keys, Purpose.DRAFT, zeros, len(step.draft_u))
    step.verify_u = text_uniforms(step.run.keys, Purpose.VERIFY, zeros, len(step.verify_u))


def _drafts_uniform_in_check(step: Step) -> None:
    shared = min(len(step.verify_u), step.gamma)
    step.verify_u[:shared] = step.draft_u[:shared]


def _check_uniform_again(step: Step) -> None:
    """The uniform of the check that failed draws the recovered token."""
    u = step.verify_u[np.minimum(step.accepted, len(step.verify_u) - 1), step.every]
    rows = np.ascontiguousarray(step.residual(step.p))
    step.set_last(step.rejected, draw_siblings("sampled", rows, u[None])[0])


def _coarse_uniforms(step: Step) -> None:
    step.verify_u = np.floor(step.verify_u * 8.0) / 8.0


def _logprobs_of(step: Step, rows: Floats) -> Floats:
    """The logarithms [B, m] of what `rows` [B, m, V] give to the first m tokens of the step."""
    tokens = step.tokens.T[:, : rows.shape[1], None].clip(min=0).astype(np.int64)
    return np.log(np.maximum(np.take_along_axis(rows, tokens, axis=2)[..., 0], 1e-300))


def _logprobs_one_late(step: Step) -> None:
    step.logprobs[:, 1:] = step.logprobs[:, :-1].copy()


def _logprobs_of_draft(step: Step) -> None:
    step.logprobs[:, : step.gamma] = _logprobs_of(step, step.raw_q[:, : step.gamma])


def _logprobs_zero(step: Step) -> None:
    accepted = np.arange(step.gamma + 1) < step.accepted[:, None]
    step.logprobs[accepted] = 0.0


def _logprobs_all_zero(step: Step) -> None:
    step.logprobs[:] = 0.0


def _logprobs_mixed(step: Step) -> None:
    accepted = np.arange(step.gamma + 1) < step.accepted[:, None]
    step.logprobs[accepted] = _logprobs_of(step, step.p)[accepted]


def _count_bonus(step: Step) -> None:
    step.counted_accepted += 1


def _count_tested(step: Step) -> None:
    step.counted_drafted[:] = np.minimum(step.accepted + 1, step.gamma)


def _cut_one_more(tokens: list[int]) -> list[int]:
    return tokens[:-2]


MISTAKES = (
    Mistake("temperature_not_in_q", "Drafts are checked against q at temperature 1.",
            "drafts", _draft_untempered),
    Mistake("temperature_not_in_check", "Drafts are checked against p at temperature 1.",
            "rows", _on(CHECKED, _untempered)),
    Mistake("temperature_not_in_bonus", "The bonus is drawn at temperature 1.",
            "rows", _on(BONUS, _untempered)),
    Mistake("temperature_not_in_recovered", "The residual is taken of p at temperature 1.",
            "last token", _on_recovered(_untempered)),
    Mistake("temperature_twice", "The target's rows are divided by the temperature twice.",
            "rows", _on(ALL, _squared_temperature)),
    Mistake("top_k_not_in_recovered", "The residual is taken of p without top-k.",
            "last token", _on_recovered(_without_top_k)),
    Mistake("top_k_not_in_bonus", "The bonus is drawn without top-k.", "rows", _on(BONUS, _without_top_k)),
    Mistake("top_p_not_in_recovered", "The residual is taken of p without top-p.",
            "last token", _on_recovered(_without_top_p)),
    Mistake("top_p_not_in_bonus", "The bonus is drawn without top-p.", "rows", _on(BONUS, _without_top_p)),
    Mistake("min_p_not_in_check", "Drafts are checked against p without min-p.",
            "rows", _on(CHECKED, _without_min_p)),
    Mistake("min_p_not_in_recovered", "The residual is taken of p without min-p.",
            "last token", _on_recovered(_without_min_p)),
    Mistake("min_p_not_in_bonus", "The bonus is drawn without min-p.", "rows", _on(BONUS, _without_min_p)),
    Mistake("truncation_first", "The target's rows are truncated before the temperature, not after it.",
            "rows", _truncate_first),
    Mistake("greedy_bonus", "The bonus is the argmax of p.", "rows", _greedy_bonus),
    Mistake("greedy_recovered", "The recovered token is the argmax of the residual.",
            "last token", _greedy_recovered),
    Mistake("greedy_after_nothing", "Where no draft is accepted, the argmax of p comes out.",
            "last token", _greedy_after_nothing),
    Mistake("greedy_every_fourth", "Every fourth text of a batch is decoded greedily.",
            "rows", _greedy_every_fourth),
    Mistake("greedy_first_token", "The token after the prompt is the argmax of p.",
            "rows", _greedy_first_token),
    Mistake("bonus_from_draft", "The bonus is drawn from the draft.", "last token", _bonus_from_draft),
    Mistake("bonus_from_row_before", "The bonus is drawn from the row of the last drafted token.",
            "last token", _bonus_from_stale_row),
    Mistake("recovered_from_target", "The recovered token is drawn from p, not from the residual.",
            "last token", _recovered_from_target),
    Mistake("argmax_draft", "The last drafted token is the argmax of q, and verified as if drawn from q.",
            "drafts", _argmax_drafts),
    Mistake("last_of_text_from_draft", "The last token before max_tokens is drawn from the draft.",
            "last token", _last_of_text_from_draft),
    Mistake("rejected_kept", "After a rejection the cache keeps the rejected token.",
            "cache", _keep_rejected),
    Mistake("recovered_not_cached", "The cache has the rejected token in the place of the recovered one.",
            "cache", _last_token_unseen),
    Mistake("accepted_lost", "After a rejection the cache loses the last accepted token.",
            "cache", _forget_accepted(lambda step: step.rejected)),
    Mistake("shifted_by_acceptance", "After a draft accepted whole the cache loses its last token.",
            "cache", _forget_accepted(lambda step: ~step.rejected)),
    Mistake("bonus_cached_twice", "After a draft accepted whole the cache has the bonus twice.",
            "cache", _bonus_twice),
    Mistake("wrong_page", "Tokens of every second page of 16 are read from the page before.",
            "reading", _wrong_page),
    Mistake("unshifted_padding", "Texts are read as if all prompts of a batch had one length.",
            "reading", _unshifted_padding),
    Mistake("first_token_of_next", "A prompt begins with the first token of another request's prompt.",
            "admission", _first_token_of_next),
    Mistake("prompt_of_next", "Every fourth text follows the prompt of another request.",
            "admission", _prompt_of_next),
    Mistake("rows_of_next", "Texts are verified against the rows of the next text in the batch.",
            "rows", _rows_of_next_text),
    Mistake("seed_ignored", "The seed of a request is ignored.", "admission", _ignore_seed),
    Mistake("one_seed", "All requests have the same random numbers.", "admission", _one_seed),
    Mistake("copies_alike", "The n texts of a request have the same random numbers.",
            "admission", _one_seed_for_copies),
    Mistake("same_numbers_each_step", "Every step of a text uses the random numbers of the first.",
            "random numbers", _same_numbers_each_step),
    Mistake("draft_numbers_in_check", "A draft is checked with the uniform that drew it.",
            "random numbers", _drafts_uniform_in_check),
    Mistake("check_number_again", "The uniform of the failed check draws the recovered token.",
            "last token", _check_uniform_again),
    Mistake("coarse_uniforms", "Uniforms of the verification have 3 bits.",
            "random numbers", _coarse_uniforms),
    Mistake("logprobs_one_late", "Log-probabilities within a step are those of the place before.",
            "log-probabilities", _logprobs_one_late),
    Mistake("logprobs_of_draft", "Log-probabilities are those of the draft.",
            "log-probabilities", _logprobs_of_draft),
    Mistake("logprobs_zero_if_accepted", "Log-probabilities of accepted tokens are 0.",
            "log-probabilities", _logprobs_zero),
    Mistake("logprobs_zero", "All log-probabilities are 0.", "log-probabilities", _logprobs_all_zero),
    Mistake("logprobs_mixed", "Log-probabilities of accepted tokens are those of processed rows.",
            "log-probabilities", _logprobs_mixed),
    Mistake("bonus_counted", "The counter of accepted tokens counts the last token of each step.",
            "counters", _count_bonus),
    Mistake("tested_counted", "The counter of drafted tokens leaves out those behind a rejection.",
            "counters", _count_tested),
    Mistake("stop_cuts_more", "A text that a stop string ends loses one token too many.",
            "stop", _cut_one_more),
)  # fmt: skip


def mistake_names() -> list[str]:
    """The names of the mistakes of an engine, then of those of a verifier."""
    return [mistake.name for mistake in MISTAKES] + mistakes.names("verifier")


def find_mistake(name: str | None) -> Mistake | None:
    """The mistake, or the mutant of a verifier, called `name`. Raises ValueError for an unknown name."""
    if name is None:
        return None
    own = {mistake.name: mistake for mistake in MISTAKES}
    if name in own:
        return own[name]
    if name.partition(":")[0] not in mistakes.names("verifier"):
        meant = suggestion(name, mistake_names())
        raise ValueError(f"unknown mistake {name!r}{meant} There are: {', '.join(own)}, or a mutant")
    mutant = mistakes.get(name)
    return Mistake(str(mutant), mutant.mechanism, "verification", mutant.function)
