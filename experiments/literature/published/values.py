"""Values published in papers, each with its place there: the only module where such numbers are typed.

`experiments.literature.published.recomputed` compares them with what can be recomputed. Tables whose columns
depend on one another are kept as rows, from which `FIGURES` has a figure for each cell.
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
STERN, MEDUSA, EAGLE, EAGLE_2, EAGLE_3 = (
    "1811.03115",
    "2401.10774",
    "2401.15077",
    "2406.16858",
    "2503.01840",
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
SEQUOIA_OFFLOADED = "L40, offloading, Llama3-70B"
HSD_MODELS = ("14B", "32B", "72B")
HSD_TABLE = f"GSM8K, Qwen2.5 {', '.join(HSD_MODELS)}"

# --- blockwise parallel decoding, Medusa -----------------------------------------------------------------

BLOCK_SIZES = ("2", "4", "6", "8", "10")
STERN_TOKENS = f"tokens a step, k = {', '.join(BLOCK_SIZES)}"
STERN_SPEED = "Table 4, English-German, test set"
STERN_BLEU, STERN_TEXT = "Table 1, English-German, BLEU", "text on Tables 1 and 2"
#: Table and column, tokens a step for each k.
STERN_ROWS = (
    ("Table 1, English-German, regular", "1.51 1.73 1.76 1.76 1.74"),
    ("Table 1, English-German, distillation", "1.55 1.85 1.90 1.91 1.90"),
    ("Table 1, English-German, fine tuning", "1.78 2.69 2.98 3.01 2.87"),
    ("Table 1, English-German, both", "1.88 3.27 4.18 4.69 4.95"),
    ("Table 2, super-resolution, regular", "1.07 1.08 1.09 1.09 1.10"),
    ("Table 2, super-resolution, approximate", "1.24 1.36 1.38 1.49 1.40"),
    ("Table 2, super-resolution, fine tuning", "1.59 2.11 2.23 2.17 2.04"),
    ("Table 2, super-resolution, both", "1.96 3.75 5.25 6.36 6.79"),
)

MEDUSA_TABLE = "Table 1, Medusa-2"
#: Target, tokens a step, time of a step in target passes, speed-up.
MEDUSA_ROWS = (
    ("Vicuna-7B", "3.47", "1.22", "2.83"),
    ("Zephyr-7B", "3.14", "1.18", "2.66"),
    ("Vicuna-13B", "3.51", "1.23", "2.83"),
    ("Vicuna-33B", "3.01", "1.27", "2.35"),
)

# --- EAGLE -----------------------------------------------------------------------------------------------

EAGLE_TABLE = "Table 1; speed, tokens a step on HumanEval, GSM8K, Alpaca"
EAGLE_ROWS = (
    ("Vicuna 7B, temperature 0", "3.33 4.29 3.01 4.00 2.79 3.86"),
    ("Vicuna 13B, temperature 0", "3.58 4.39 3.08 3.97 3.03 3.95"),
    ("Vicuna 33B, temperature 0", "3.67 4.28 3.25 3.94 2.97 3.61"),
    ("LLaMA2-Chat 7B, temperature 0", "3.17 4.24 2.91 3.82 2.78 3.71"),
    ("LLaMA2-Chat 13B, temperature 0", "3.76 4.52 3.20 4.03 3.01 3.83"),
    ("LLaMA2-Chat 70B, temperature 0", "3.52 4.42 3.03 3.93 2.97 3.77"),
    ("Vicuna 7B, temperature 1", "2.39 3.43 2.34 3.29 2.21 3.30"),
    ("Vicuna 13B, temperature 1", "2.65 3.63 2.57 3.60 2.45 3.57"),
    ("Vicuna 33B, temperature 1", "2.76 3.62 2.77 3.60 2.52 3.32"),
    ("LLaMA2-Chat 7B, temperature 1", "2.61 3.79 2.40 3.52 2.29 3.33"),
    ("LLaMA2-Chat 13B, temperature 1", "2.89 3.78 2.82 3.67 2.66 3.55"),
    ("LLaMA2-Chat 70B, temperature 1", "2.92 3.76 2.74 3.58 2.65 3.47"),
)
EAGLE_MIXTRAL = "Table 3, Mixtral 8x7B, MT-bench, temperature 0"
EAGLE_TREE = "Table 5, MT-bench, temperature 0"
#: Target; tokens a step of a chain, of a tree, and the printed gain.
EAGLE_TREE_ROWS = (
    ("Vicuna 7B", "3.20", "3.94", ".74"),
    ("Vicuna 13B", "3.23", "3.98", ".75"),
    ("Vicuna 33B", "2.97", "3.68", ".71"),
    ("LLaMA2-Chat 7B", "3.00", "3.62", ".62"),
    ("LLaMA2-Chat 13B", "3.18", "3.90", ".68"),
    ("LLaMA2-Chat 70B", "3.12", "3.81", ".69"),
)
EAGLE_DATA = "Table 6, LLaMA2-Chat 7B; speed, tokens a step"
EAGLE_DATA_ROWS = (("fixed dataset", "2.78 3.62"), ("data generated by the target", "2.88 3.75"))

EAGLE_2_TABLE = (
    "Table 1; speed, tokens a step on MT-bench, HumanEval, GSM8K, Alpaca, CNN/DM, Natural Questions"
)
#: Target, method; speed and tokens a step of each task; the printed means of both.
EAGLE_2_ROWS = (
    (
        "Vicuna 13B, temperature 0, SpS",
        "1.93 2.27 2.23 2.57 1.77 2.01 1.76 2.03 1.93 2.33 1.66 1.88",
        "1.88",
        "2.18",
    ),
    (
        "Vicuna 13B, temperature 0, PLD",
        "1.58 1.63 1.85 1.93 1.68 1.73 1.16 1.19 2.42 2.50 1.14 1.17",
        "1.64",
        "1.69",
    ),
    (
        "Vicuna 13B, temperature 0, Medusa",
        "2.07 2.59 2.50 2.78 2.23 2.64 2.08 2.45 1.71 2.09 1.81 2.10",
        "2.07",
        "2.44",
    ),
    (
        "Vicuna 13B, temperature 0, Lookahead",
        "1.65 1.69 1.71 1.75 1.81 1.90 1.46 1.51 1.46 1.50 1.36 1.39",
        "1.58",
        "1.62",
    ),
    (
        "Vicuna 13B, temperature 0, Hydra",
        "2.88 3.65 3.28 3.87 2.93 3.66 2.86 3.53 2.05 2.81 2.11 2.88",
        "2.69",
        "3.40",
    ),
    (
        "Vicuna 13B, temperature 0, EAGLE",
        "3.07 3.98 3.58 4.39 3.08 3.97 3.03 3.95 2.49 3.52 2.42 3.11",
        "2.95",
        "3.82",
    ),
    (
        "Vicuna 13B, temperature 0, EAGLE-2",
        "4.26 4.83 4.96 5.41 4.22 4.79 4.25 4.89 3.40 4.21 3.13 3.74",
        "4.04",
        "4.65",
    ),
    (
        "LLaMA2-Chat 13B, temperature 0, PLD",
        "1.42 1.46 1.63 1.70 1.41 1.44 1.16 1.20 1.42 1.45 1.12 1.15",
        "1.36",
        "1.40",
    ),
    (
        "LLaMA2-Chat 13B, temperature 0, Lookahead",
        "1.58 1.64 1.80 1.85 1.65 1.69 1.47 1.50 1.46 1.53 1.42 1.45",
        "1.56",
        "1.61",
    ),
    (
        "LLaMA2-Chat 13B, temperature 0, EAGLE",
        "3.03 3.90 3.76 4.52 3.20 4.03 3.01 3.83 2.70 3.59 2.83 3.47",
        "3.09",
        "3.89",
    ),
    (
        "LLaMA2-Chat 13B, temperature 0, EAGLE-2",
        "4.21 4.75 5.00 5.52 4.31 4.90 4.13 4.61 3.45 4.24 3.51 4.04",
        "4.10",
        "4.68",
    ),
    (
        "Vicuna 7B, temperature 0, SpS",
        "1.82 2.36 1.99 2.61 1.71 2.26 1.65 2.21 1.81 2.44 1.60 2.16",
        "1.76",
        "2.34",
    ),
    (
        "Vicuna 7B, temperature 0, PLD",
        "1.61 1.68 1.82 1.87 1.82 1.99 1.21 1.31 2.53 2.72 1.23 1.44",
        "1.70",
        "1.84",
    ),
    (
        "Vicuna 7B, temperature 0, Medusa",
        "1.91 2.52 2.02 2.67 1.89 2.59 1.79 2.48 1.42 2.02 1.51 2.09",
        "1.76",
        "2.40",
    ),
    (
        "Vicuna 7B, temperature 0, Lookahead",
        "1.63 1.69 1.72 1.77 1.84 1.99 1.38 1.57 1.44 1.53 1.45 1.60",
        "1.58",
        "1.69",
    ),
    (
        "Vicuna 7B, temperature 0, Hydra",
        "2.69 3.60 2.98 3.79 2.73 3.66 2.66 3.58 2.01 2.70 2.25 2.86",
        "2.55",
        "3.37",
    ),
    (
        "Vicuna 7B, temperature 0, EAGLE",
        "2.90 3.94 3.33 4.29 3.01 4.00 2.79 3.89 2.33 3.42 2.31 3.21",
        "2.78",
        "3.79",
    ),
    (
        "Vicuna 7B, temperature 0, EAGLE-2",
        "3.62 4.98 3.95 5.33 3.63 4.97 3.46 4.86 2.94 4.12 2.76 3.82",
        "3.39",
        "4.68",
    ),
    (
        "LLaMA2-Chat 7B, temperature 0, PLD",
        "1.38 1.43 1.52 1.59 1.32 1.37 1.15 1.19 1.48 1.52 1.15 1.20",
        "1.33",
        "1.38",
    ),
    (
        "LLaMA2-Chat 7B, temperature 0, Lookahead",
        "1.61 1.66 1.72 1.77 1.58 1.65 1.49 1.52 1.49 1.54 1.48 1.53",
        "1.56",
        "1.61",
    ),
    (
        "LLaMA2-Chat 7B, temperature 0, EAGLE",
        "2.78 3.62 3.17 4.24 2.91 3.82 2.78 3.71 2.43 3.41 2.61 3.44",
        "2.78",
        "3.71",
    ),
    (
        "LLaMA2-Chat 7B, temperature 0, EAGLE-2",
        "3.43 4.70 4.03 5.39 3.52 4.77 3.45 4.66 3.01 4.12 3.15 4.19",
        "3.43",
        "4.64",
    ),
    (
        "Vicuna 13B, temperature 1, SpS",
        "1.62 1.84 1.72 1.97 1.46 1.73 1.52 1.78 1.66 1.89 1.43 1.70",
        "1.55",
        "1.82",
    ),
    (
        "Vicuna 13B, temperature 1, EAGLE",
        "2.32 3.20 2.65 3.63 2.57 3.60 2.45 3.57 2.23 3.26 2.14 3.06",
        "2.39",
        "3.39",
    ),
    (
        "Vicuna 13B, temperature 1, EAGLE-2",
        "3.80 4.40 4.22 4.89 3.77 4.41 3.78 4.37 3.25 3.97 3.07 3.54",
        "3.65",
        "4.26",
    ),
    (
        "LLaMA2-Chat 13B, temperature 1, EAGLE",
        "2.68 3.45 2.89 3.78 2.82 3.67 2.66 3.55 2.41 3.39 2.37 3.31",
        "2.64",
        "3.53",
    ),
    (
        "LLaMA2-Chat 13B, temperature 1, EAGLE-2",
        "3.92 4.51 4.58 5.29 4.21 4.80 3.85 4.48 3.31 4.08 3.43 3.89",
        "3.88",
        "4.51",
    ),
    (
        "Vicuna 7B, temperature 1, SpS",
        "1.50 1.87 1.55 1.95 1.53 1.82 1.56 1.85 1.63 1.91 1.33 1.72",
        "1.52",
        "1.85",
    ),
    (
        "Vicuna 7B, temperature 1, EAGLE",
        "2.13 3.17 2.39 3.43 2.34 3.29 2.21 3.30 2.08 3.12 1.95 2.86",
        "2.18",
        "3.20",
    ),
    (
        "Vicuna 7B, temperature 1, EAGLE-2",
        "3.05 4.28 3.33 4.65 3.07 4.49 3.08 4.43 2.63 3.76 2.48 3.56",
        "2.94",
        "4.20",
    ),
    (
        "LLaMA2-Chat 7B, temperature 1, EAGLE",
        "2.22 3.30 2.61 3.79 2.40 3.52 2.29 3.33 2.19 3.15 2.22 3.12",
        "2.32",
        "3.37",
    ),
    (
        "LLaMA2-Chat 7B, temperature 1, EAGLE-2",
        "3.19 4.41 3.67 5.06 3.35 4.62 3.20 4.48 2.73 3.85 2.81 4.01",
        "3.15",
        "4.41",
    ),
)

EAGLE_3_TABLE = "Table 1; speed, tokens a step on MT-bench, HumanEval, GSM8K, Alpaca, CNN/DM"
#: As in `EAGLE_2_ROWS`, without the rows that are those of EAGLE-2's table.
EAGLE_3_ROWS = (
    (
        "Vicuna 13B, temperature 0, EAGLE-3",
        "5.58 6.65 6.47 7.54 5.32 6.29 5.16 6.17 5.01 6.47",
        "5.51",
        "6.62",
    ),
    (
        "LLaMA-3.1 8B, temperature 0, EAGLE-2",
        "3.16 4.05 3.66 4.71 3.39 4.24 3.28 4.12 2.65 3.45",
        "3.23",
        "4.11",
    ),
    (
        "LLaMA-3.1 8B, temperature 0, HASS",
        "3.55 4.41 3.78 4.85 3.45 4.47 3.57 4.55 2.77 3.55",
        "3.42",
        "4.37",
    ),
    (
        "LLaMA-3.1 8B, temperature 0, EAGLE-3",
        "4.40 6.13 4.85 6.74 4.48 6.23 4.82 6.70 3.65 5.34",
        "4.44",
        "6.23",
    ),
    (
        "LLaMA-3.3 70B, temperature 0, EAGLE-2",
        "2.83 3.67 3.12 4.09 2.83 3.69 3.03 3.92 2.44 3.55",
        "2.85",
        "3.78",
    ),
    (
        "LLaMA-3.3 70B, temperature 0, EAGLE-3",
        "4.11 5.63 4.79 6.52 4.34 6.15 4.30 6.09 3.27 5.02",
        "4.12",
        "5.88",
    ),
    (
        "R1-Distill-LLaMA 8B, temperature 0, EAGLE-2",
        "2.92 3.80 3.42 4.29 3.40 4.40 3.01 3.80 3.53 3.33",
        "3.26",
        "3.92",
    ),
    (
        "R1-Distill-LLaMA 8B, temperature 0, EAGLE-3",
        "4.05 5.58 4.59 6.38 5.01 6.93 3.65 5.37 3.52 4.92",
        "4.16",
        "5.84",
    ),
    (
        "Vicuna 13B, temperature 1, EAGLE-3",
        "4.57 5.42 5.15 6.22 4.71 5.58 4.49 5.39 4.33 5.72",
        "4.65",
        "5.67",
    ),
    (
        "LLaMA-3.1 8B, temperature 1, EAGLE-2",
        "2.44 3.16 3.39 4.39 2.86 3.74 2.83 3.65 2.44 3.14",
        "2.80",
        "3.62",
    ),
    (
        "LLaMA-3.1 8B, temperature 1, HASS",
        "2.58 3.31 3.48 4.50 2.87 3.77 3.04 3.98 2.42 3.11",
        "2.89",
        "3.73",
    ),
    (
        "LLaMA-3.1 8B, temperature 1, EAGLE-3",
        "3.07 4.24 4.13 5.82 3.32 4.59 3.90 5.56 2.99 4.39",
        "3.45",
        "4.92",
    ),
    (
        "LLaMA-3.3 70B, temperature 1, EAGLE-2",
        "2.73 3.51 2.89 3.81 2.52 3.36 2.77 3.73 2.32 3.27",
        "2.65",
        "3.54",
    ),
    (
        "LLaMA-3.3 70B, temperature 1, EAGLE-3",
        "3.96 5.45 4.36 6.16 4.17 5.95 4.14 5.87 3.11 4.88",
        "3.95",
        "5.66",
    ),
    (
        "R1-Distill-LLaMA 8B, temperature 1, EAGLE-2",
        "2.69 3.41 3.01 3.82 3.16 4.05 2.64 3.29 2.35 3.13",
        "2.77",
        "3.54",
    ),
    (
        "R1-Distill-LLaMA 8B, temperature 1, EAGLE-3",
        "3.20 4.49 3.77 5.28 4.38 6.10 3.16 4.30 3.08 4.27",
        "3.52",
        "4.89",
    ),
)
EAGLE_TABLES = ((EAGLE_2, EAGLE_2_TABLE, EAGLE_2_ROWS), (EAGLE_3, EAGLE_3_TABLE, EAGLE_3_ROWS))

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
    Figure(SEQUOIA, SEQUOIA_OFFLOADED, "speed, tokens a step, temperature 0", "9.5 11.68"),
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
    *(Figure(STERN, table, STERN_TOKENS, printed) for table, printed in STERN_ROWS),
    Figure(STERN, STERN_BLEU, "k = 8, regular, distillation", "25.82 26.25"),
    Figure(STERN, STERN_BLEU, "distillation, k = 1; both, k = 10", "26.41 25.60"),
    Figure(STERN, STERN_TEXT, "gain in BLEU by distillation, k = 8", ".43"),
    Figure(STERN, STERN_TEXT, "loss in BLEU of both, k = 10, from distillation, k = 1", ".81"),
    Figure(STERN, STERN_TEXT, "tokens a step, both, super-resolution, k = 6", "5.3"),
    Figure(STERN, STERN_TEXT, "speed, both, super-resolution, k = 6", "4.0"),
    Figure(STERN, STERN_SPEED, f"speed, k = {', '.join(BLOCK_SIZES)}", "1.72 2.69 3.10 3.31 3.04"),
    Figure(MEDUSA, "Medusa-1", "speed-up", "2.2"),
    Figure(MEDUSA, "Medusa-1, Vicuna 7B, 13B", "speed-up", "2.18 2.33"),
    Figure(MEDUSA, "Medusa-2", "speed-up", "2.3-2.8"),
    *(
        Figure(MEDUSA, MEDUSA_TABLE, f"{name}, {target}", printed)
        for target, *row in MEDUSA_ROWS
        for name, printed in zip(("tokens a step", "time of a step", "speed-up"), row, strict=True)
    ),
    *(Figure(EAGLE, EAGLE_TABLE, target, printed) for target, printed in EAGLE_ROWS),
    Figure(EAGLE, EAGLE_MIXTRAL, "speed, tokens a step", "1.50 3.25"),
    *(
        Figure(EAGLE, EAGLE_TREE, f"{name}, {target}", printed)
        for target, *row in EAGLE_TREE_ROWS
        for name, printed in zip(("chain", "tree", "gain of the tree"), row, strict=True)
    ),
    *(Figure(EAGLE, EAGLE_DATA, data, printed) for data, printed in EAGLE_DATA_ROWS),
    *(
        Figure(paper, table, f"{system}{what}", printed)
        for paper, table, rows in EAGLE_TABLES
        for system, *row in rows
        for what, printed in zip(("", ", mean speed", ", mean tokens a step"), row, strict=True)
    ),
    Figure("2408.15766", "HASS, averages over three datasets", "speed-up", "2.81-4.05"),
    Figure("2408.11049", "MagicDec, Llama-3.1-8B, batches of 32 to 256", "largest speed-up", "2.51"),
    Figure("2406.14066", "SmartSpec", "largest gain in latency", "3.2"),
    Figure("2402.02057", "Lookahead decoding", "largest speed-up; MT-bench, code on several GPUs", "1.8 4"),
    Figure("2501.19309", "Judge decoding, 8B → 405B", "speed-up over HF, gpt-fast", "9.7 3.9"),
    Figure("2501.19309", "Judge decoding, 8B → 405B", "accepted length", "20"),
)
