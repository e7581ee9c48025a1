"""A long guide to speculative decoding: tokenizers, the mathematics, the code, misconceptions, troubleshooting.

Its formula for the speed and its rules of thumb are in `guide_speed.py`, its printed run in `guide_run.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import partial

import numpy as np

from experiments.claims import guide_run, guide_speed
from experiments.claims.anatomy import (
    ROUNDING,
    Claim,
    Outcome,
    Setting,
    decide,
    only_if,
)
from experiments.claims.laws import (
    DRAFT,
    TARGET,
    Row,
    fractions,
    overlap,
    pairs,
    row,
    standard_test,
    step,
)
from experiments.claims.speed import best_speed, speed
from specsim import rules
from specsim.core._kernels import interpreted
from specsim.core.distributions import synthetic_pair, temperature
from specsim.decoding import generate, sample
from specsim.models import TableModel, default_pair
from specsim.rules._common.tokenwise import positive_part
from specsim.theory import accepted_law, operations_factor
from specsim.theory._enumeration import prove

__all__ = ["CLAIMS", "gpt2_parameters"]

SOURCE = "long guide"


# --- text and tokenizers ---------------------------------------------------------------------------------


def hundred_tokens(seconds: tuple[float, float] = (10.0, 50.0), each: float = 0.1) -> Outcome:
    found = [100 * each, 500 * each]
    return decide(
        np.allclose(found, seconds),
        f"100 and 500 tokens at {each} s are {found[0]:.0f} and {found[1]:.0f} s",
    )


def six_tokens(printed: int = 6) -> Outcome:
    pieces = re.findall(r" ?\w+|[^\w\s]", "The cat sat on the mat")
    return decide(len(pieces) == printed, f"{len(pieces)} pieces: {pieces}")


def lists_every_token(listed: str = "The| cat| is| running| quickly") -> Outcome:
    text = "The cat is running quickly."
    joined = "".join(listed.split("|"))
    return decide(
        joined == text,
        f"the {len(listed.split('|'))} tokens listed make {joined!r}, {len(text) - len(joined)} character short of {text!r}",
    )


def checks_every_token(
    vocabulary: int = 50257, texts: int = 7, longest: int = 100, decoded: int = 9
) -> Outcome:
    """How many ids a check of that many texts, of at most so many bytes each, and decoded ids can have looked at."""
    seen = texts * longest + decoded
    return decide(
        seen >= vocabulary,
        f"{texts} texts of under {longest} bytes and {decoded} decoded ids show at most {seen} of {vocabulary:,} ids "
        f"({seen / vocabulary:.1%}); tokenizers that differ in the others pass",
    )


def other_tokens() -> Outcome:
    """A draft whose ids mean something else: its rows permuted, and its context read through the permutation."""
    order = (1, 2, 0)
    rows = [[row(DRAFT, [order[x]])[order[y]] for y in range(3)] for x in range(3)]
    found, own = step(TARGET, TableModel(rows)), step(TARGET, DRAFT)
    return decide(
        found.tv > 0,
        f"with all ids of the draft exchanged the law is still the target's (TV = {found.tv}), since any draft does; tokens a "
        f"step go from {float(own.tokens):.3f} to {float(found.tokens):.3f}",
    )


def other_vocabulary() -> Outcome:
    """A draft that knows two of the target's three tokens; its rows padded with zeros."""
    smaller = TableModel([fractions(1, 2, 0), fractions(2, 1, 0), fractions(1, 1, 0)])
    found = step(TARGET, smaller)
    return decide(
        found.tv > 0,
        f"a draft over 2 of the target's 3 tokens, padded with zeros, leaves the target's law: TV = {found.tv} at "
        f"{float(found.tokens):.3f} tokens a step of 2",
    )


def _exchanged(setting: Setting) -> tuple[float, float]:
    """α of the n-gram pair as it is, and with the draft's ids exchanged at random."""
    target, draft = default_pair()
    contexts = target.contexts[: setting.contexts]
    order = np.random.default_rng(setting.root).permutation(target.vocab_size)
    p, q = target.rows(contexts), draft.rows(contexts)
    wrong = draft.rows(order[contexts])[:, order]
    return float(np.minimum(p, q).sum(axis=1).mean()), float(np.minimum(p, wrong).sum(axis=1).mean())


