"""The long guide's section on performance: its formula, its break-even, its rules of thumb for K, its table."""

from __future__ import annotations

from functools import partial

import numpy as np

from experiments.claims.anatomy import Claim, Outcome, decide, only_if, printed_as
from experiments.claims.exact_speedups import two_to_four
from experiments.claims.speed import (
    accepted_share,
    alpha_of_share,
    best_speed,
    needed_alpha,
    root,
    speed,
    speed_of_share,
)
from specsim.theory import accepted_law, expected_tokens, optimal_gamma

__all__ = ["CLAIMS"]

SOURCE = "long guide"
FORMULA, K_RULES = "8, The Speedup Formula Explained", "8, Optimal K Selection"
ALPHAS, COSTS = (0.3, 0.5, 0.7, 0.8, 0.9), (0.02, 0.05, 0.1, 0.2)


def guide_speed(alpha: float, k: int, r: float, beta: float | None = None) -> float:
    """(αK + β)/(Kr + 1), with β = α^K unless given."""
    return (alpha * k + (alpha**k if beta is None else beta)) / (k * r + 1)


# --- the formula -----------------------------------------------------------------------------------------


def formula(alpha: float = 0.75, k: int = 4, r: float = 0.1) -> Outcome:
    """Both readings of α: per tested token, and accepted / drafted, where β is the chance that all pass."""
    alphas = np.linspace(0.05, 0.95, 19)
    tested = [guide_speed(a, k, r) / speed(a, k, r) - 1 for a in alphas]
    shares = [accepted_share(a, k) for a in alphas]
    drafted = [
        guide_speed(share, k, r, a**k) / speed_of_share(share, k, r) - 1
        for a, share in zip(alphas, shares, strict=True)
    ]
    return decide(
        max(map(abs, tested)) < 1e-9 or max(map(abs, drafted)) < 1e-9,
        f"{guide_speed(alpha, k, r):.3f} at α = {alpha}, K = {k}, r = {r}; exactly {speed(alpha, k, r):.3f} if α is per tested "
        f"token, {speed_of_share(alpha, k, r):.3f} if it is accepted / drafted. For α from {alphas[0]:.2f} to {alphas[-1]:.2f} it is off by "
        f"{min(tested):+.0%} to {max(tested):+.0%} in the first reading and {min(drafted):+.0%} to {max(drafted):+.0%} in the "
        "second, whose numerator is αK + 1: a step that rejects emits a token too",
    )


def numerator(alpha: float = 0.75, k: int = 4) -> Outcome:
    """αK + β against the tokens of a step."""
    law = accepted_law(alpha, k)
    share, every = float(np.arange(k + 1) @ law) / k, float(law[-1])
    return decide(
        abs(share * k + every - float(expected_tokens(alpha, k))) < 1e-9,
        f"α = {alpha} per tested token, K = {k}: {share * k:.3f} accepted and {every:.3f} bonus tokens make "
        f"{share * k + every:.3f}, and with the {1 - every:.3f} recovered ones a step emits {expected_tokens(alpha, k):.3f}",
    )


def beta_for_large_k(alpha: float = 0.75) -> Outcome:
    """1 - (1 - α)^K, and α^K, which the guide calls the same."""
    shown = {k: (1 - (1 - alpha) ** k, alpha**k) for k in (4, 8, 16)}
    return decide(
        all(abs(one - other) < 0.05 for one, other in shown.values()),
        "; ".join(f"K = {k}: {one:.4f} and {other:.4f}" for k, (one, other) in shown.items())
        + f", at α = {alpha}: the first is the chance that one of K passes, the second that all do",
    )


def example(printed: str = "2.37", alpha: float = 0.75, k: int = 4, r: float = 0.1) -> Outcome:
    value = guide_speed(alpha, k, r)
    return printed_as(printed, value, f"({alpha}·{k} + {alpha}^{k})/({k}·{r} + 1) = {value:.4f}")


