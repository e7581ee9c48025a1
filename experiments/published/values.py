"""Values published in papers, each with its place there: the only module where such numbers are typed.

`experiments.published.recomputed` compares them with what can be recomputed. Tables whose columns depend on
one another are kept as rows, from which `FIGURES` has a figure for each cell.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FIGURES", "Figure"]


@dataclass(frozen=True)
class Figure:
    """A number, or a row of numbers, as `printed` in a paper, which is given by its arXiv number, with the
    place there.
    """

    paper: str
    where: str
    quantity: str
    printed: str


LEVIATHAN, CHEN, BLOCK, SPECTR, SEQUOIA = (
    "2211.17192",
    "2302.01318",
    "2403.10444",
    "2310.15141",
    "2402.12374",
)
YIN, STAGED, SPECINFER, TRAVERSAL, HIERARCHICAL = (
    "2411.00841",
    "2308.04623",
    "2305.09781",
    "2505.12398",
    "2601.05724",
)

# --- Leviathan et al. ------------------------------------------------------------------------------------

OPERATIONS = "Table 1, c = ĉ = 0"
#: α, γ, operations, speed.
OPERATIONS_ROWS = (
    (".6", "2", "1.53", "1.96"),
    (".7", "3", "1.58", "2.53"),
    (".8", "2", "1.23", "2.44"),
    (".8", "5", "1.63", "3.69"),
    (".9", "2", "1.11", "2.71"),
    (".9", "10", "1.60", "6.86"),
)

SPEEDS = "Tables 2 and 4, T5-XXL"
#: Task and draft, temperature, γ, α, c, expected speed (Table 4), measured speed (both).
SPEEDS_ROWS = (
    ("EnDe, T5-small", "0", "7", ".75", ".02", "3.2", "3.4"),
    ("EnDe, T5-base", "0", "7", ".80", ".04", "3.3", "2.8"),
    ("EnDe, T5-large", "0", "7", ".82", ".11", "2.5", "1.7"),
    ("EnDe, T5-small", "1", "7", ".62", ".02", "2.3", "2.6"),
    ("EnDe, T5-base", "1", "5", ".68", ".04", "2.4", "2.4"),
    ("EnDe, T5-large", "1", "3", ".71", ".11", "2.0", "1.4"),
    ("CNN/DM, T5-small", "0", "5", ".65", ".02", "2.4", "3.1"),
    ("CNN/DM, T5-base", "0", "5", ".73", ".04", "2.6", "3.0"),
    ("CNN/DM, T5-large", "0", "3", ".74", ".11", "2.0", "2.2"),
    ("CNN/DM, T5-small", "1", "5", ".53", ".02", "1.9", "2.3"),
    ("CNN/DM, T5-base", "1", "3", ".55", ".04", "1.8", "2.2"),
    ("CNN/DM, T5-large", "1", "3", ".56", ".11", "1.6", "1.7"),
)

ALPHAS = "Table 3"
#: Target, task and draft, α at temperature 0 and at 1.
ALPHAS_ROWS = (
    ("GPT-like 97M, lm1b, unigram", ".03", ".03"),
    ("GPT-like 97M, lm1b, bigram", ".05", ".05"),
    ("GPT-like 97M, lm1b, GPT-like 6M", ".88", ".89"),
    ("T5-XXL, EnDe, unigram", ".08", ".07"),
    ("T5-XXL, EnDe, bigram", ".20", ".19"),
    ("T5-XXL, EnDe, T5-small", ".75", ".62"),
    ("T5-XXL, EnDe, T5-base", ".80", ".68"),
    ("T5-XXL, EnDe, T5-large", ".82", ".71"),
    ("T5-XXL, CNN/DM, unigram", ".13", ".08"),
    ("T5-XXL, CNN/DM, bigram", ".23", ".16"),
    ("T5-XXL, CNN/DM, T5-small", ".65", ".53"),
    ("T5-XXL, CNN/DM, T5-base", ".73", ".55"),
    ("T5-XXL, CNN/DM, T5-large", ".74", ".56"),
    ("LaMDA 137B, LaMDA 100M", ".61", ".57"),
    ("LaMDA 137B, LaMDA 2B", ".71", ".71"),
    ("LaMDA 137B, LaMDA 8B", ".75", ".74"),
)
ALPHAS_TEXT, BIGRAM_SPEED = "text on Table 3", "speed-up, EnDe, bigram, γ = 3, c = 0"

LENIENCES = ("1", ".5", ".3", ".1")
LENIENCE = f"Table 5, EnDe, T5-XXL, l = {', '.join(LENIENCES)}"
LENIENCE_TEXT = "text on Table 5"

# --- Chen et al. -----------------------------------------------------------------------------------------

CHINCHILLA, CHINCHILLA_TEXT = "Table 1, Chinchilla 70B, K = 4", "text on Figure 1"
#: Task, samples, unit of the score; score, ms a token of the target alone; the same speculative; speed-up.
CHINCHILLA_ROWS = (
    ("XSum, nucleus", 11305, "ROUGE-2", ".112", "14.1", ".114", "7.52", "1.92"),
    ("XSum, greedy", 11305, "ROUGE-2", ".157", "14.1", ".156", "7.00", "2.01"),
    ("HumanEval", 16400, "%", "45.1", "14.1", "47.0", "5.73", "2.46"),
)
FASTEST_K, DRAFT_MS = "K with the shortest time, XSum", "ms a token, draft"

# --- the others ------------------------------------------------------------------------------------------

BY_GAMMA = "PaLM-2-S/XXS, average over tasks, by γ"
TASKS = "PaLM-2-S/XXS, γ = 8; tokens a step token by token, by block; speed of each"
EXAMPLE = "introductory example, target (1/3, 2/3), draft (2/3, 1/3), γ = 2"
LM1B = "LM1B, PaLM-2"
YIN_FIGURE = "Figure 2a"
GPT2, PLAIN = "RTX 4090, GPT2-L", "tokens a second, autoregressive"
COVER = "cover property, Q = (.5, .5), P = (1, 0), K = 2"
SEQUOIA_TABLE = "Table 1, A100, Llama2-7B; speed, tokens a step, then SpecInfer's"
HSD_TABLE = "GSM8K, Qwen2.5 14B, 32B, 72B"

FIGURES: tuple[Figure, ...] = (
    *(
        Figure(LEVIATHAN, OPERATIONS, f"{name}, α = {alpha}, γ = {gamma}", printed)
        for alpha, gamma, operations, speed in OPERATIONS_ROWS
        for name, printed in (("operations", operations), ("speed-up", speed))
    ),
    *(
        Figure(
            LEVIATHAN, SPEEDS, f"{name} speed-up, {pair}, t = {t}, γ = {gamma}, α = {alpha}, c = {c}", printed
        )
        for pair, t, gamma, alpha, c, expected, measured in SPEEDS_ROWS
        for name, printed in (("expected", expected), ("measured", measured))
    ),
    *(
        Figure(LEVIATHAN, ALPHAS, f"α, {pair}, t = {t}", printed)
        for pair, *alphas in ALPHAS_ROWS
        for t, printed in enumerate(alphas)
    ),
    Figure(LEVIATHAN, ALPHAS_TEXT, BIGRAM_SPEED, "1.25"),
    Figure(LEVIATHAN, LENIENCE, "α(l), unigram", ".07 .10 .11 .16"),
    Figure(LEVIATHAN, LENIENCE, "α(l), bigram", ".19 .23 .25 .32"),
    Figure(LEVIATHAN, LENIENCE, "α(l), T5-small", ".62 .71 .76 .84"),
    Figure(LEVIATHAN, LENIENCE, "α(l), T5-base", ".68 .80 .83 .90"),
    Figure(LEVIATHAN, LENIENCE_TEXT, "speed-up at l = 1, c = .015, T5-small", "2.5"),
    Figure(LEVIATHAN, LENIENCE_TEXT, "speed-up at l = .5, c = .015, T5-small", "3.1"),
    Figure(LEVIATHAN, LENIENCE_TEXT, "speed-up at l = .3, c = .015, T5-small", "3.6"),
    Figure(LEVIATHAN, LENIENCE_TEXT, "speed-up at l = .1, c = .015, T5-small", "5"),
    Figure(LEVIATHAN, LENIENCE_TEXT, "α(l) at l = 1, .5, .3, .1, temperature 0", ".75 .75 .80 .87"),
    Figure(LEVIATHAN, LENIENCE_TEXT, "speed-up at l = 1, c = .015, γ = 8, temperature 0", "3.3"),
    Figure(LEVIATHAN, LENIENCE_TEXT, "speed-up at l = .5, c = .015, γ = 8, temperature 0", "3.3"),
    Figure(LEVIATHAN, LENIENCE_TEXT, "speed-up at l = .3, c = .015, γ = 8, temperature 0", "3.9"),
    Figure(LEVIATHAN, LENIENCE_TEXT, "speed-up at l = .1, c = .015, γ = 8, temperature 0", "4.9"),
    *(
        Figure(CHEN, CHINCHILLA, f"{quantity}, {task}", printed)
        for task, _, unit, alone, alone_ms, score, ms, gain in CHINCHILLA_ROWS
        for quantity, printed in (
            (f"{unit}, target alone", alone),
            (f"{unit}, speculative", score),
            ("ms a token, target alone", alone_ms),
            ("ms a token, speculative", ms),
            ("speed-up", gain),
        )
    ),
    Figure(CHEN, CHINCHILLA_TEXT, DRAFT_MS, "1.8"),
    Figure(CHEN, CHINCHILLA_TEXT, FASTEST_K, "3"),
    Figure(YIN, YIN_FIGURE, "rejections in T = 50 tokens", "16.41"),
    Figure(YIN, YIN_FIGURE, "acceleration T / rejections", "3.05"),
    Figure(BLOCK, EXAMPLE, "accepted tokens, token by token", "10/9"),
    Figure(BLOCK, EXAMPLE, "accepted tokens, block verification", "11/9"),
    Figure(BLOCK, EXAMPLE, "accepted tokens, min-joint bound", "12/9"),
    Figure(BLOCK, BY_GAMMA, "tokens a step, token by token, γ = 4", "2.89"),
    Figure(BLOCK, BY_GAMMA, "tokens a step, token by token, γ = 6", "3.23"),
    Figure(BLOCK, BY_GAMMA, "tokens a step, token by token, γ = 8", "3.41"),
    Figure(BLOCK, BY_GAMMA, "tokens a step, block verification, γ = 4", "2.99"),
    Figure(BLOCK, BY_GAMMA, "tokens a step, block verification, γ = 6", "3.43"),
    Figure(BLOCK, BY_GAMMA, "tokens a step, block verification, γ = 8", "3.70"),
    Figure(BLOCK, TASKS, "LM1B", "3.21 3.49 2.17 2.32"),
    Figure(BLOCK, TASKS, "GPTPrompt", "3.41 3.76 2.30 2.48"),
    Figure(BLOCK, TASKS, "WebQA", "3.44 3.70 2.32 2.45"),
    Figure(BLOCK, TASKS, "PIQA", "3.40 3.68 2.29 2.44"),
    Figure(BLOCK, TASKS, "ShareGPT", "3.34 3.62 2.25 2.40"),
    Figure(BLOCK, TASKS, "XSum", "3.49 3.76 2.35 2.49"),
    Figure(BLOCK, TASKS, "GSM8K", "3.81 4.15 2.55 2.73"),
    Figure(BLOCK, TASKS, "WMT", "3.19 3.41 2.15 2.27"),
    Figure(BLOCK, TASKS, "average tokens a step, token by token", "3.41"),
    Figure(BLOCK, TASKS, "average tokens a step, block verification", "3.70"),
    Figure(BLOCK, TASKS, "average speed, token by token", "2.30"),
    Figure(BLOCK, TASKS, "average speed, block verification", "2.45"),
    Figure(BLOCK, TASKS, "gain in tokens a step, %", "8.30"),
    Figure(BLOCK, TASKS, "gain in speed, %", "6.49"),
    Figure(SPECTR, LM1B, "tokens a step, 1 draft of 4", "2.4"),
    Figure(SPECTR, LM1B, "tokens a step, 1 draft of 8", "2.9"),
    Figure(SPECTR, LM1B, "tokens a step, 8 drafts of 4", "3.1"),
    Figure(SPECTR, LM1B, "tokens a step, 8 drafts of 8", "4.0"),
    Figure(SPECTR, LM1B, "speed, 1 draft of 4", "1.67"),
    Figure(SPECTR, LM1B, "speed, 1 draft of 8", "1.56"),
    Figure(SPECTR, LM1B, "speed, 8 drafts of 4", "2.08"),
    Figure(SPECTR, LM1B, "speed, 8 drafts of 8", "2.13"),
    Figure(SPECTR, LM1B, "gain of 8 drafts of 8 over 1", "1.37"),
    Figure(SEQUOIA, COVER, "SpecInfer rejects", ".25"),
    Figure(SEQUOIA, COVER, "K-SEQ accepts", ".75"),
    Figure(SEQUOIA, SEQUOIA_TABLE, "C4, temperature 0", "4.04 5.08 3.45 3.96"),
    Figure(SEQUOIA, SEQUOIA_TABLE, "C4, temperature .6", "3.18 3.92 2.47 2.97"),
    Figure(SEQUOIA, SEQUOIA_TABLE, "OpenWebText, temperature 0", "3.22 3.86 2.79 3.15"),
    Figure(SEQUOIA, SEQUOIA_TABLE, "OpenWebText, temperature .6", "2.71 3.33 2.10 2.54"),
    Figure(SEQUOIA, SEQUOIA_TABLE, "CNN, temperature 0", "3.41 4.05 2.95 3.27"),
    Figure(SEQUOIA, SEQUOIA_TABLE, "CNN, temperature .6", "2.83 3.45 2.11 2.58"),
    Figure(SEQUOIA, SEQUOIA_TABLE, "MT-Bench, temperature 0", "4.03 4.98 3.84 4.01"),
    Figure(SEQUOIA, SEQUOIA_TABLE, "MT-Bench, temperature .6", "3.18 3.96 2.45 2.97"),
    Figure(SEQUOIA, "L40, offloading, Llama3-70B", "speed, tokens a step, temperature 0", "9.5 11.68"),
    Figure(STAGED, GPT2, PLAIN, "150"),
    Figure(STAGED, GPT2, "tokens a second, staged, greedy", "475"),
    Figure(STAGED, GPT2, "tokens a second, staged, top-k 50", "298"),
    Figure(STAGED, GPT2, "tokens a second, one draft; greedy, top-k 50", "350 219"),
    Figure(STAGED, GPT2, "gain of staged, greedy", "3.16"),
    Figure(STAGED, GPT2, "gain of staged, top-k 50", "1.98"),
    Figure(SPECINFER, "distributed", "speed-up", "1.5-2.8"),
    Figure(SPECINFER, "offloading", "speed-up", "2.6-3.5"),
    Figure(TRAVERSAL, "chains, 68M → 7B", "mean gain in accepted length, %", "5.7"),
    Figure(TRAVERSAL, "chains, 68M → 7B", "accepted length, multi-turn, before and after", "2.05 2.16"),
    Figure(TRAVERSAL, "chains, 68M → 7B", "accepted length, GSM8K, before and after", "2.01 2.15"),
    Figure(TRAVERSAL, "chains, 1B → 8B", "mean gain in accepted length, %", "2.8"),
    Figure(TRAVERSAL, "chains, 1B → 8B", "accepted length, multi-turn, before and after", "3.95 4.09"),
    Figure(TRAVERSAL, "chains, 1B → 8B", "accepted length, GSM8K, before and after", "4.61 4.70"),
    Figure(TRAVERSAL, "temperatures .2, .4, .6, .8, 1", "mean gain, %", "1.0 1.4 1.5 2.2 2.8"),
    Figure(
        "2605.04543", "Vicuna-7B, binary tree of depth 5", "tokens a step, UniVer, and top-down", "3.29 3.06"
    ),
    Figure(HIERARCHICAL, HSD_TABLE, "tokens a step, token by token", "5.99 6.14 6.44"),
    Figure(HIERARCHICAL, HSD_TABLE, "tokens a step, block verification", "6.13 6.26 6.53"),
    Figure(HIERARCHICAL, HSD_TABLE, "tokens a step, hierarchical", "6.30 6.47 6.65"),
    Figure(HIERARCHICAL, HSD_TABLE, "tokens a second, token by token", "82.28 53.87 31.49"),
    Figure(HIERARCHICAL, HSD_TABLE, "tokens a second, block verification", "86.06 54.91 31.79"),
    Figure(HIERARCHICAL, HSD_TABLE, "tokens a second, hierarchical", "91.05 57.12 32.52"),
    Figure("2411.05289", "SpecHub", "gain in tokens a step", ".05-.27"),
    Figure("2511.15898", "Global Resolution", "acceptance at 100 ms a token, %", "90"),
    Figure("2401.10774", "Medusa-1", "speed-up", "2.2"),
    Figure("2401.10774", "Medusa-2", "speed-up", "2.3-2.8"),
    Figure("2401.10774", "Vicuna 13B, 7B", "speed-up", "2.33 2.83"),
    Figure("2501.19309", "Judge decoding, 8B → 405B", "speed-up over HF, gpt-fast", "9.7 3.9"),
    Figure("2501.19309", "Judge decoding, 8B → 405B", "accepted length", "20"),
)