def exchanged_acceptance(setting: Setting, near_zero: float = 0.05) -> Outcome:
    own, wrong = _exchanged(setting)
    return decide(
        wrong < near_zero,
        f"on the n-gram pair α falls from {own:.3f} to {wrong:.3f} when the draft's bytes are exchanged at random",
    )


def exchanged_speed(setting: Setting, k: int = 4, r: float = 0.1) -> Outcome:
    _, wrong = _exchanged(setting)
    return decide(
        speed(wrong, k, r) < 1,
        f"at the α = {wrong:.3f} of exchanged ids {speed(wrong, k, r):.2f} times as fast (K = {k}, r = {r})",
    )


def index_error(sizes: tuple[int, int] = (50257, 32000)) -> Outcome:
    known = np.zeros(min(sizes))
    try:
        known[max(sizes) - 1]
        raised = False
    except IndexError:
        raised = True
    return decide(
        raised, f"token {max(sizes) - 1:,} is outside a row of {min(sizes):,}: an index error in NumPy"
    )


# --- models ----------------------------------------------------------------------------------------------


def gpt2_parameters(layers: int, width: int, vocabulary: int = 50257, positions: int = 1024) -> int:
    """Parameters of a GPT-2 model: embeddings, 12d² + 13d a layer, and a last normalisation; the head is tied.

    >>> gpt2_parameters(12, 768)
    124439808
    """
    return (vocabulary + positions) * width + layers * (12 * width**2 + 13 * width) + 2 * width


def parameters(printed: int, layers: int, width: int) -> Outcome:
    value = gpt2_parameters(layers, width)
    return decide(
        value == printed,
        f"{layers} layers of width {width} and 50,257 tokens have {value:,} parameters",
    )


def layers_of_large(layers: int = 48, printed: int = 774_030_080, width: int = 1280) -> Outcome:
    """The number of layers at which the printed number of parameters comes out, for GPT-2 Large's width."""
    right = [n for n in range(1, 97) if gpt2_parameters(n, width) == printed]
    return decide(
        right == [layers],
        f"{layers} layers of width {width} would have {gpt2_parameters(layers, width):,} parameters; the {printed:,} that the "
        f"guide prints are those of {right[0]}",
    )


def no_downsides(k: int = 4) -> Outcome:
    factors = {alpha: float(operations_factor(alpha, k, 0.1)) for alpha in (0.5, 0.75, 0.95)}
    slow = speed(0.3, k, 0.2)
    return decide(
        max(factors.values()) <= 1,
        ", ".join(f"{factor:.2f} times the operations at α = {alpha}" for alpha, factor in factors.items())
        + f" (K = {k}, ĉ = 0.1), and {slow:.2f} times the speed at α = 0.3, r = 0.2; two models in memory",
    )


# --- the mathematics -------------------------------------------------------------------------------------


def exact(rule: str = "standard", gamma: int = 4) -> Outcome:
    """K = 4, as in the guide's examples."""
    found = [prove(TARGET, DRAFT, rule=rule, gamma=gamma, context=(x,)).tv for x in range(3)]
    return decide(
        max(found) == 0,
        f"TV = {max(found)} after {gamma} drafted tokens, by enumeration of {3**gamma} drafts in each of {len(found)} contexts",
    )


def likelier_is_accepted() -> Outcome:
    """Two tokens of one pair of rows, the likelier one under the target accepted less often."""
    p, q = fractions(6, 1, 3), fractions(8, 1, 1)
    rates = [float(standard_test(p, q, x)) for x in range(3)]
    return decide(
        all(rates[x] >= rates[y] for x in range(3) for y in range(3) if p[x] > p[y]),
        f"a token with p = {float(p[0])}, q = {float(q[0])} passes with probability {rates[0]:.2f}, one with p = {float(p[1])}, q "
        f"= {float(q[1])} with {rates[1]:.2f}: what counts is p/q",
    )


def cannot_sample_the_target() -> Outcome:
    found = step(TARGET, DRAFT, recovered=lambda p, q: p)
    return decide(
        found.tv > 0,
        f"with p after a rejection a step of 2 is TV = {float(found.tv):.3f} from the target's law",
    )