def fourth_power(printed: str = "0.316", alpha: float = 0.75, k: int = 4) -> Outcome:
    return printed_as(printed, alpha**k, f"{alpha}^{k} = {alpha**k:.6f}")


def bonus_in_a_third(share: float = 0.75, k: int = 4, printed: str = "0.32") -> Outcome:
    alpha = alpha_of_share(share, k)
    return only_if(
        abs(share**k - float(printed)) < 0.005,
        abs(alpha**k - float(printed)) < 0.005,
        f"only if {share:.0%} of the tested tokens pass: {share**k:.3f} of the steps; if {share:.0%} of the drafted ones do, as "
        f"the guide defines the rate, α is {alpha:.3f} per tested token and {alpha**k:.3f} of the steps have a bonus",
    )


def four_hundred(printed: str = "2.86") -> Outcome:
    value = 400 / (4 * 10 + 100)
    return printed_as(printed, value, f"400/(4·10 + 100) = {value:.4f}")


def concrete_example(claimed: float = 2.86, k: int = 4, r: float = 0.1) -> Outcome:
    alphas = (0.7, 0.8, 1.0)
    speeds = [speed(alpha, k, r) for alpha in alphas]
    alpha = root(lambda a: speed(a, k, r) - claimed, 0.0, 1.0)
    return only_if(
        speeds[-1] >= claimed,
        speeds[0] >= claimed,
        f"only if α ≥ {alpha:.3f}: "
        + ", ".join(f"{value:.2f} at α = {a}" for a, value in zip(alphas, speeds, strict=True))
        + f", the bonus counted, K = {k}, r = {r}",
    )


def time_of_one(k: int = 4, r: float = 0.1, small: float = 0.01) -> Outcome:
    """The time of a step in target passes, with the guide's second pass where all drafts pass."""
    low, high = k * small + 1, k * r + 1
    return only_if(
        low < 1.1,
        high < 1.1,
        f"only if K·r is small: a step of {k} takes {low:.2f} passes' time at r = {small} and {high:.2f} at r = {r}, a second pass "
        f"for the bonus {high + 1:.2f}",
    )


def without_second_pass(alpha: float = 0.75, k: int = 4, r: float = 0.1) -> Outcome:
    """The bonus from the last row of the pass, from a pass of its own, and not at all."""
    tokens, every = float(expected_tokens(alpha, k)), alpha**k
    free, paid, none = (
        tokens / (k * r + 1),
        tokens / (k * r + 1 + every),
        (tokens - every) / (k * r + 1),
    )
    return decide(
        abs(paid - free) < 1e-9,
        f"the guide's code makes a pass of its own for the bonus: {paid:.3f} times faster instead of {free:.3f} (α = {alpha}, K "
        f"= {k}, r = {r}), less than the {none:.3f} without any bonus, since it pays a whole pass for one token",
    )


def estimator(alpha: float = 0.75, k: int = 4, r: float = 0.1) -> Outcome:
    """tokens · (target time / iterations) / all time, where target time has the second passes in it."""
    tokens, every = float(expected_tokens(alpha, k)), alpha**k
    target, all_time = 1 + every, 1 + every + k * r
    estimate, truth = tokens * target / all_time, tokens / all_time
    return only_if(
        abs(tokens / (1 + k * r) - speed(alpha, k, r)) < 1e-9,
        abs(estimate - truth) < 1e-9,
        f"only if no step has a bonus: with its own second passes the guide's estimator says {estimate:.2f} where {truth:.2f} is "
        f"true (α = {alpha}, K = {k}, r = {r}), too much by 1 + α^K = {target:.3f}",
    )


# --- break-even ------------------------------------------------------------------------------------------


