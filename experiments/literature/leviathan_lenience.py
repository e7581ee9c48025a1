"""What lenience can gain: the speed-ups printed with Table 5 of Leviathan et al., arXiv 2211.17192, against
Thm 3.8.

For T5-small on EnDe, temperature 1, Table 5 prints α(l) = .62, .71, .76, .84 at l = 1, .5, .3, .1, and the
text speed-ups of 2.5, 3.1, 3.6 and 5 with c = .015. With these α and c the theorem gives at most 2.33, 2.94,
3.45 and 4.79, at γ = 7, 9, 10 and 15. Here the improvement (1 - α^{γ+1})/((1 - α)(γc + 1)) for γ from 1 to
30, and its range over all α and c that round to the printed ones: three of the four printed speeds are above
it for every γ.
"""

from experiments import Progress, Row
from experiments.literature.published.values import FIGURES, LENIENCE, LENIENCE_TEXT, LENIENCES
from specsim.theory import walltime_improvement

TITLE = "Lenience: improvement against γ, and the published speed-ups above its maximum"

C, C_HALF, ALPHA_HALF = 0.015, 0.0005, 0.005
GAMMAS = range(1, 31)


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each lenience and γ; `low` and `high` are the ends of the range."""
    printed = {(figure.where, figure.quantity): figure.printed for figure in FIGURES}
    alphas = printed[LENIENCE, "α(l), T5-small"].split()
    return [
        {
            "lenience": float(lenience),
            "alpha": float(alpha),
            "gamma": gamma,
            "improvement": walltime_improvement(float(alpha), gamma, C),
            "low": walltime_improvement(float(alpha) - ALPHA_HALF, gamma, C + C_HALF),
            "high": walltime_improvement(float(alpha) + ALPHA_HALF, gamma, C - C_HALF),
            "printed": printed[LENIENCE_TEXT, f"speed-up at l = {lenience}, c = .015, T5-small"],
        }
        for lenience, alpha in zip(LENIENCES, alphas, strict=True)
        for gamma in GAMMAS
    ]
