"""How this server makes the mistakes of `specsim.mistakes`: each changes one part of a step.

A verifier of that catalogue verifies in place of the rule. The mistakes here are around it, or take the
random numbers of a request where such a verifier would draw its own."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim import mistakes
from specsim.core._files import read_table
from specsim.core._streams import Purpose, key_of
from specsim.core._types import Floats, Ints, suggestion
from specsim.engines._planted.law import Memory
from specsim.engines._planted.processing import FIRST_ORDER, PARTS
from specsim.engines._server.step import Change, Running, Step, text_uniforms
from specsim.mistakes._rows import argmax
from specsim.models._drafts.sampling import draw_siblings

#: Where a mistake acts, with what `act` is given.
PLACES: dict[str, str] = read_table("servers")["places"]
#: Tokens in a page of the cache, and texts whose beginnings are kept.
PAGE, KEPT = 16, 64


@dataclass(frozen=True)
class Served:
    """A mistake of `specsim.mistakes` in this server: its sentence, and the key of `PLACES` where it acts."""

    name: str
    says: str
    where: str
    act: Callable[..., Any]


def _on(path: slice, change: Change) -> Callable[[Step], None]:
    """Process the target's rows of the places `path` after a change of the sampling parameters."""
    return lambda step: np.copyto(step.p[:, path], step.process(step.raw_p, change)[:, path])


def _on_recovered(change: Change) -> Callable[[Step], None]:
    """Draw recovered tokens from the residual of rows processed after a change."""
    return lambda step: step.redraw(step.rejected, step.residual(step.process(step.raw_p, change)))


CHECKED, BONUS, ALL = slice(0, -1), slice(-1, None), slice(None)


UNTEMPERED: Change = partial(replace, temperature=1.0)
#: The processing without one of its other parts.
WITHOUT: dict[str, Change] = {
    part: partial(replace, **values) for part, values in PARTS.items() if part != "temperature"
}


def _processed(**how: Any) -> Callable[[Step], None]:
    return lambda step: np.copyto(step.p, step.process(step.raw_p, **how))


def _greedy_at(where: Any) -> Callable[[Step], None]:
    """Take the most probable token at these places of p [B, γ+1, V], slices."""
    return lambda step: np.copyto(step.p[where], argmax(step.p[where]))


def _last(rejected: bool, rows: Callable[[Step], Floats]) -> Callable[[Step], None]:
    """Draw recovered tokens, or else the bonus, from other rows [B, V]."""
    return lambda step: step.redraw(step.rejected == rejected, rows(step))


def _argmax_drafts(step: Step) -> None:
    """The last draft alone: the others are read by those after them."""
    if step.gamma:
        step.drafted[:, -1] = step.q[:, step.gamma - 1].argmax(axis=1)
        step.run.seen[step.every, step.run.length + step.gamma - 1] = step.drafted[:, -1]


def _last_of_text_from_draft(step: Step) -> None:
    place = np.array([text.request.max_tokens for text in step.run.texts]) - step.run.count - 1
    u = text_uniforms(step.run.keys, Purpose.COUNT, step.run.steps, 1)
    for i in range(step.gamma + 1):
        if (at := np.flatnonzero((place == i) & (i <= step.accepted))).size:
            rows = np.ascontiguousarray(step.process(step.draft_rows(i, 1), first=i)[:, 0])
            step.tokens[i, at] = draw_siblings("sampled", rows, u)[0, at]


def _keep_rejected(step: Step) -> None:
    """Put the rejected token in front of the recovered one."""
    run, at = step.run, np.flatnonzero(step.rejected)
    end = run.length[at]
    run.seen[at, end] = run.seen[at, end - 1]
    run.seen[at, end - 1] = step.drafted[at, step.accepted[at]]
    run.length[at] += 1


def _forget_accepted(where: Callable[[Step], NDArray[np.bool_]], step: Step) -> None:
    """Remove the token before the last one from the texts `where` one was accepted."""
    run, at = step.run, np.flatnonzero(where(step) & (step.accepted > 0))
    run.seen[at, run.length[at] - 2] = run.seen[at, run.length[at] - 1]
    run.length[at] -= 1


def _bonus_twice(step: Step) -> None:
    run, at = step.run, np.flatnonzero(~step.rejected)
    run.seen[at, run.length[at]] = run.seen[at, run.length[at] - 1]
    run.length[at] += 1


def _last_token_unseen(step: Step) -> None:
    run, at = step.run, np.flatnonzero(step.rejected)
    run.seen[at, run.length[at] - 1] = step.drafted[at, step.accepted[at]]


