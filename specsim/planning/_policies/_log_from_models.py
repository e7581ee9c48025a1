"""A log drawn from two models: a text of the target, and the drafts along it.

Every random number is a function of the seed and the position, so a longer log begins with the shorter one.
"""

import math
from typing import Any

import numpy as np

from specsim.core._arguments import checked
from specsim.core._checks import check_count, count_of
from specsim.core._streams import Key, Purpose, RandomSource, key_of, root_of, uniform, uniforms
from specsim.core._types import Floats, TokenArray
from specsim.models import Model
from specsim.models._base import check_pair, drawn_text, shared_contexts
from specsim.models._drafts.sampling import draw_siblings
from specsim.models._processed import Processed
from specsim.planning._policies._log import DraftLog, Features, read_rows

#: Positions whose rows are computed at a time: few enough to stay in cache.
CHUNK = 1024


@checked
def draft_log(
    target: Model,
    draft: Model,
    tokens: int | str = 100_000,
    *,
    rng: RandomSource = None,
    ahead: int = 16,
    temperature: float = 1.0,
) -> DraftLog:
    """Draw a text of a target, and what a draft proposes at each position, to simulate draft-length policies.

    Parameters
    ----------
    target, draft : Model
        Two models over one vocabulary; the text begins after one of their contexts.
    tokens : int or str
        Length of the text, ≥ 1.
    rng : int, Generator or None
        The seed.
    ahead : int
        Tokens kept after each rejected one, ≥ 0: the log never truncates steps of up to `ahead` + 1.
    temperature : float
        Of both models' rows, ≥ 0.

    Returns
    -------
    DraftLog

    Raises
    ------
    ValueError, TypeError
        For anything but two models over one vocabulary, or numbers out of range.

    Examples
    --------
    >>> from specsim.models import TableModel
    >>> log = draft_log(TableModel([0.5, 0.3, 0.2]), TableModel([0.2, 0.3, 0.5]), 1000, rng=1)
    >>> len(log), round(log.alpha_context, 12), log.ahead
    (1000, 0.7, 16)
    """
    check_pair(target, draft)
    tokens, ahead = count_of("tokens", tokens), check_count("ahead", ahead, 0)
    if not (math.isfinite(temperature) and temperature >= 0):
        raise ValueError(f"temperature: {temperature} is not a finite number ≥ 0")
    if temperature != 1:
        target, draft = (Processed(one, temperature=temperature) for one in (target, draft))
    root, order = root_of(rng), max(target.order, draft.order)
    key, contexts = key_of(root), shared_contexts(target, draft)
    context = contexts[int(uniform(key, Purpose.CONTEXT, 0, 0) * len(contexts))]
    text = drawn_text(target, context, uniforms(key, Purpose.VERIFY, 0, tokens, 1)[0])
    parts = [_draw_part(target, draft, text, first, ahead, key) for first in range(0, tokens, CHUNK)]
    joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
    drafted, accepted, beta = joined[:3]
    rejected = accepted == 0
    features, tails = Features(*joined[3:6]), Features(*joined[6:])
    tail = np.where(rejected, np.cumsum(rejected) - 1, -1)
    source = f"a text of {tokens:,} tokens" + f" at temperature {temperature:g}" * (temperature != 1)
    return DraftLog(text[order:], drafted, accepted, features, beta, tail, tails, source, root)


def _draw_part(
    target: Model, draft: Model, text: TokenArray, first: int, ahead: int, key: Key
) -> tuple[Any, ...]:
    """drafted, accepted, β, features [B], and those of the tails [R, ahead], from position `first` on."""
    order = max(target.order, draft.order)
    size = min(CHUNK, len(text) - order - first)
    every = np.arange(size)
    histories = text[first + every[:, None] + np.arange(order)]
    x = text[first + order : first + order + size]
    p, q = target.rows(histories), draft.rows(histories)
    tested = uniforms(key, Purpose.VERIFY, first, size, 2)[1]
    drawn = uniforms(key, Purpose.DRAFT, first, size, 1 + ahead)

    accepted = tested * p[every, x] < q[every, x]
    lost = np.flatnonzero(~accepted)
    drafted = x.copy()
    excess = np.maximum(q[lost] - p[lost], 0.0)
    weights = np.where(excess.any(axis=1, keepdims=True), excess, q[lost])  # rounding may leave nothing
    drafted[lost] = _draw(weights, drawn[0, lost])
    tails = Features(*(np.empty((lost.size, ahead)) for _ in Features._fields))
    behind, last = histories[lost], drafted[lost]
    for k in range(ahead):
        behind = np.concatenate([behind, last[:, None]], axis=1)[:, 1 if order else 0 :]
        rows = draft.rows(behind)
        last = _draw(rows, drawn[1 + k, lost])
        for column, values in zip(tails, read_rows(rows, last), strict=True):
            column[:, k] = values
    beta = np.minimum(p, q).sum(axis=1).clip(max=1.0)
    return drafted, accepted.astype(np.int8), beta, *read_rows(q, drafted), *tails


def _draw(weights: Floats, u: Floats) -> TokenArray:
    """A token from each row of weights [B, V], with u [B]."""
    return draw_siblings("sampled", weights, u[None])[0].astype(np.int32)