def sum_over_others() -> Outcome:
    """Σ over y ≠ x of what is rejected, against Z; and both times p'(x)."""
    equal = unequal = product_right = total = 0
    for p, q in pairs():
        z = 1 - overlap(p, q)
        if z == 0:
            continue
        for x in range(3):
            others = sum(max(q[y] - p[y], Fraction(0)) for y in range(3) if y != x)
            residual = max(p[x] - q[x], Fraction(0)) / z
            equal += others == z and p[x] >= q[x]
            unequal += others != z and p[x] < q[x]
            product_right += residual * others == max(p[x] - q[x], Fraction(0))
            total += 1
    return only_if(
        equal + unequal == total,
        unequal == 0,
        f"only if p(x) ≥ q(x): so in {equal} of {total} cases; in the {unequal} others the sum lacks q(x) - p(x), and the result "
        f"is saved by p'(x) = 0: it is right in {product_right}",
    )


def normaliser() -> Outcome:
    good = total = 0
    for p, q in pairs():
        rejected = sum(b - min(a, b) for a, b in zip(p, q, strict=True))
        good += (
            rejected == 1 - overlap(p, q) == sum(max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True))
        )
        total += 1
    return decide(good == total, f"rejection has probability Z = Σ (p - q)₊ in {good} of {total} pairs")


def bonus_adds(alpha: float = 0.75, k: int = 4) -> Outcome:
    """From αK to αK + P(all pass), as the mean of tokens a step."""
    law = accepted_law(alpha, k)
    accepted, every = float(np.arange(k + 1) @ law), float(law[-1])
    before, after = accepted + 1 - every, accepted + 1
    return only_if(
        abs(after - before - every) < 1e-12,
        abs(before - accepted) < 1e-12,
        f"only the difference, {every:.3f}: a step emits {before:.3f} tokens without the bonus and {after:.3f} with it, not "
        f"{accepted:.3f} and {accepted + every:.3f} (α = {alpha}, K = {k}), for a rejection gives a token too",
    )


def one_row_more(length: int = 5, k: int = 3, example: tuple[int, int] = (4, 7)) -> Outcome:
    """The slice of rows that verify the draft, and the row after it."""
    rows = range(length + k)
    used = rows[length - 1 : length + k - 1]
    left = rows[length + k - 1]
    return decide(
        (used[0], used[-1] + 1) == example and left in rows and left not in used,
        f"with {length} tokens and {k} drafts rows {used[0]} to {used[-1]} verify, and row {left} of {len(rows)} is left over: "
        "the bonus needs no second pass",
    )


def terrible_draft() -> Outcome:
    """Target and draft that share no token."""
    target, draft = TableModel(fractions(2, 1, 0, 0)), TableModel(fractions(0, 0, 1, 2))
    found = step(target, draft)
    return decide(
        found.tv == 0,
        f"a draft that is always rejected leaves TV = {found.tv} at {float(found.tokens):.0f} token a step, {speed(0.0, 4, 0.1):.2f} "
        "times as fast at K = 4, r = 0.1",
    )


def unequal_temperatures(t: int = 2) -> Outcome:
    """Rows of target and draft ∝ w² and w: the second is the first at temperature 2."""

    def cold(pmf: Row) -> list[Fraction]:
        weights = [weight**t for weight in pmf]
        return [weight / sum(weights) for weight in weights]

    target = TableModel([cold(row(TARGET, [x])) for x in range(3)])
    drawn = step(target, DRAFT).tv
    believed = step(target, DRAFT, believed=TableModel([cold(row(DRAFT, [x])) for x in range(3)])).tv
    return only_if(
        believed > 0,
        drawn > 0,
        f"only if the test has another row than the draft was drawn from: with the target at half the temperature and q as drawn "
        f"TV = {drawn}; with q at the target's temperature and the draft drawn at its own TV = {float(believed):.3f}",
    )


# --- the code --------------------------------------------------------------------------------------------

TINY = Fraction(1, 10**10)


