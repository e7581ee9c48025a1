"""The guide's printed run, and the code that is said to have printed it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from experiments.literature.claims.claim import Finding, decide, only_if
from experiments.literature.claims.guide import DOCUMENT, RUN, TRACE, Printed
from experiments.literature.claims.laws import TARGET, Row, step
from specsim.models import TableModel

#: Ids of GPT-2's vocabulary (`encoder.json` of github.com/openai/gpt-2), for every token of the text and for
#: those that the run prints.
GPT2 = {
    "The": 464, " future": 2003, " of": 286, " artificial": 11666, " intelligence": 4430, " is": 318,
    " bright": 6016, " and": 290, " promising": 11781, ",": 11, " with": 351, " many": 867,
    " exciting": 7895, " developments": 13312, " on": 319, " the": 262, " horizon": 17810, " that": 326,
    " will": 481, " transform": 6121, " how": 703, " we": 356, " live": 2107, " work": 670, " in": 287,
    " ways": 2842, " can": 460, " barely": 8523, " imagine": 5967, " today": 1909, ".": 13, " not": 407,
    " often": 1690, " to": 284,
}  # fmt: skip
PROMPT = "The future of artificial intelligence is"
TEXT = (
    " bright and promising, with many exciting developments on the horizon that will transform how we "
    "live and work in ways we can barely imagine today."
)


def gpt2_ids(text: str) -> list[int]:
    """The ids of a text all of whose words are tokens. Raises KeyError for another word."""
    return [GPT2[piece] for piece in re.findall(r" ?\w+|[^\w\s]", text)]


@DOCUMENT.claim(
    "run.length",
    where=TRACE,
    quote="Prompt: The future of artificial intelligence is … Initial sequence length: 8 tokens",
    correct="With GPT-2's vocabulary the prompt has a token for each word.",
)
def prompt_length(printed: int = 8) -> Finding:
    found = gpt2_ids(PROMPT)
    return decide(len(found) == printed, f"{len(found)} tokens: {', '.join(map(str, found))}.")


@DOCUMENT.claim(
    "run.text",
    where=TRACE,
    quote="tokens_generated: 30 … Generated Text: … bright and promising, with many exciting developments …",
    correct="The printed text has fewer tokens than were counted.",
)
def text_length(printed: int = RUN.tokens) -> Finding:
    found = gpt2_ids(TEXT)
    return decide(len(found) == printed, f"The continuation has {len(found)} tokens; {printed} are printed.")


@DOCUMENT.claim(
    "run.ids",
    where=TRACE,
    quote="Token 1: ID=407 … ACCEPTED … Token 2: ID=1690 … ACCEPTED … Sampled new token: ID=326",
    correct="The text would begin with the words of these ids, and begins with others.",
)
def first_words(emitted: tuple[int, ...] = (407, 1690, 326)) -> Finding:
    words = {number: word for word, number in GPT2.items()}
    printed = gpt2_ids(TEXT)[: len(emitted)]
    one, other = ("".join(words[number] for number in ids) for ids in (emitted, printed))
    return decide(
        list(emitted) == printed,
        f"Ids {', '.join(map(str, emitted))} are “{one}”; the text begins with “{other}”, ids "
        f"{', '.join(map(str, printed))}.",
    )


@DOCUMENT.claim(
    "run.drafted",
    where=TRACE,
    quote="num_iterations: 7 … total_drafted: 28",
    correct="The last iteration drafts fewer tokens, so that the total is smaller.",
)
def drafted(printed: int = 28, run: Printed = RUN) -> Finding:
    most = (run.iterations - 1) * run.k + run.last[1]
    return decide(
        printed <= most,
        f"{run.iterations - 1} iterations of at most {run.k} and a last one of {run.last[1]} draft at most "
        f"{most} tokens; {printed} are printed.",
    )


@DOCUMENT.claim(
    "run.draft_pass",
    where="7, Why the speedup occurred",
    quote="each draft forward pass was very fast—averaging about thirty-eight milliseconds",
    correct="That is the time of the four passes of an iteration.",
)
def draft_pass(
    printed: float = 38.0, phases: tuple[float, ...] = (38.7, 41.2), run: Printed = RUN
) -> Finding:
    """The printed times of draft phases of K passes, and of all of them."""
    each = [phase / run.k for phase in phases]
    fewest, most = (run.draft_ms / passes for passes in ((run.iterations - 1) * run.k + 2, run.iterations))
    return decide(
        any(abs(one - printed) < 5.0 for one in each),
        f"Phases of {run.k} passes took {phases[0]} and {phases[1]} ms, {each[0]:.1f} and {each[1]:.1f} ms a "
        f"pass; all of them took {run.draft_ms} ms, {fewest:.1f} ms a pass ({most:.1f} ms an iteration).",
    )


@DOCUMENT.claim(
    "run.ratio",
    where="8, Empirical Performance Data; 7, evaluation of drafts",
    quote="r 0.12 … speedup=2.34x, tokens/iter=3.67",
    correct="The guide's own estimator, with the speed and tokens that it prints, implies another r.",
)
def implied_ratio(
    printed: Mapping[str, float] | None = None,
    runs: Mapping[str, tuple[float, float]] | None = None,
    k: int = 4,
) -> Finding:
    """tokens / (K·r + 1) is the speed; a pass for each bonus would make r larger still."""
    printed = printed or {"GPT-2 Small": 0.12, "DistilGPT-2": 0.08, "GPT-2 Medium": 0.45}
    runs = runs or {"GPT-2 Small": (3.67, 2.34), "DistilGPT-2": (3.33, 2.51), "GPT-2 Medium": (3.83, 1.87)}
    ends = {}
    for name, (tokens, times) in runs.items():  # both within their rounding
        found = [((tokens + s) / (times - s) - 1.0) / k for s in (-0.005, 0.005)]
        ends[name] = min(found), max(found)
    inside = [ends[name][0] - 0.005 <= r <= ends[name][1] + 0.005 for name, r in printed.items()]
    shown = ", ".join(
        f"{low:.3f} to {high:.3f} for {name} ({printed[name]} printed)" for name, (low, high) in ends.items()
    )
    return decide(all(inside), f"They imply r = {shown}.")


@DOCUMENT.claim(
    "run.saved",
    where=TRACE,
    quote="Actual Speedup: 2.47x … Time Saved: 1751.9ms",
    correct="Both follow from the printed times of the two runs.",
)
def saved(
    plain_ms: str = "2943.2", total_ms: str = "1191.3", printed: tuple[str, str] = ("2.47", "1751.9")
) -> Finding:
    plain, total = Fraction(plain_ms), Fraction(total_ms)
    times, gain = f"{float(plain / total):.2f}", f"{float(plain - total):.1f}"
    return decide(
        (times, gain) == printed, f"{plain_ms} and {total_ms} ms make {times} times, and {gain} ms."
    )


# --- the compatibility check -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tokenizer:
    """What the guide's function asks of a tokenizer, besides encoding and decoding."""

    size: int = 50257
    bos: int | None = 50256
    eos: int | None = 50256
    pad: int | None = None


