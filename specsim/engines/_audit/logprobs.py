"""The log-probabilities that an engine returns, compared with the distribution."""

from collections.abc import Sequence
from itertools import chain, islice, repeat

import numpy as np

from specsim import mistakes
from specsim.core._types import Floats
from specsim.core._verdicts import Finding
from specsim.engines._audit.places import Places, Rows, by_context
from specsim.engines._audit.results import LogProbabilities
from specsim.engines._planted.requests import Completion

#: An engine may give a token that never comes any log-probability below this.
NEVER = -100.0
#: A mistake is named that gives more than this share of the wrong ones.
MOST = 0.9


def compare(
    places: Places,
    texts: Sequence[Completion],
    logs: Floats,
    rows: Rows,
    tolerance: float,
    mistaken: Sequence[tuple[str, Floats]] = (),
) -> LogProbabilities | None:
    """Compare with the `logs` of p of each emitted token, and with the `rows` of the distribution; wrong ones
    with those of mistakes too."""
    own = [value for one in texts for value in one.logprobs or [None] * len(one.tokens)]
    got = np.array(own, dtype=np.float64)[places.index]  # NaN where there is None
    asked = ~np.isnan(got)
    listed, listed_wrong, example = _lists(places, texts, rows, tolerance)
    if not asked.any() and not listed:
        return None
    with np.errstate(invalid="ignore"):
        gap = np.abs(got - logs)
    wrong = asked & ~np.where(np.isneginf(logs), got < NEVER, gap <= tolerance)
    zeros = wrong & (got == 0.0)
    named = ""
    if wrong.any() and mistaken:
        late = np.where(np.roll(places.text, 1) == places.text, np.roll(logs, 1), np.nan)
        zero = "logprobs_zero" if zeros.sum() == asked.sum() else "logprobs_zero_if_accepted"
        every = [*mistaken, ("logprobs_one_late", late), (zero, np.zeros_like(logs))]
        with np.errstate(invalid="ignore"):
            shares = [(np.mean(np.abs(got - of)[wrong] <= tolerance), name) for name, of in every]
        share, likeliest = max(shares)
        named = likeliest if share > MOST else ""
    if wrong.any():
        first = int(wrong.argmax())
        example = (
            f"request {texts[places.text[first]].number}, place {places.place[first] + 1}: "
            f"{got[first]:.6g} for {logs[first]:.6g}"
        )
    finite = asked & np.isfinite(gap)
    return LogProbabilities(
        returned=int(asked.sum()),
        wrong=int(wrong.sum()),
        zeros=int(zeros.sum()),
        largest=float(gap[finite].max()) if finite.any() else 0.0,
        listed=listed,
        listed_wrong=listed_wrong,
        example=example,
        named=named,
    )


def _lists(places: Places, texts: Sequence[Completion], rows: Rows, tolerance: float) -> tuple[int, int, str]:
    """The entries of the top lists, how many of them are wrong, and the first of these in words."""
    tops = [top for one in texts for top in islice(chain(one.top or (), repeat({})), len(one.tokens))]
    entries = [(at, *entry) for at, i in enumerate(places.index) for entry in tops[i].items()]
    if not entries:
        return 0, 0, ""
    at, tokens, values = (np.array(column) for column in zip(*entries, strict=True))
    size = rows(places.contexts[:1]).shape[1]
    outside = (tokens < 0) | (tokens >= size)
    expected = np.empty(len(at))
    with np.errstate(divide="ignore"):
        for contexts, here, row in by_context(places.contexts[at], size):
            expected[here] = np.log(rows(contexts)[row, np.clip(tokens[here], 0, size - 1)])
    right = np.where(np.isneginf(expected), values < NEVER, np.abs(values - expected) <= tolerance)
    wrong = outside | ~right
    if not wrong.any():
        return len(at), 0, ""
    i = int(wrong.argmax())
    said = f"{expected[i]:.6g}" if not outside[i] else "a token outside the vocabulary"
    where = f"request {texts[places.text[at[i]]].number}, place {places.place[at[i]] + 1}"
    return len(at), int(wrong.sum()), f"{where}, token {tokens[i]} in the list: {values[i]:.6g} for {said}"


def finding(found: LogProbabilities | None, tolerance: float) -> Finding | None:
    """A finding if any returned value is wrong."""
    if found is None or not (found.wrong or found.listed_wrong):
        return None
    zeros = f", {found.zeros:,} of them exactly 0" if found.zeros else ""
    parts = [
        f"{wrong:,} of {count:,} {what} are wrong by more than {tolerance:g}{more}"
        for wrong, count, what, more in (
            (found.wrong, found.returned, "returned log-probabilities", zeros),
            (found.listed_wrong, found.listed, "entries of top lists", ""),
        )
        if wrong
    ]
    named = f". {found.named}: {mistakes.get(found.named).mechanism}" if found.named else ""
    return Finding("log-probabilities", f"{'; '.join(parts)} ({found.example}){named}")