def near_zero_draft(threshold: Fraction = TINY) -> Outcome:
    """A token with q below 1e-10 is accepted with probability p."""
    target = TableModel(fractions(1, 1, 1))
    rare = Fraction(1, 10**11)
    draft = TableModel([rare, 1 - rare, Fraction(0)])

    def accept(p: Row, q: Row, x: int) -> Fraction:
        return p[x] if q[x] < threshold else min(Fraction(1), p[x] / q[x])

    found = step(target, draft, accept=accept)
    return _nearly(
        found.tv,
        f"with q = {float(rare):g} at a token of p = {float(row(target, [])[0]):.3f} a step of 2 is TV = {float(found.tv):.2g} from the "
        "target's law: not exact, and less than can be seen",
    )


def nearly_equal_rows(threshold: Fraction = TINY) -> Outcome:
    """p replaces a residual whose mass is below 1e-10."""
    slip = Fraction(1, 10**11)
    target = TableModel(fractions(1, 1, 1))
    draft = TableModel([Fraction(1, 3) + slip, Fraction(1, 3) - slip, Fraction(1, 3)])

    def recovered(p: Row, q: Row) -> Sequence[Fraction]:
        mass = sum(max(a - b, Fraction(0)) for a, b in zip(p, q, strict=True))
        return list(p) if mass < threshold else positive_part(p, q)

    found = step(target, draft, recovered=recovered)
    return _nearly(
        found.tv,
        f"for rows that differ by {float(slip):g} a step of 2 is TV = {float(found.tv):.2g} from the target's law",
    )


def _nearly(tv: Fraction, found: str) -> Outcome:
    """Held, held up to 1e-9, or false."""
    outcome = decide(tv == 0, found)
    return Outcome(ROUNDING, found) if 0 < tv < Fraction(1, 10**9) else outcome


def step_lengths(k: int = 3) -> Outcome:
    sizes = {len(emitted) for law in step(TARGET, DRAFT, gamma=k).laws.values() for emitted in law}
    return decide(
        (min(sizes), max(sizes)) == (1, k + 1), f"{min(sizes)} to {max(sizes)} tokens from {k} drafted"
    )


def one_too_many(alpha: float, length: int = 30, k: int = 4) -> float:
    """How often a text has one token more than asked for: min(K, remaining) drafts, and a bonus if all pass."""
    over = [0.0] * (length + 1)
    for remaining in range(1, length + 1):
        drafted = min(k, remaining)
        law = accepted_law(alpha, drafted)
        over[remaining] = sum(
            weight * (1.0 if n + 1 > remaining else over[remaining - n - 1]) for n, weight in enumerate(law)
        )
    return over[length]


def edge_cases(k: int = 4, alpha: float = 0.75) -> Outcome:
    """The end of the text looked for at the last token of a step only; and texts longer than asked for."""
    eos = 2
    laws = step(TARGET, DRAFT, gamma=k).laws.values()
    missed = [
        sum((mass for emitted, mass in law.items() if eos in emitted[:-1]), Fraction(0)) for law in laws
    ]
    over = one_too_many(alpha, k=k)
    return decide(
        max(missed) == 0 and over == 0,
        f"a text of 30 tokens is one too long with probability {over:.3f} (α = {alpha}, K = {k}); an end-of-text that is accepted "
        f"within a draft is passed over, on the small pair in {float(min(missed)):.0%} to {float(max(missed)):.0%} of the steps",
    )


def same_seed(setting: Setting, length: int = 12) -> Outcome:
    target, draft = default_pair()
    with interpreted():
        speculative = generate(target, draft, b"import ", max_new_tokens=length, rng=setting.root).tokens
        plain = sample(target, b"import ", max_new_tokens=length, rng=setting.root).tokens
    differing = sum(a != b for a, b in zip(speculative, plain, strict=True))
    law = max(prove(TARGET, DRAFT, context=(x,)).tv for x in range(3))
    return decide(
        differing > 0 and law == 0,
        f"from one seed {differing} of {length} tokens differ on the n-gram pair, and TV = {law} between the laws",
    )


# --- acceptance ------------------------------------------------------------------------------------------

TEMPERATURES = (0.0, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 5.0)


def alpha_at(p: np.ndarray, q: np.ndarray, t: float) -> float:
    return float(np.minimum(temperature(p, t), temperature(q, t)).sum(axis=-1).mean())


