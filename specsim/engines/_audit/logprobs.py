"""The log-probabilities that an engine returns, compared with the distribution."""

from collections.abc import Sequence

import numpy as np

from specsim.core._types import Floats
from specsim.core._verdicts import Finding
from specsim.engines._audit.places import Places, Rows, by_context
from specsim.engines._audit.results import LogProbabilities
from specsim.engines._planted.requests import Completion

#: An engine may give a token that never comes any log-probability below this.
NEVER = -100.0


def returned(texts: Sequence[Completion]) -> Floats:
    """The log-probability of each emitted token, NaN where none was returned."""
    found = [
        np.full(len(one.tokens), np.nan)
        if one.logprobs is None
        else np.array([np.nan if value is None else value for value in one.logprobs], dtype=np.float64)
        for one in texts
    ]
    return np.concatenate(found) if found else np.zeros(0)


def compare(
    places: Places, texts: Sequence[Completion], logs: Floats, rows: Rows, tolerance: float
) -> LogProbabilities | None:
    """Compare with `logs`, the distribution's log-probability of each emitted token, and with the
    distribution's `rows`."""
    got = returned(texts)[places.index]
    asked = ~np.isnan(got)
    listed, listed_wrong, example = _lists(places, texts, rows, tolerance)
    if not asked.any() and not listed:
        return None
    with np.errstate(invalid="ignore"):
        gap = np.abs(got - logs)
    wrong = asked & ~(gap <= tolerance)
    zeros = wrong & (got == 0.0)
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
    )


def _lists(places: Places, texts: Sequence[Completion], rows: Rows, tolerance: float) -> tuple[int, int, str]:
    """The entries of the top lists, how many of them are wrong, and the first of these in words."""
    known = {int(i): at for at, i in enumerate(places.index)}
    entries = [
        (known[start + i], token, value)
        for start, one in zip(_starts(texts), texts, strict=True)
        for i, top in enumerate(one.top or ())
        if start + i in known
        for token, value in top.items()
    ]
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


def _starts(texts: Sequence[Completion]) -> list[int]:
    """The index of the first token of each text among all."""
    return np.concatenate([[0], np.cumsum([len(one.tokens) for one in texts])])[:-1].astype(int).tolist()


def finding(found: LogProbabilities | None, tolerance: float) -> Finding | None:
    """A finding if any returned value is wrong."""
    if found is None or not (found.wrong or found.listed_wrong):
        return None
    parts = []
    if found.wrong:
        zeros = f", {found.zeros:,} of them exactly 0" if found.zeros else ""
        parts.append(
            f"{found.wrong:,} of {found.returned:,} returned log-probabilities are wrong by more than "
            f"{tolerance:g}{zeros}"
        )
    if found.listed_wrong:
        parts.append(
            f"{found.listed_wrong:,} of {found.listed:,} entries of top lists are wrong by more than "
            f"{tolerance:g}"
        )
    return Finding("log-probabilities", f"{'; '.join(parts)} ({found.example})")