def break_even(r: float = 0.1, k: int = 4, printed: float = 0.35) -> Outcome:
    """Whether an acceptance rate a little lower gains nothing, and where a gain begins."""
    below = printed - 0.01
    begins = root(lambda alpha: speed(alpha, k, r) - 1.0, 0.0, 1.0)
    return decide(
        max(speed(below, k, r), speed_of_share(below, k, r)) <= 1,
        f"r + 1/K = {r + 1 / k:.2f}; at K = {k} a gain begins at α = {begins:.3f} per tested token, and at {r:.2f} accepted / "
        f"drafted, as (αK + 1)/(Kr + 1) > 1 says; with the best K at {r:.2f} in either reading, and at α = {printed} it is "
        f"{best_speed(printed, r):.3f} times faster",
    )


def needs_forty_percent(alpha: float = 0.4) -> Outcome:
    speeds = {r: best_speed(alpha - 0.1, r) for r in COSTS}
    return decide(
        max(speeds.values()) <= 1,
        f"at α = {alpha - 0.1:.1f} the best K gives "
        + ", ".join(f"{value:.2f} at r = {r}" for r, value in speeds.items())
        + ": any α above r gains",
    )


def slower_below_forty(alpha: float = 0.35) -> Outcome:
    values = {(k, r): speed(alpha, k, r) for k in (4, 8) for r in (0.1, 0.2)}
    return decide(
        min(values.values()) < 1,
        f"at α = {alpha} " + ", ".join(f"{v:.2f} at K = {k}, r = {r}" for (k, r), v in values.items()),
    )


def five_times_faster(alpha: float = 0.8) -> Outcome:
    speeds = {times: best_speed(alpha, 1 / times) for times in (2, 3, 5, 10)}
    return decide(
        max(speeds[2], speeds[3]) <= 1,
        f"at α = {alpha} a draft that is "
        + ", ".join(f"{times} times as fast gains {value:.2f}" for times, value in speeds.items())
        + f"; twice as fast gains from α = {1 / 2:.1f} on",
    )


def ratio_of_three_tenths(
    r: float = 0.3, good: float = 1.5, alphas: tuple[float, ...] = (0.6, 0.8, 0.95)
) -> Outcome:
    needed, speeds = needed_alpha(good, r), [best_speed(alpha, r) for alpha in alphas]
    return only_if(
        speeds[0] < good,
        speeds[-1] < good,
        f"only if α < {needed:.3f}, where the best K at r = {r} is {good} times faster, the guide's own bound for worth it: "
        + ", ".join(f"{value:.2f} at α = {alpha}" for value, alpha in zip(speeds, alphas, strict=True)),
    )


def two_or_three_times(minimal: float = 1.2, alphas: tuple[float, float] = (0.6, 0.9)) -> Outcome:
    speeds = [best_speed(alpha, 1 / times) for times, alpha in zip((2, 3), alphas, strict=True)]
    return only_if(
        speeds[0] < minimal,
        speeds[1] < minimal,
        f"only for moderate α: a draft two times as fast gains {speeds[0]:.2f} at α = {alphas[0]}, one three times as fast "
        f"{speeds[1]:.2f} at α = {alphas[1]}",
    )


# --- K ---------------------------------------------------------------------------------------------------


def band(low: float, high: float, smallest: int, largest: int, share: float = 0.95) -> Outcome:
    """Whether some recommended K keeps that share of the best speed, at each α of the band, for each cost."""
    alphas = np.linspace(low, high, 9).tolist()
    best = {r: (int(optimal_gamma(low, r)), int(optimal_gamma(high, r))) for r in COSTS}
    kept = {
        r: min(max(speed(a, k, r) for k in range(smallest, largest + 1)) / best_speed(a, r) for a in alphas)
        for r in COSTS
    }
    good = [r for r in COSTS if kept[r] >= share]
    shown = "; ".join(
        f"r = {r}: {kept[r]:.0%}, the best K is {ends[0]} to {ends[1]}" for r, ends in best.items()
    )
    condition = f"only if r is about {' or '.join(map(str, good))}: " if 0 < len(good) < len(COSTS) else ""
    return only_if(
        bool(good),
        len(good) == len(COSTS),
        f"{condition}for α from {low} to {high} one of the recommended K keeps at least this share of the best speed: {shown} "
        f"(asked for {share:.0%})",
    )