def temperature_has_no_effect(setting: Setting, slight: float = 0.02) -> Outcome:
    """α with both rows at one temperature: the n-gram pair, and synthetic pairs with Σ min(p, q) = 0.7."""
    target, draft = default_pair()
    contexts = target.contexts[: setting.contexts]
    curves = {"n-gram": [alpha_at(target.rows(contexts), draft.rows(contexts), t) for t in TEMPERATURES]}
    for kind in ("zipf", "dirichlet", "geometric"):
        p, q = synthetic_pair(kind, 64, 0.7, rng=setting.root)
        curves[kind] = [alpha_at(p, q, t) for t in TEMPERATURES]
    from_one = {name: max(curve[4:]) - min(curve[4:]) for name, curve in curves.items()}
    rising = sum(curve[4:] == sorted(curve[4:]) for curve in curves.values())
    ngram = curves["n-gram"]
    shown = ", ".join(f"{value:.3f} at {t:g}" for t, value in zip(TEMPERATURES, ngram, strict=True))
    return decide(
        max(from_one.values()) < slight,
        f"on the n-gram pair α is {shown}; from 1 to 5 it rises on {rising} of {len(curves)} pairs, by {min(from_one.values()):.3f} "
        f"to {max(from_one.values()):.3f}, since both rows become uniform",
    )


def lowers_acceptance(setting: Setting) -> Outcome:
    """What the guide calls a misconception."""
    target, draft = default_pair()
    contexts = target.contexts[: setting.contexts]
    p, q = target.rows(contexts), draft.rows(contexts)
    curve = [alpha_at(p, q, t) for t in TEMPERATURES]
    up_to_one = [value for value, t in zip(curve, TEMPERATURES, strict=True) if t <= 1]

    def falls(values: list[float]) -> bool:
        return values == sorted(values, reverse=True)

    return only_if(
        not falls(curve),
        not falls(up_to_one),
        f"only beyond temperature 1: on the n-gram pair α falls from {up_to_one[0]:.3f} at 0 to {up_to_one[-1]:.3f} at 1, step by "
        f"step, and then rises to {curve[-1]:.3f} at {TEMPERATURES[-1]:g}",
    )


def varies_with_context(setting: Setting, high: float = 0.8, low: float = 0.4) -> Outcome:
    target, draft = default_pair()
    contexts = target.contexts[: setting.contexts]
    beta = np.minimum(target.rows(contexts), draft.rows(contexts)).sum(axis=1)
    above, below = float((beta > high).mean()), float((beta < low).mean())
    return decide(
        above > 0 and below > 0,
        f"on the n-gram pair β is above {high} in {above:.0%} and below {low} in {below:.0%} of the contexts, {beta.mean():.3f} on "
        "average",
    )


def training_helps(setting: Setting) -> Outcome:
    """That no training is needed for correctness; what a better draft would give."""
    found = max(prove(TARGET, DRAFT, context=(x,)).tv for x in range(3))
    target, draft = default_pair()
    contexts = target.contexts[: setting.contexts]
    p, q = target.rows(contexts), draft.rows(contexts)
    plain, better = (float(np.minimum(p, near).sum(axis=1).mean()) for near in (q, (p + q) / 2))
    return decide(
        found == 0,
        f"TV = {found} for a draft that was never trained; on the n-gram pair a draft half way to the target would raise α from "
        f"{plain:.3f} to {better:.3f} and the speed from {best_speed(plain, 0.1):.2f} to {best_speed(better, 0.1):.2f} at r = 0.1",
    )


def only_lossless_rules() -> Outcome:
    """Rules of the registry that claim to be lossless for a sampled chain, and lenience."""
    lossless = [
        name
        for name in rules.names()
        if rules.get(name).lossless
        and not rules.get(name).many_drafts
        and "sampled" in rules.get(name).drawings
    ]
    found = [prove(TARGET, DRAFT, rule=name).tv for name in lossless]
    lossy = prove(TARGET, DRAFT, rule="lenience").tv
    return only_if(
        max(found) == 0,
        lossy == 0,
        f"only of rules that are lossless: TV = {max(found)} for {len(found)} of them, TV = {float(lossy):.3f} with lenience, which also "
        "goes by that name",
    )


TOKENIZERS = "the tokenizers that are named"