def refusal(one: _Tokenizer, other: _Tokenizer) -> str | None:
    """The first of the guide's checks that fails."""
    if one.size != other.size:
        return "Vocabulary size mismatch"
    for name in ("bos", "eos", "pad"):
        first, second = getattr(one, name), getattr(other, name)
        if (first is None) != (second is None):
            return f"one has a {name} token, {first or second}, and the other has none"
        if first != second:
            return f"{name} tokens {first} and {second}"
    return None


@DOCUMENT.claim(
    "run.compatible",
    where="6, code; 7, execution trace",
    quote="COMPATIBLE: Tokenizers are IDENTICAL!",
    correct="The code gives the target's tokenizer a pad token and leaves the draft's without one, so "
    "that its own check refuses every GPT-2 pair: the run cannot come from it.",
)
def pad_tokens(pad_of_draft: int | None = None) -> Finding:
    target = _Tokenizer(pad=50256)  # tokenizer.pad_token = tokenizer.eos_token, where it was None
    why = refusal(target, _Tokenizer(pad=pad_of_draft))
    return decide(why is None, f"The check of GPT-2 Large with GPT-2 says: {why or '0 differences'}.")


@DOCUMENT.claim(
    "run.gpt2_xl",
    where=TRACE,
    quote="gpt2-xl … INCOMPATIBLE: Vocabulary size mismatch",
    correct="GPT-2 XL has the vocabulary of all GPT-2 models, as the guide says itself; the check compares "
    "two equal sizes.",
)
def gpt2_xl(size: int = 50257) -> Finding:
    same = refusal(_Tokenizer(pad=50256), _Tokenizer(size, pad=50256))
    return decide(
        same == "Vocabulary size mismatch",
        f"Sizes {_Tokenizer.size:,} and {size:,}: the first check {'fails' if same else 'passes'}.",
    )


