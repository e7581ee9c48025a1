"""Synthetic acceptance: one nominal length, and the different distributions that engines make of it.

To measure a server before there is a draft worth measuring, engines accept drafted tokens at random, with a
mean number of tokens per step L, bonus included, or rates that the user gives. Of γ drafted tokens τ are
accepted, τ + 1 emitted:

- vLLM takes unconditional rates P(τ ≥ i), i = 1 … γ, and tests position i with P(τ ≥ i)/P(τ ≥ i - 1); a
  length L becomes the rates 1, …, 1, a fraction, 0, …, 0 (vllm-project/vllm#40662, #41035). τ is one of two
  neighbours, the least variance that the mean allows. Equal rates r at all positions, an "acceptance rate"
  read naïvely, mean all or nothing: τ = γ with probability r, else 0, the most variance.
- llama.cpp solves p + … + p^γ = L - 1 (ggml-org/llama.cpp#27711): the capped geometric distribution of
  independent acceptances.
- SGLang (generate_simulated_accept_index in python/sglang/srt/speculative/spec_utils.py) draws one length for
  the whole batch: with the method "match-expected" L rounded down or up, with the default, "multinomial", a
  normal of mean L and standard deviation 1, cut to [1, γ + 1] and rounded, whose mean is L at the middle of
  that range alone.
- independent acceptances, with the α that gives L at γ = `GAMMA` (Leviathan et al., arXiv 2211.17192, Eq. 1),
  to compare.

All is exact: the distribution at L = `LENGTH`; mean and standard deviation against L; the improvement in wall
time E[tokens]/(γc + 1) (Thm 3.8) against γ with the setting left as it was fitted at γ = `GAMMA`: with a
length that is kept it falls from the first γ that holds it, with equal rates above c it rises without end,
and neither has the best γ of independent acceptances; and that of a batch until the last of its requests has
`REQUEST` tokens, at an equal time per step, where variance is paid for. A length above γ + 1 is an error in
vLLM and llama.cpp, and cut by SGLang. c = `C`.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm

from experiments import Floats, Progress, Row
from experiments.literature.published.recomputed import implied_alpha
from specsim.theory import accepted_law

TITLE = "Synthetic acceptance lengths as inference engines draw them, at one nominal mean"

GAMMA, LENGTH, C = 5, 3.4, 0.05
GAMMAS = range(1, 17)
LENGTHS = np.linspace(1.0, GAMMA + 1.0, 51)
BATCHES = tuple(2**k for k in range(9))
REQUEST = 128


# --- distributions of the number of accepted tokens, 0 … γ -----------------------------------------------


def law_of_rates(rates: ArrayLike) -> Floats:
    """[γ + 1] from unconditional rates P(τ ≥ i), i = 1 … γ.

    >>> law_of_rates([1.0, 0.5, 0.0])
    array([0. , 0.5, 0.5, 0. ])
    """
    return np.diff([0.0, *(1.0 - np.asarray(rates)), 1.0])


def _independent(length: float, gamma: int) -> Floats:
    return accepted_law(implied_alpha(length, GAMMA), gamma)


def _llama_cpp_length(length: float, gamma: int) -> Floats:
    return accepted_law(implied_alpha(length, gamma), gamma)


def _vllm_length(length: float, gamma: int) -> Floats:
    return law_of_rates(np.clip(length - 1.0 - np.arange(gamma), 0.0, 1.0))


def _vllm_equal_rates(length: float, gamma: int) -> Floats:
    return law_of_rates(np.full(gamma, (length - 1.0) / GAMMA))


def _sglang_match_expected(length: float, gamma: int) -> Floats:
    return _vllm_length(min(length, gamma + 1.0), gamma)


def _sglang_multinomial(length: float, gamma: int) -> Floats:
    return np.diff([0.0, *norm.cdf(np.arange(gamma) + 1.5 - length), 1.0])


class Setting(NamedTuple):
    """The distribution [γ + 1] of a length and γ, fitted at γ = `GAMMA`; whether a length above γ + 1 is
    refused; whether a batch shares one draw."""

    law: Callable[[float, int], Floats]
    refuses: bool = False
    shared: bool = False


SETTINGS = {
    "independent acceptances": Setting(_independent),
    "llama.cpp, length": Setting(_llama_cpp_length, refuses=True),
    "vLLM, length": Setting(_vllm_length, refuses=True),
    "vLLM, equal rates": Setting(_vllm_equal_rates),
    "SGLang, match-expected": Setting(_sglang_match_expected, shared=True),
    "SGLang, multinomial": Setting(_sglang_multinomial, shared=True),
}


# --- what follows from them ------------------------------------------------------------------------------


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """For each setting, rows of five quantities: "probability" of `x` tokens in a step, at L = `LENGTH`;
    "mean" and "deviation" of the tokens of a step at L = `x`; "improvement" at γ = `x`; "improvement of a
    batch" of `x` requests. What they were fitted to, and c, is in every row."""
    fitted: Row = {"gamma": GAMMA, "length": LENGTH, "c": C, "request": REQUEST}
    return [
        {"setting": name, "quantity": quantity, "x": float(x), "value": float(value), **fitted}
        for name, setting in SETTINGS.items()
        for quantity, x, value in _values(setting)
    ]


def _values(setting: Setting) -> Iterator[tuple[str, float, float]]:
    law = setting.law(LENGTH, GAMMA)
    for accepted, probability in enumerate(law):
        yield "probability", accepted + 1, probability
    for length in LENGTHS:
        mean, deviation = moments(setting.law(float(length), GAMMA))
        yield "mean", length, mean
        yield "deviation", length, deviation
    for gamma in GAMMAS:
        if gamma + 1 >= LENGTH or not setting.refuses:
            yield "improvement", gamma, moments(setting.law(LENGTH, gamma))[0] / (gamma * C + 1.0)
    finished = finished_after(law, REQUEST)
    for batch in BATCHES:
        steps = float((1.0 - finished ** (1 if setting.shared else batch)).sum())
        yield "improvement of a batch", batch, REQUEST / (steps * (GAMMA * C + 1.0))


def moments(law: Floats) -> tuple[float, float]:
    """Mean and standard deviation of the tokens of a step, τ + 1."""
    tokens = np.arange(1.0, len(law) + 1.0)
    mean = float(law @ tokens)
    return mean, float(law @ (tokens - mean) ** 2) ** 0.5


def finished_after(law: Floats, tokens: int) -> Floats:
    """[tokens + 1] the probability that 0, 1, … steps emit at least `tokens` tokens."""
    short = np.zeros(tokens)  # of having emitted 0 … tokens - 1
    short[0] = 1.0
    found = [0.0]
    for _ in range(tokens):
        short = np.convolve(short, np.append(0.0, law))[:tokens]
        found.append(1.0 - float(short.sum()))
    return np.array(found)