def _window_not_rolled_back(step: Step, memory: Memory, seen: Ints, window: Ints) -> None:
    if step.gamma:
        window[step.rejected] = step.drafted[step.rejected, -1]


def _unshifted_padding(run: Running, indices: Ints) -> Ints:
    """Prompts are padded on the left to the longest, and the shorter are read as if they were not."""
    prompts = np.array([len(text.request.prompt) for text in run.texts])
    return indices - (prompts.max() - prompts)[:, None, None]


def one_long(seen: Ints, length: Ints) -> None:
    """Let each text read one token more of the kept one that shares most with it, if that is a page."""
    whole = seen.copy()
    for b in range(1, len(seen)):
        kept = slice(max(0, b - KEPT), b)
        alike = np.cumprod(whole[kept] == whole[b], axis=1).sum(axis=1)
        a = int(np.minimum(alike, length[kept]).argmax())
        if PAGE <= alike[a] < min(length[kept][a], length[b]):
            seen[b, alike[a]] = whole[kept][a, alike[a]]


def _prompt_of_next(run: Running, root: int) -> None:
    for b in range(3, len(run.texts), 4):
        run.seen[b], run.length[b] = run.seen[b - 1], run.length[b - 1]


def _one_seed_for_copies(run: Running, root: int) -> None:
    first: dict[int, Any] = {}
    for key, text in zip(run.keys, run.texts, strict=True):
        key[:] = first.setdefault(text.request.number, key.copy())


def _same_numbers_each_step(step: Step) -> None:
    zeros = np.zeros_like(step.run.steps)
    step.draft_u = text_uniforms(step.run.keys, Purpose.DRAFT, zeros, len(step.draft_u))
    step.verify_u = text_uniforms(step.run.keys, Purpose.VERIFY, zeros, len(step.verify_u))


def _check_uniform_again(step: Step) -> None:
    u = step.verify_u[np.minimum(step.accepted, len(step.verify_u) - 1), step.every]
    rows = np.ascontiguousarray(step.residual(step.p))
    step.set_last(step.rejected, draw_siblings("sampled", rows, u[None])[0])


def _of_accepted(values: Callable[[Step], Any]) -> Callable[[Step], None]:
    """Replace the log-probabilities of accepted tokens by `values`, which fit [B, γ+1]."""
    return lambda step: np.copyto(
        step.logprobs, values(step), where=np.arange(step.gamma + 1) < step.accepted[:, None]
    )