CLAIMS: list[Claim] = [
    Claim(
        "guide.hundred",
        SOURCE,
        "1, Quantifying the Problem",
        "approximately ten seconds; fifty seconds",
        "100 and 500 tokens at 100 ms",
        check=hundred_tokens,
    ),
    Claim(
        "guide.downsides",
        SOURCE,
        "1, The Promise",
        "no downsides except implementation complexity",
        "speculation costs nothing else",
        check=no_downsides,
    ),
    Claim(
        "guide.six",
        SOURCE,
        "2, What is a Token?",
        "number of tokens in this sentence is six",
        "the tokens of the first example",
        check=six_tokens,
    ),
    Claim(
        "guide.quickly",
        SOURCE,
        "2, What is a Token?",
        '"The", " cat", " is", " running", " quickly"',
        "the tokens of the second example",
        check=lists_every_token,
    ),
    Claim(
        "guide.hello",
        SOURCE,
        "2, What is a Tokenizer?",
        "[15496, 11, 995, 0]",
        "the ids of “Hello, world!” in GPT-2",
        needs="GPT-2's vocabulary and merges",
    ),
    Claim(
        "guide.sizes",
        SOURCE,
        "2; 4",
        "thirty thousand to one hundred thousand; 50257; 32000",
        "sizes of vocabularies",
        needs=TOKENIZERS,
    ),
    Claim(
        "guide.llama",
        SOURCE,
        "4, Examples of Incompatible Model Pairs",
        "Llama 2 uses an updated tokenizer compared to Llama 1",
        "the two cannot be used together",
        needs=TOKENIZERS,
    ),
    Claim(
        "guide.families",
        SOURCE,
        "4, Examples",
        "All variants of GPT-2 use exactly the same tokenizer",
        "which models share a tokenizer",
        needs=TOKENIZERS,
    ),
    Claim(
        "guide.other_tokens",
        SOURCE,
        "2; 4, What Happens",
        "fundamentally breaks the algorithm and produces incorrect results",
        "ids that mean something else to the draft spoil the output",
        check=other_tokens,
    ),
    Claim(
        "guide.other_vocabulary",
        SOURCE,
        "4, First requirement",
        "Both models must have exactly the same number of tokens",
        "equal vocabularies are necessary for correctness",
        check=other_vocabulary,
    ),
    Claim(
        "guide.exchanged",
        SOURCE,
        "4, What Happens",
        "an acceptance rate close to zero",
        "acceptance with ids that mean something else",
        measure=exchanged_acceptance,
    ),
    Claim(
        "guide.exchanged_speed",
        SOURCE,
        "4, What Happens",
        "the performance will be worse than standard generation",
        "speed with ids that mean something else",
        measure=exchanged_speed,
    ),
    Claim(
        "guide.index",
        SOURCE,
        "4, What Happens",
        "can cause out-of-bounds errors",
        "vocabularies of unequal size",
        check=index_error,
    ),
    Claim(
        "guide.identical",
        SOURCE,
        "6, verify_tokenizer_compatibility",
        "COMPATIBLE: Tokenizers are IDENTICAL!",
        "what passes the check is the same tokenizer",
        check=checks_every_token,
    ),
    Claim(
        "guide.layers",
        SOURCE,
        "3, Sequential Generation",
        "forty-eight layers (like GPT-2 Large)",
        "the layers of GPT-2 Large",
        check=layers_of_large,
    ),
    *(
        Claim(
            f"guide.parameters_{name}",
            SOURCE,
            "7, execution trace",
            f"{name} … Parameters: {printed:,}",
            "the parameters of a model",
            check=partial(parameters, printed, layers, width),
        )
        for name, printed, layers, width in (
            ("gpt2", 124_439_808, 12, 768),
            ("distilgpt2", 81_912_576, 6, 768),
            ("gpt2-medium", 354_823_168, 24, 1024),
            ("gpt2-large", 774_030_080, 36, 1280),
        )
    ),
    Claim(
        "guide.exact",
        SOURCE,
        "5, Theorem; 9, Misconception Two",
        "P(output x) = p(x)",
        "the output has exactly the target's law",
        check=exact,
    ),
    Claim(
        "guide.approximation",
        SOURCE,
        "9, Misconceptions Two and Seven",
        "It is not an approximation",
        "speculative decoding never changes the law",
        check=only_lossless_rules,
    ),
    Claim(
        "guide.likelier",
        SOURCE,
        "5, The Acceptance Probability Formula",
        "tokens with high target probability are more likely to be accepted",
        "acceptance rises with p",
        check=likelier_is_accepted,
    ),
    Claim(
        "guide.cannot",
        SOURCE,
        "5, What Happens When We Reject",
        "cannot simply sample from the target distribution p(x)",
        "p after a rejection is biased",
        check=cannot_sample_the_target,
    ),
    Claim(
        "guide.others",
        SOURCE,
        "5, Proof, Case 2",
        "Σ_{y≠x} q(y) × (1 - min(1, p(y)/q(y)))",
        "the sum over the others is the whole probability of rejection",
        check=sum_over_others,
    ),
    Claim(
        "guide.normaliser",
        SOURCE,
        "5, Proof",
        "total rejection probability is 1 - (1 - Z) = Z",
        "the normalising constant",
        check=normaliser,
    ),
    Claim(
        "guide.bonus",
        SOURCE,
        "5, The Bonus Token",
        "α×K to approximately α×K + (probability that all K are accepted)",
        "tokens a step, without and with the bonus",
        check=bonus_adds,
    ),
    Claim(
        "guide.row",
        SOURCE,
        "5, The Bonus Token; code",
        "logits[4:7] = logits[original_len-1:original_len+K-1]",
        "K rows verify and one is left for the bonus",
        check=one_row_more,
    ),
    Claim(
        "guide.terrible",
        SOURCE,
        "5, Property three",
        "Even if the draft model is terrible",
        "correctness does not depend on the draft",
        check=terrible_draft,
    ),
    Claim(
        "guide.temperatures",
        SOURCE,
        "9, Pitfall Two",
        "different temperatures … correctness guarantee is violated",
        "draft and target must have one temperature",
        check=unequal_temperatures,
    ),
    Claim(
        "guide.near_zero",
        SOURCE,
        "6, acceptance",
        "q_i < 1e-10: acceptance_prob = p_i",
        "the test for improbable drafts",
        check=near_zero_draft,
    ),
    Claim(
        "guide.fallback",
        SOURCE,
        "6, rejection",
        "prob_sum < 1e-10: … using p(x)",
        "what replaces an empty residual",
        check=nearly_equal_rows,
    ),
    Claim(
        "guide.length",
        SOURCE,
        "6, speculative_sampling_step",
        "length between 1 and K+1",
        "the tokens of a step",
        check=step_lengths,
    ),
    Claim(
        "guide.edges",
        SOURCE,
        "6, end",
        "Properly handles all edge cases",
        "the end of the text and its length",
        check=edge_cases,
    ),
    Claim(
        "guide.seed",
        SOURCE,
        "10, Different outputs each run",
        "even with the same seed … different outputs",
        "one seed, two texts of one law",
        measure=same_seed,
    ),
    Claim(
        "guide.temperature",
        SOURCE,
        "9, Misconception Three",
        "there is no systematic relationship",
        "temperature does not change acceptance",
        measure=temperature_has_no_effect,
    ),
    Claim(
        "guide.lowers",
        SOURCE,
        "9, Misconception Three",
        '"Higher temperature means lower acceptance rate" (called wrong)',
        "acceptance does not fall with the temperature",
        measure=lowers_acceptance,
    ),
    Claim(
        "guide.varies",
        SOURCE,
        "10, Acceptance rate varies",
        "above 80% … below 40%",
        "acceptance varies with the context",
        measure=varies_with_context,
    ),
    Claim(
        "guide.training",
        SOURCE,
        "9, Misconception Six",
        "no special training is required",
        "any draft is correct",
        measure=training_helps,
    ),
    *guide_run.CLAIMS,
    *guide_speed.CLAIMS,
    Claim(
        "guide.memory",
        SOURCE,
        "9, Pitfall Three",
        "both models must be loaded into memory simultaneously",
        "memory for two models",
        needs="the models, and the memory that they take",
    ),
    Claim(
        "guide.cpu",
        SOURCE,
        "10, very slow on CPU",
        "Speculative decoding is extremely slow when running on CPU",
        "speed without a GPU",
        needs="language models, timed on CPU and GPU",
    ),
    Claim(
        "guide.released",
        SOURCE,
        "Acknowledgments",
        "developed by OpenAI and released by HuggingFace",
        "who made the models",
        needs="a bibliography",
    ),
]