def small_k(smallest: int = 2, largest: int = 8) -> Outcome:
    best = {(a, r): int(optimal_gamma(a, r)) for a in ALPHAS for r in COSTS}
    outside = sum(not smallest <= k <= largest for k in best.values())
    return only_if(
        outside < len(best),
        outside == 0,
        f"only between: the best K is from {min(best.values())} to {max(best.values())} for α from {ALPHAS[0]} to {ALPHAS[-1]} and r from "
        f"{COSTS[0]} to {COSTS[-1]}, outside {smallest} to {largest} in {outside} of {len(best)} cases",
    )


def larger_k_is_better(alpha: float = 0.75, r: float = 0.1) -> Outcome:
    """That larger K does not always gain."""
    speeds = {k: speed(alpha, k, r) for k in (2, 4, 8, 16)}
    return decide(
        speeds[16] < speeds[4],
        f"at α = {alpha}, r = {r}: "
        + ", ".join(f"{value:.2f} at K = {k}" for k, value in speeds.items())
        + f"; the best K is {optimal_gamma(alpha, r)}",
    )


def fewer_drafts_pass_more_often(alpha: float = 0.75) -> Outcome:
    """That reducing K raises the share accepted; it does with α unchanged."""
    shares = {k: accepted_share(alpha, k) for k in (8, 4, 3, 2)}
    tested = {k: alpha_of_share(share, k) for k, share in shares.items()}
    return only_if(
        shares[2] > shares[8],
        tested[2] > tested[8] + 1e-9,
        f"only as accepted / drafted: with α = {alpha} for every tested token it goes "
        + ", ".join(f"{share:.3f} at K = {k}" for k, share in shares.items())
        + "; nothing about the models has changed",
    )


def later_tokens(alpha: float = 0.75, k: int = 8) -> Outcome:
    """Acceptance by position: once tested, and of all drafted."""
    law = accepted_law(alpha, k)
    reached = np.cumsum(law[::-1])[::-1]
    conditional = reached[1:] / reached[:-1]
    return only_if(
        reached[k] < reached[1],
        bool(conditional.min() < conditional.max() - 1e-9),
        f"only if tokens that were never tested count as rejected: with no errors that accumulate, α = {alpha}, the first of "
        f"{k} passes with probability {reached[1]:.3f} and the last with {reached[k]:.3f}, but each with {conditional[-1]:.3f} "
        "once it is tested",
    )


def fewer_drafts_more_bonus(alpha: float = 0.75) -> Outcome:
    chances = {k: alpha**k for k in (2, 4, 8)}
    return decide(
        list(chances.values()) == sorted(chances.values(), reverse=True),
        "all pass with probability "
        + ", ".join(f"{chance:.3f} at K = {k}" for k, chance in chances.items())
        + f", α = {alpha}",
    )


def bonus_is_secondary(k: int = 4) -> Outcome:
    shares = {a: a**k / float(expected_tokens(a, k)) for a in (0.5, 0.75, 0.95)}
    return decide(
        max(shares.values()) < 0.5,
        ", ".join(f"{share:.1%} of the tokens at α = {a}" for a, share in shares.items())
        + f", at most {1 / (k + 1):.0%} (K = {k})",
    )


# --- other rules of thumb --------------------------------------------------------------------------------


def step_five(tolerance: float = 0.1, k: int = 4, r: float = 0.1) -> Outcome:
    """αK/(Kr + 1)."""

    def off(alpha: float, k: int) -> float:
        return alpha * k / (k * r + 1) / speed(alpha, k, r) - 1

    middle, ends = (
        [off(alpha, k) for alpha in (0.4, 0.6, 0.8)],
        [off(0.2, k), off(0.6, 2 * k), off(0.6, 4 * k)],
    )
    share = 0.6 * k / (0.6 * k + 1) - 1
    return only_if(
        max(map(abs, middle)) < tolerance,
        max(map(abs, ends)) < tolerance,
        f"only for K = {k} and α from 0.4 to 0.8 per tested token, by accident: off by {min(middle):+.0%} to {max(middle):+.0%}; "
        f"{ends[0]:+.0%} at α = 0.2, {ends[1]:+.0%} at α = 0.6, K = {2 * k}, {ends[2]:+.0%} at K = {4 * k}; if α is accepted / "
        f"drafted it lacks the token that every step adds, {share:+.0%} at α = 0.6",
    )


