"""What independence gets wrong: tokens per step of the n-gram pair, and the i.i.d. formula fed with each of
three α.

(1 - α^{γ+1})/(1 - α) (Leviathan et al., arXiv 2211.17192, Eq. 1) takes acceptances for independent and alike.
Along a text they are neither. Here a text is drawn from the 5-gram target with what its 2-gram draft proposes
at each position (`specsim.planning._policies._log` says why steps cut from it have the distribution of
standard sampling), and walked with γ = 1, 2, … tokens a step. The measured tokens per step are compared with
the formula at

- alpha_context, the mean of Σ min(p, q) over the text: the α of the papers, which does not know γ;
- alpha_verified, accepted / tested, at that γ;
- alpha_drafted, accepted / drafted, which engines report, at that γ.

Acceptances cling together here, and the first two overstate, alpha_context the most, where γ is about as long
as a run of acceptances: a step that passes all of its drafts, in easy text, takes its bonus token there
untested, so that the tested positions are harder than the text. At γ = ∞ nothing is skipped, a step ends with
each rejection, and both are right whatever the dependence. alpha_drafted counts drafts after a rejection as
if they had been rejected themselves: from γ = 2 on it understates, and by far. The best γ is here the
formula's at alpha_context or one more, since a step whose drafts were accepted so far is in easy text.

Steps that begin anywhere ("anywhere": at each position of the text in turn, as in a benchmark of single
steps) emit more than those that begin where the last one ended, mostly in hard text, and more than the
formula has at alpha_context: the sign of its error is a matter of where steps begin.

The same again with a draft that has been moved towards its target (`specsim.models.Mixture`), so that 1 - β
is smaller in the same proportion at every position.

Beside that the autocorrelation along the text of acceptance, a bit for each position, and of β = Σ min(p, q),
with the standard error 1/√N that independent values would have; and the γ with the largest improvement in
wall time tokens/(γc + 1) (Thm 3.8), measured, and by the formula at each α, with the share of the best
measured improvement that the formula's choice loses. alpha_verified and alpha_drafted are those at γ = `RUN`,
where an engine would have measured them.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from experiments import Floats, Progress, Row
from specsim import default_pair, draft_log
from specsim.models import Mixture
from specsim.planning import Constant, ConstantRatio
from specsim.planning._policies._log import ACCEPTED, DraftLog
from specsim.planning._policies._simulate import simulate_steps
from specsim.theory import expected_tokens, optimal_gamma

TITLE = "Tokens per step along a text, measured and by the formula for independent acceptances"

LENGTH, FAST_LENGTH = 3 * 2**16, 2**13
GAMMAS = range(1, 25)
RUN = 5
COSTS = (0.01, 0.02, 0.05, 0.1)
LAGS = range(1, 21)
#: How far the draft is moved towards its target: not at all, and to an α that is usual for language models.
WEIGHTS = (0.0, 0.7)
#: Parts of the text, each left out in turn, for standard errors: neighbouring steps are alike.
BLOCKS = 64

ALPHAS = ("alpha_context", "alpha_verified", "alpha_drafted")
TOKENS, ALPHA, OVERSTATEMENT = "tokens per step", "alpha", "overstatement"


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """For each draft, rows of six quantities. Against γ in `x`: "tokens per step", "alpha", and
    "overstatement", the formula / measured - 1; against the lag in `x`: "autocorrelation"; for a `c`: "best
    gamma" and "improvement lost". `of` says which line a row belongs to: "measured", "anywhere" or the α that
    was used, "acceptance" or "β"."""
    target, draft = default_pair()
    rows: list[Row] = []
    for weight in WEIGHTS:
        moved = Mixture(draft, target, weight)
        log = draft_log(target, moved, FAST_LENGTH if fast else LENGTH, rng=rng, ahead=0)
        rows += [{"weight": weight, **row} for row in _rows_of(log)]
    return rows


def autocorrelation(series: ArrayLike, lags: Iterable[int]) -> list[float]:
    """Σ x_t x_{t+k} / Σ x_t² of the centred `series` [N] at each lag k; 0 if it is constant."""
    x = np.asarray(series, dtype=np.float64)
    x = x - x.mean()
    total = float(x @ x) or 1.0
    return [float(x[:-lag] @ x[lag:]) / total for lag in lags]


def _rows_of(log: DraftLog) -> Iterator[Row]:
    measured = {gamma: measure(log, gamma) for gamma in GAMMAS}
    for gamma, values in measured.items():
        for (quantity, of), (value, error) in values.items():
            yield _row(quantity, of, value, x=gamma, error=error)
    for of, series in (("acceptance", log.accepted == ACCEPTED), ("β", log.beta)):
        for lag, value in zip(LAGS, autocorrelation(series, LAGS), strict=True):
            yield _row("autocorrelation", of, value, x=lag, error=len(log) ** -0.5)
    for c in COSTS:
        speeds = {0: 1.0} | {
            gamma: measured[gamma][TOKENS, "measured"][0] / (gamma * c + 1) for gamma in GAMMAS
        }
        best = max(speeds, key=lambda gamma: speeds[gamma])
        chosen = {of: int(optimal_gamma(measured[RUN][ALPHA, of][0], c, max(GAMMAS))) for of in ALPHAS}
        for of, gamma in {"measured": best, **chosen}.items():
            yield _row("best gamma", of, float(gamma), c=c)
            yield _row("improvement lost", of, 1.0 - speeds[gamma] / speeds[best], c=c)


def _row(quantity: str, of: str, value: float, **others: Any) -> Row:
    return {"quantity": quantity, "of": of, "c": None, "x": None, "value": value, "error": None} | others


def measure(log: DraftLog, gamma: int) -> dict[tuple[str, str], tuple[float, float]]:
    """{(quantity, of): (value, standard error)} of one γ; errors by the jackknife over blocks of the text."""
    steps = np.array(
        [step[:3] for step in simulate_steps(log, Constant(gamma), ConstantRatio(0.0))], dtype=np.int64
    )
    start, drafted, accepted = steps.T
    tested = accepted + (accepted < drafted)
    columns = [(start, weights) for weights in (np.ones(len(steps)), drafted, accepted, tested)]
    text = np.ones(len(log)), log.beta, np.minimum(log.runs, gamma)
    columns += [(np.arange(len(log)), weights) for weights in text]
    sums = np.array(
        [np.bincount(place * BLOCKS // len(log), weights, minlength=BLOCKS) for place, weights in columns]
    )
    whole, without = (
        _estimates(parts, gamma) for parts in (sums.sum(axis=1), sums.sum(axis=1)[:, None] - sums)
    )
    return {
        key: (float(value), float(without[key].std()) * (BLOCKS - 1) ** 0.5) for key, value in whole.items()
    }


def _estimates(sums: Floats, gamma: int) -> dict[tuple[str, str], Floats]:
    """From the sums, [7] or [7, blocks], over steps of one, drafted, accepted and tested tokens, and over
    positions of one, β, and tokens that a step from there would accept."""
    steps, drafted, accepted, tested, positions, beta, ahead = sums
    tokens = 1.0 + accepted / steps
    found = {(TOKENS, "measured"): tokens, (TOKENS, "anywhere"): 1.0 + ahead / positions}
    for of, alpha in zip(ALPHAS, (beta / positions, accepted / tested, accepted / drafted), strict=True):
        formula = np.asarray(expected_tokens(alpha, gamma))
        found |= {(ALPHA, of): alpha, (TOKENS, of): formula, (OVERSTATEMENT, of): formula / tokens - 1.0}
    return found
