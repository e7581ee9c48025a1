"""Plan from the seconds of an audit's texts: those of a step, and with a matrix where drafts break even."""

from pathlib import Path

import numpy as np

from specsim.core._tables import CONFIDENCE, Line, Listing
from specsim.engines._audit.counters import reported
from specsim.engines._audit.matrix import SIDES
from specsim.engines._audit.run import TEXTS
from specsim.engines._audit.store import read_store
from specsim.planning._measured import MeasuredChoice, MeasuredPlan, ends_of, medians, shown
from specsim.traces._analysis import document_draws


def plan_audited(folder: Path, root: int = 0) -> MeasuredPlan | Listing | None:
    """The plan of the setting "plain" of a matrix; of a single audit what a step takes; None for no audit.

    A request's seconds over its steps, or without drafts over its tokens, are those of a step: few slow
    requests change no median. Intervals resample requests. Raises ValueError where steps are not counted."""
    matrix, *sides = (folder / side / "plain.jsonl" for side in SIDES)
    if not (file := matrix if matrix.is_file() else folder / TEXTS).is_file():
        return None
    texts, plain = (read_store(one)[1].texts() if one.is_file() else [] for one in (file, *sides))
    seconds = {one.number: one.seconds for one in texts}
    each = {one.number: one.seconds / len(one.tokens) for one in plain if one.tokens}
    told = [(one.number, one.emitted, one.steps or one.emitted - one.accepted, one.drafted)
            for one in reported(texts) if each.get(one.number, 0.0) > 0.0 or not plain]  # fmt: skip
    told = [one for one in told if min(seconds[one[0]], *one[2:]) > 0]
    if len(told) < 2:
        what = "audit an engine that reports drafted and accepted tokens, with speculation"
        raise ValueError(f"{file}: {len(told)} requests with seconds and steps; {what}")
    draws = np.concatenate([np.ones((1, len(told))), document_draws(len(told), root)])
    _, emitted, steps, drafted = (draws @ np.array(told)).T
    step = medians([np.array([seconds[number] / count]) for number, _, count, _ in told], draws)
    gamma, tokens = max(1, round(float(drafted[0] / steps[0]))), ends_of(emitted / steps)
    said = f"a step of γ = {gamma} takes {shown(1e3 * ends_of(step))} ms and emits {shown(tokens)} tokens"
    how = f"{CONFIDENCE:.0%} intervals, {len(told)} requests resampled (seed {root})"
    if not plain:
        shows = Line(said, "bold"), f"in brackets: {how}", "Where it breaks even: specsim audit matrix"
        return Listing(shows, [{"gamma": gamma, "step_seconds": step[0], "tokens_per_step": tokens[0]}])
    cost = step / medians([np.array([each[one[0]]]) for one in told], draws)
    choice = MeasuredChoice(gamma, ends_of(cost), tokens, None, ends_of(emitted / steps / cost))
    return MeasuredPlan((choice,), said, how)