def increase_r(alpha: float = 0.75, k: int = 4) -> Outcome:
    speeds = {r: speed(alpha, k, r) for r in (0.1, 0.2, 0.4)}
    return decide(
        speeds[0.4] > speeds[0.1],
        ", ".join(f"{value:.2f} at r = {r}" for r, value in speeds.items())
        + f" (α = {alpha}, K = {k}): r = T_draft/T_target should fall",
    )


def higher_alpha_is_faster() -> Outcome:
    grid = [[speed(a / 20, k, r) for a in range(21)] for k in (1, 2, 4, 8) for r in (0.05, 0.2)]
    rising = sum(speeds == sorted(speeds) and speeds[0] < speeds[-1] for speeds in grid)
    return decide(rising == len(grid), f"the speed rises with α for {rising} of {len(grid)} pairs of K and r")


def small_model_is_faster() -> Outcome:
    ceilings = {r: max((k + 1) / (k * r + 1) for k in range(1, 1001)) for r in COSTS}
    return decide(
        all(value < 1 / r for r, value in ceilings.items()),
        "; ".join(
            f"r = {r}: at most {value:.2f} times with α = 1 and K up to 1000, the draft alone {1 / r:.0f} times"
            for r, value in ceilings.items()
        ),
    )


def passes_for(length: int, alpha: float, k: int) -> tuple[float, float]:
    """Expected passes of the target and of the draft for a text of that many tokens, drafts cut to what remains."""
    target, draft = [0.0], [0.0]
    for remaining in range(1, length + 1):
        drafted = min(k, remaining - 1)
        law = accepted_law(alpha, drafted)
        target.append(1 + sum(w * target[remaining - n - 1] for n, w in enumerate(law)))
        draft.append(drafted + sum(w * draft[remaining - n - 1] for n, w in enumerate(law)))
    return target[length], draft[length]


def short_texts(
    lengths: tuple[int, ...] = (5, 10, 20, 100), alpha: float = 0.75, k: int = 4, r: float = 0.1
) -> Outcome:
    """Texts of N tokens without any cost to begin with, and what such a cost would have to be to eat the gain."""
    speeds, room = {}, {}
    for length in lengths:
        target, draft = passes_for(length, alpha, k)
        speeds[length], room[length] = length / (target + r * draft), length - target - r * draft
    start = 1.1 * room[20]
    return only_if(
        20 / (20 - room[20] + start) < 1,
        min(speeds.values()) < 1,
        "only if beginning costs something: without that texts of "
        + ", ".join(f"{length} tokens are {value:.2f} times faster" for length, value in speeds.items())
        + f" (α = {alpha}, K = {k}, r = {r}); a cost of {room[20]:.1f} passes of the target eats the gain of 20 tokens",
    )


def table_row(
    r: str, alphas: tuple[float, float], ks: tuple[int, int], printed: tuple[float, float]
) -> Outcome:
    """Speeds at the ends of the printed ranges, r within its rounding, in both readings of α, and with all accepted."""
    half = 0.5 * 10.0 ** -len(r.partition(".")[2])
    grid = [
        (alpha, k, cost)
        for alpha in alphas
        for k in range(ks[0], ks[1] + 1)
        for cost in (float(r) - half, float(r) + half)
    ]
    tested = sorted(speed(*point) for point in grid)
    drafted = sorted(speed_of_share(*point) for point in grid)
    ceiling = max(speed(1.0, k, cost) for _, k, cost in grid)
    readings = [low[0] <= printed[0] and printed[1] <= low[-1] for low in (tested, drafted)]
    return only_if(
        any(readings),
        readings[0],
        f"{tested[0]:.2f} to {tested[-1]:.2f} if the rate is per tested token, {drafted[0]:.2f} to {drafted[-1]:.2f} if it is "
        f"accepted / drafted, {ceiling:.2f} at most if everything passes; printed {printed[0]} to {printed[1]}",
    )