#: How this server makes each mistake, by name.
ACTS: dict[str, Callable[..., Any]] = {
    **{f"{part}_not_in_bonus": _on(BONUS, change) for part, change in WITHOUT.items()},
    **{f"{part}_not_in_recovered": _on_recovered(change) for part, change in WITHOUT.items()},
    "draft_temperature": lambda step: np.copyto(step.q, step.process(step.raw_q, UNTEMPERED)),
    "verified_at_temperature": _on(CHECKED, UNTEMPERED),
    "bonus_temperature": _on(BONUS, UNTEMPERED),
    "residual_temperature": _on_recovered(UNTEMPERED),
    "temperature_twice": _on(ALL, lambda one: replace(one, temperature=one.temperature**2)),
    "bonus_min_p": _on(CHECKED, WITHOUT["min_p"]),
    "truncation_first": _processed(order="top-k, top-p, min-p, temperature"),
    "prompt_penalised": _processed(order=f"penalties of prompt and text, {FIRST_ORDER}"),
    "prompt_not_penalised": _processed(order=f"penalties of the text, {FIRST_ORDER}"),
    **{f"{part}_miss_drafts": _processed(drafts=False) for part in ("penalties", "bad_words", "grammar")},
    "bonus_argmax": _greedy_at(np.s_[:, -1]),
    "greedy_residual": lambda step: step.set_last(step.rejected, step.residual(step.p).argmax(axis=1)),
    "greedy_after_nothing": lambda step: step.set_last(
        step.rejected & (step.accepted == 0), step.p[:, 0].argmax(axis=1)
    ),
    "greedy_every_fourth": _greedy_at(np.s_[3::4]),
    "greedy_first_token": lambda step: np.copyto(
        step.p[:, 0], argmax(step.p[:, 0]), where=(step.run.steps == 0)[:, None]
    ),
    "bonus_from_draft": _last(
        False, lambda step: step.process(step.draft_rows(step.gamma, 1), first=step.gamma)[:, 0]
    ),
    "bonus_row_before": _last(False, lambda step: step.p[:, max(0, step.gamma - 1)]),
    "resamples_target": _last(True, lambda step: step.last(step.p)),
    "greedy_draft": _argmax_drafts,
    "last_of_text_from_draft": _last_of_text_from_draft,
    "target_not_rolled_back": _keep_rejected,
    "recovered_not_cached": _last_token_unseen,
    "accepted_lost": partial(_forget_accepted, lambda step: step.rejected),
    "target_one_short": partial(_forget_accepted, lambda step: ~step.rejected),
    "bonus_cached_twice": _bonus_twice,
    "state_keeps_rejected": lambda step, memory, seen, window: seen.fill(step.gamma + 1),
    "state_one_stale": lambda step, memory, seen, window: np.maximum(seen - 1, 1, out=seen),
    "state_drops_accepted": lambda step, memory, seen, window: np.copyto(seen, 1, where=step.rejected),
    "state_lost": lambda step, memory, seen, window: np.copyto(
        step.run.state[:, 0], memory.words, where=(step.rejected & (step.accepted == 0))[:, None]
    ),
    "state_of_next": lambda step, memory, seen, window: np.copyto(  # of the next text, in every fourth step
        step.run.state[:, 0],
        np.roll(step.run.state[:, 0], -1, axis=0),
        where=(step.run.steps % 4 == 3)[:, None],
    ),
    "window_not_rolled_back": _window_not_rolled_back,
    "head_stale": lambda: (1, 0),
    "head_without_token": lambda: (0, 1),
    "window_off_by_one": lambda run, at: at - (np.arange(at.shape[2]) == at.shape[2] - 1),
    "expert_of_token_before": lambda run, places: places - 1,
    "wrong_page": lambda run, at: np.where(at // PAGE % 2 == 1, at - PAGE, at),
    "unshifted_padding": _unshifted_padding,
    "first_token_of_next": lambda run, root: np.copyto(run.seen[:, 0], np.roll(run.seen[:, 0], 1)),
    "prefix_one_long": lambda run, root: one_long(run.seen, run.length),
    "prompt_of_next": _prompt_of_next,
    "rows_of_next": lambda step: np.copyto(step.p, np.roll(step.p, 1, axis=0)),
    "seed_ignored": lambda run, root: np.copyto(
        run.keys, np.random.default_rng().integers(2**32, size=run.keys.shape, dtype=np.uint64)
    ),
    "one_seed": lambda run, root: np.copyto(run.keys, np.array(key_of(root), np.uint64)),
    "copies_alike": _one_seed_for_copies,
    "steps_share_uniforms": _same_numbers_each_step,
    "draft_numbers_in_check": lambda step: np.copyto(
        step.verify_u[: step.gamma], step.draft_u[: len(step.verify_u)]
    ),
    "test_uniform_draws": _check_uniform_again,
    "coarse_uniforms": lambda step: np.copyto(step.verify_u, np.floor(step.verify_u * 8.0) / 8.0),
    "logprobs_one_late": lambda step: np.copyto(step.logprobs[:, 1:], step.logprobs[:, :-1]),
    "logprobs_of_draft": lambda step: np.copyto(
        step.logprobs[:, : step.gamma], step.logs(step.raw_q[:, : step.gamma])
    ),
    "logprobs_zero_if_accepted": _of_accepted(lambda step: 0.0),
    "logprobs_zero": lambda step: step.logprobs.fill(0.0),
    "logprobs_mixed": _of_accepted(lambda step: step.logs(np.log(np.maximum(step.p, 1e-300)))),
    "bonus_counted": lambda step: np.add(step.counted_accepted, 1, out=step.counted_accepted),
    "tested_counted": lambda step: np.minimum(step.accepted + 1, step.gamma, out=step.counted_drafted),
    "stop_cuts_more": lambda tokens: tokens[:-2],
}
#: Where each acts, if not on rows.
WHERE = {name: place for place, names in read_table("servers")["acts"].items() for name in names}


def mistake_names() -> list[str]:
    """The names of the mistakes of this server, then of those of a verifier in its place."""
    return [*ACTS, *(name for name in mistakes.names("verifier") if name not in ACTS)]


def find_mistake(name: str | None) -> Served | None:
    """The mistake called `name`, as the server makes it, or a verifier's. Raises ValueError if unknown."""
    if name is None:
        return None
    if name in ACTS:
        return Served(name, mistakes.get(name).mechanism, WHERE.get(name, "rows"), ACTS[name])
    if name.partition(":")[0] not in mistakes.names("verifier"):
        meant = suggestion(name, mistake_names())
        raise ValueError(f"unknown mistake {name!r}{meant} 'specsim list mistakes' lists them all")
    verifier = mistakes.get(name)
    return Served(str(verifier), verifier.mechanism, "verification", verifier.function)