# --- the code of a step ----------------------------------------------------------------------------------


@DOCUMENT.claim(
    "code.temperature",
    where="6, code",
    quote="temperature: Sampling temperature (1.0 = no modification, <1 = more focused)",
    correct="Only above 0. At 0 the logits are divided by zero, and no row is left to draw from.",
)
def zero_temperature(logits: tuple[float, ...] = (2.0, 1.0, -1.0)) -> Finding:
    def rows(t: float) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = np.asarray(logits) / t
            weights = np.exp(scaled - scaled.max())
            return np.asarray(weights / weights.sum())

    tops = {t: float(rows(t).max()) for t in (1.0, 0.5, 0.1)}
    shown = ", ".join(f"{top:.3f} at {t:g}" for t, top in tops.items())
    lost = int(np.isnan(rows(0.0)).sum())
    return only_if(
        tops[0.1] > tops[0.5] > tops[1.0],
        lost == 0,
        f"The largest probability is {shown}; at 0 {lost} of {len(logits)} are not a number.",
    )


@DOCUMENT.claim(
    "code.clock",
    where="6, code",
    quote="target_time_ms = (time.time() - target_start_time) * 1000",
    correct="Only where a call returns when its work is done, as on a CPU. A GPU still works then: the "
    "time goes to whoever next reads a number.",
)
def clock(pass_ms: float = 95.0) -> Finding:
    """The guide's two readings of the clock around a pass, on a device that computes in calls and on one that
    queues them.
    """

    def measured(queued: bool) -> tuple[float, float]:
        now, done = 0.0, pass_ms  # the pass is started
        now = now if queued else done
        verify = now
        now = max(now, done)  # the first test reads p
        return verify, now - verify

    at_once, later = measured(False), measured(True)
    return only_if(
        at_once[0] == pass_ms,
        later[0] == pass_ms,
        f"Of a pass of {pass_ms:g} ms {at_once[0]:g} ms are measured where calls wait, and {later[0]:g} "
        f"where they do not, with {later[1]:g} ms in the tests behind it.",
    )


@DOCUMENT.claim(
    "code.near_zero",
    where="6, code",
    quote="if q_i < 1e-10: … acceptance_prob = p_i",
    correct="A drafted token has q > 0, and min(1, p/q) is right however small it is; with p in its place "
    "the law changes.",
)
def near_zero(threshold: Fraction = Fraction(1, 10**10)) -> Finding:
    """A draft with a token just below the threshold, and one with all its tokens above."""
    tiny = threshold / 2
    draft = TableModel([[tiny, (1 - tiny) / 2, (1 - tiny) / 2]] * 3)

    def accept(p: Row, q: Row, x: int) -> Fraction:
        return p[x] if q[x] < threshold else min(Fraction(1), p[x] / q[x])

    found = step(TARGET, draft, accept=accept).tv
    return decide(found == 0, f"TV = {float(found):.1e} for a draft with q = {float(tiny):.0e} at one token.")