def recommended(
    r: float, alphas: tuple[float, float], ks: tuple[int, int], pair: str, share: float = 0.95
) -> Outcome:
    """Whether one of the recommended K keeps that share of the best speed at both ends of the printed rates."""
    kept = [max(speed(a, k, r) for k in range(ks[0], ks[1] + 1)) / best_speed(a, r) for a in alphas]
    best = [int(optimal_gamma(a, r)) for a in alphas]
    return only_if(
        max(kept) >= share,
        min(kept) >= share,
        f"{'' if min(kept) >= share else 'only at one end: '}{pair}, r = {r}: the best K is {best[0]} at α = {alphas[0]} and "
        f"{best[1]} at α = {alphas[1]}; one of {ks[0]} to {ks[1]} keeps {kept[0]:.0%} and {kept[1]:.0%} of the best speed",
    )


def smaller_is_faster(factor: float = 1.5) -> Outcome:
    """Parameters in millions and r, of the four pairs of the guide's table."""
    table = ((124, 774, 0.12), (82, 774, 0.08), (355, 774, 0.45), (7000, 70000, 0.10))
    ratios = [(target / draft, 1 / r) for draft, target, r in table]
    return decide(
        all(1 / factor < faster / smaller < factor for smaller, faster in ratios),
        "in the guide's table drafts are "
        + ", ".join(
            f"{smaller:.1f} times smaller and {faster:.1f} times faster" for smaller, faster in ratios
        ),
    )


#: Pairs of models, r, acceptance rates, recommended K, observed speed-ups.
TABLE = (
    ("GPT-2 Small → Large", "0.12", (0.70, 0.80), (4, 6), (2.3, 2.8)),
    ("DistilGPT-2 → Large", "0.08", (0.65, 0.75), (4, 6), (2.5, 3.0)),
    ("GPT-2 Medium → Large", "0.45", (0.80, 0.90), (3, 4), (1.6, 2.0)),
    ("Llama-2 7B → 70B", "0.10", (0.75, 0.85), (5, 7), (2.8, 3.5)),
)

HARDWARE = "the models, and the hardware to time them on"

