"""Sampling time, acceptance and loop time against K: the shape of Figure 1 of Chen et al., arXiv 2302.01318.

Chinchilla 70B takes 14.1 ms a token, its draft 1.8 ms, so that a loop of K drafted tokens takes 14.1 + 1.8·K
ms if nothing else costs time; the figure's own line, as a third party read it off, is about 14.1 + 2.07·K. A
loop emits loop(4)/time tokens at K = 4, with the time per token of Table 1 (7.52, 7.00 and 5.73 ms):
independent acceptances emit as many at α = .74, .77 and .88 for the steeper line, .71, .75 and .85 for the
other. With that α, (1 - α^{K+1})/(1 - α) tokens a loop (Leviathan et al., Eq. 1) give the time of 128 tokens,
and the figure's "acceptance rate", tokens emitted/(K + 1).

The text has the shortest time for XSum at K = 3; independent acceptances have it at 4, .6 to 2.2 % below, and
for HumanEval at 6 or 7. The points that were read off are no more exact than the eye that read them.
"""

from experiments import Progress, Row
from experiments.literature.published.recomputed import implied_alpha
from experiments.literature.published.values import CHINCHILLA_ROWS, DRAFT_MS, FIGURES, read_csv
from specsim.theory import expected_tokens

TITLE = "Time, acceptance and loop time against K, after Chen et al., Figure 1"

PRINTED_K = 4
TOKENS = 128
DRAFTS = range(8)
#: A drafted token's share of the loop's time in ms, as the figure was read off.
READ_OFF_DRAFT_MS = 2.07

TIME = f"sampling time of {TOKENS} tokens, ms"
ACCEPTANCE = "acceptance rate, tokens/(K + 1)"
LOOP = "loop time, ms"


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each curve, quantity and K; points that a third party read off the printed figure, in
    published/chen_figure_1.csv, have no α and no ms of a draft."""
    (printed,) = [figure.printed for figure in FIGURES if figure.quantity == DRAFT_MS]
    rows = []
    for draft_ms in (float(printed), READ_OFF_DRAFT_MS):
        for task, _, _, _, alone, _, ms, _ in CHINCHILLA_ROWS:
            alone_ms = float(alone)
            alpha = implied_alpha((alone_ms + PRINTED_K * draft_ms) / float(ms), PRINTED_K)
            for k in DRAFTS:
                tokens, loop = float(expected_tokens(alpha, k)), alone_ms + k * draft_ms
                rows.append(_row(task, alpha, draft_ms, TIME, k, TOKENS * loop / tokens))
                rows.append(_row(task, alpha, draft_ms, ACCEPTANCE, k, tokens / (k + 1)))
        rows += [_row("all", None, draft_ms, LOOP, k, alone_ms + k * draft_ms) for k in DRAFTS]
    return rows + [
        _row(row["task"], None, None, row["quantity"], int(row["k"]), float(row["value"]))
        for row in read_csv("chen_figure_1")
    ]


def _row(task: str, alpha: float | None, draft_ms: float | None, quantity: str, k: int, value: float) -> Row:
    return {"task": task, "alpha": alpha, "draft_ms": draft_ms, "quantity": quantity, "k": k, "value": value}