CLAIMS: list[Claim] = [
    Claim(
        "speed.formula",
        SOURCE,
        FORMULA,
        "Speedup = (α × K + β) / (K × r + 1)",
        "the speed of speculative decoding",
        check=formula,
    ),
    Claim(
        "speed.numerator",
        SOURCE,
        FORMULA,
        "total expected tokens per iteration is α × K + β",
        "what a step emits",
        check=numerator,
    ),
    Claim(
        "speed.beta",
        SOURCE,
        FORMULA,
        "approximately 1 - (1-α)^K for large K, or",
        "the probability of a bonus token",
        check=beta_for_large_k,
    ),
    Claim(
        "speed.example",
        SOURCE,
        FORMULA,
        "3.316 / 1.4 = 2.37x",
        "the arithmetic of the example",
        check=example,
    ),
    Claim(
        "speed.power",
        SOURCE,
        FORMULA,
        "(0.75)^4 = 0.316",
        "the arithmetic of the example",
        check=fourth_power,
    ),
    Claim(
        "speed.third",
        SOURCE,
        "10, Bonus tokens rarely sampled",
        "or about 32%. … roughly one-third of iterations",
        "how often there is a bonus at an acceptance rate of 75 %",
        check=bonus_in_a_third,
    ),
    Claim(
        "speed.286",
        SOURCE,
        "3, A Concrete Example",
        "400ms / 140ms = 2.86",
        "the arithmetic of the example",
        check=four_hundred,
    ),
    Claim(
        "speed.concrete",
        SOURCE,
        "3, A Concrete Example",
        "2.86 times faster",
        "what the example gains",
        check=concrete_example,
    ),
    Claim(
        "speed.one",
        SOURCE,
        "11, Summary of Key Concepts",
        "K tokens in approximately the time … to generate one",
        "the time of a step",
        check=time_of_one,
    ),
    Claim(
        "speed.bonus_pass",
        SOURCE,
        "5, The Bonus Token; code",
        "improves efficiency without any additional cost",
        "the bonus is free, in the code that is given",
        check=without_second_pass,
    ),
    Claim(
        "speed.estimator",
        SOURCE,
        "6, estimated_speedup",
        "Each iteration uses one target forward pass",
        "the estimate of the speed",
        check=estimator,
    ),
    Claim(
        "speed.two_to_four",
        SOURCE,
        "1, The Promise; 11, Final Thoughts",
        "speedups of two to four times",
        "what is readily gained",
        check=two_to_four,
    ),
    *(
        Claim(
            f"speed.break_even_{r}",
            SOURCE,
            "8, Break-Even Analysis",
            f"α > r + 1/K; r = {r}, K = 4: {printed}",
            "the minimum acceptance rate for any speed-up",
            check=partial(break_even, r, 4, printed),
        )
        for r, printed in ((0.1, 0.35), (0.2, 0.45), (0.5, 0.75))
    ),
    Claim(
        "speed.forty",
        SOURCE,
        "9, Misconception Five; 11",
        "at least forty to fifty percent to see any speedup",
        "the acceptance that is needed",
        check=needs_forty_percent,
    ),
    Claim(
        "speed.below_forty",
        SOURCE,
        "8, When It Does Not Help",
        "below forty percent … can actually be slower",
        "low acceptance can cost",
        check=slower_below_forty,
    ),
    Claim(
        "speed.five_times",
        SOURCE,
        "9, Misconception Five; 11",
        "at least five times",
        "how much faster the draft must be for any gain",
        check=five_times_faster,
    ),
    Claim(
        "speed.r_03",
        SOURCE,
        "8, Decision Framework",
        "If r > 0.3, … too large to provide good speedups",
        "the largest useful ratio",
        check=ratio_of_three_tenths,
    ),
    Claim(
        "speed.two_or_three",
        SOURCE,
        "11, When Not to Use",
        "only two or three times faster … minimal or nonexistent",
        "the gain with a slow draft",
        check=two_or_three_times,
    ),
    *(
        Claim(
            f"speed.k_{smallest}_{largest}",
            SOURCE,
            K_RULES,
            f"acceptance {where}: use K = {smallest} to {largest}",
            "the best K by acceptance rate",
            check=partial(band, low, high, smallest, largest),
        )
        for where, low, high, smallest, largest in (
            ("above 80 %", 0.8, 0.95, 6, 8),
            ("60 to 80 %", 0.6, 0.8, 4, 6),
            ("40 to 60 %", 0.4, 0.6, 3, 4),
            ("below 40 %", 0.2, 0.4, 2, 3),
        )
    ),
    Claim(
        "speed.small_k",
        SOURCE,
        K_RULES,
        "typically between two and eight",
        "the range in which K is chosen",
        check=small_k,
    ),
    Claim(
        "speed.larger_k",
        SOURCE,
        "9, Misconception Four",
        "Very large K values can actually hurt",
        "there is a best K",
        check=larger_k_is_better,
    ),
    Claim(
        "speed.reduce_k",
        SOURCE,
        "10, Very low acceptance rate",
        "Reduce K … whether the acceptance rate improves",
        "a smaller K raises the acceptance rate",
        check=fewer_drafts_pass_more_often,
    ),
    Claim(
        "speed.later",
        SOURCE,
        "10, Very low acceptance rate",
        "later tokens … more likely to be rejected because errors accumulate",
        "acceptance falls along the draft",
        check=later_tokens,
    ),
    Claim(
        "speed.more_bonus",
        SOURCE,
        "10, Bonus tokens rarely sampled",
        "smaller K means higher probability of all being accepted",
        "bonus tokens and K",
        check=fewer_drafts_more_bonus,
    ),
    Claim(
        "speed.secondary",
        SOURCE,
        "10, Bonus tokens rarely sampled",
        "not the primary source of speedup",
        "how much the bonus is of what is gained",
        check=bonus_is_secondary,
    ),
    Claim(
        "speed.step_five",
        SOURCE,
        "8, Decision Framework",
        "Speedup ≈ (α × K) / (K × r + 1)",
        "the short formula",
        check=step_five,
    ),
    Claim(
        "speed.increase_r",
        SOURCE,
        "8, Decision Framework",
        "Draft model is too slow (increase r)",
        "the remedy for a slow draft",
        check=increase_r,
    ),
    Claim(
        "speed.higher",
        SOURCE,
        "5, Summary of the Guarantees",
        "Higher acceptance rates lead to greater speedups",
        "speed rises with α",
        check=higher_alpha_is_faster,
    ),
    Claim(
        "speed.small_model",
        SOURCE,
        "8 and 11, approximations",
        "much faster than speculative decoding",
        "the draft alone is faster still",
        check=small_model_is_faster,
    ),
    Claim(
        "speed.short",
        SOURCE,
        "8, Scenario three",
        "fewer than ten to twenty … overhead … may exceed the time saved",
        "no gain on short texts",
        check=short_texts,
    ),
    *(
        Claim(
            f"speed.table_{number}",
            SOURCE,
            "8, Empirical Performance Data",
            f"{pair}: r {r}, {alphas[0]:.2f} to {alphas[1]:.2f}, {printed[0]}x to {printed[1]}x",
            f"the observed speed-up for K = {ks[0]} to {ks[1]}",
            check=partial(table_row, r, alphas, ks, printed),
        )
        for number, (pair, r, alphas, ks, printed) in enumerate(TABLE, 1)
    ),
    *(
        Claim(
            f"speed.recommended_{number}",
            SOURCE,
            "8, Empirical Performance Data",
            f"Recommended K: {ks[0]} to {ks[1]}",
            f"the best K for {pair}",
            check=partial(recommended, float(r), alphas, ks, pair),
        )
        for number, (pair, r, alphas, ks, _) in enumerate(TABLE, 1)
    ),
    Claim(
        "speed.smaller",
        SOURCE,
        "11, Critical Requirements",
        "at least five to ten times smaller in terms of parameter count",
        "how speed goes with size",
        check=smaller_is_faster,
    ),
    Claim(
        "speed.ratios",
        SOURCE,
        "8, Empirical Performance Data",
        "Speed ratio (r): 0.12, 0.08, 0.45, 0.10",
        "draft time over target time",
        needs=HARDWARE,
    ),
    Claim(
        "speed.kv",
        SOURCE,
        "11, Extension one",
        "from two to three times to three to five times",
        "what a key-value cache would add",
        needs=HARDWARE,
    ),
    Claim(
        "speed.batch",
        SOURCE,
        "8, Scenario six",
        "Speculative decoding works best with batch size one",
        "the gain falls with the batch",
        needs=HARDWARE + ", at several batch sizes",
    ),
    Claim(
        "speed.per_token",
        SOURCE,
        "1, Quantifying the Problem",
        "one token every one hundred milliseconds",
        "the speed of GPT-2 Large",
        needs=HARDWARE,
    ),
    Claim(
        "speed.gpt3",
        SOURCE,
        "1, Quantifying the Problem",
        "several seconds just to generate a single token",
        "GPT-3 on consumer hardware",
        needs="GPT-3's weights, which are not published",
    ),
    Claim(
        "speed.families",
        SOURCE,
        "6, COMPATIBLE_FAMILIES",
        "2-3x; 2-4x; 1.5-2x",
        "typical speed-ups of three families",
        needs=HARDWARE,
    ),
]
