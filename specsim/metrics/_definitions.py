"""How engines define the numbers that they report, with sources."""

from dataclasses import dataclass
from typing import Literal

NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Definition:
    """An engine's definitions of its numbers.

    Parameters
    ----------
    acceptance_rate, tokens_per_step, emitted : str
        Formulas in words, or "not known": the number is then not checked.
    source : str
        Where the formulas are documented.
    mean : {"emitted", "accepted", "either"}
        What is divided by the steps to give tokens per step; "either" if the engine uses one name for both.
    outside : {"none", "first", "any"}
        Tokens that come from no counted step: none; the first of each request, from the prompt's pass; or any
        number, where steps without a draft are not counted.
    constant : bool
        Whether every draft but a request's last has exactly γ tokens; otherwise at most γ.
    independent : bool
        Whether `accepted` includes tests passed after a rejection, and `emitted` only drafted tokens.
    """

    acceptance_rate: str
    tokens_per_step: str
    emitted: str
    source: str
    mean: Literal["emitted", "accepted", "either"] = "emitted"
    outside: Literal["none", "first", "any"] = "none"
    constant: bool = False
    independent: bool = False


#: By name; "plain" takes the words literally.
DEFINITIONS = {
    "plain": Definition(
        acceptance_rate="accepted / drafted (α drafted)",
        tokens_per_step="emitted / steps",
        emitted="accepted + steps: every token comes from a counted step, every draft has γ tokens",
        source="the words themselves; Leviathan et al., arXiv 2211.17192, for what a step emits",
        constant=True,
    ),
    "vllm": Definition(
        acceptance_rate="accepted / drafted (α drafted)",
        tokens_per_step="1 + accepted / steps, the mean acceptance length; tokens behind the end of a text "
        "included",
        emitted="output tokens; also the first of each request, and those of steps without a draft, which "
        "are not counted",
        source="vllm/v1/spec_decode/metrics.py and v1/core/sched/scheduler.py; vllm-project/vllm#17908, "
        "#56101",
        mean="accepted",
        outside="any",
    ),
    "hf": Definition(
        acceptance_rate=NOT_KNOWN,
        tokens_per_step="emitted / steps, as you count them; a report of its own is not known",
        emitted="new tokens: accepted + steps, cropped at the end of the text",
        source="transformers 5.23, generation/utils.py, _speculative_sampling and assisted decoding",
    ),
    "sglang": Definition(
        acceptance_rate="accepted / drafted (α drafted); before sgl-project/sglang#23530 the log's rate was "
        "(accepted + steps) / (steps × (γ + 1))",
        tokens_per_step="log: 1 + accepted / steps; meta_info of a request: completion tokens / "
        "verification passes",
        emitted="completion tokens; the first of each request may come from the prompt's pass",
        source="sgl-project/sglang#23530, #11144, #33518; managers/tokenizer_manager.py",
        mean="either",
        outside="first",
    ),
    "llama.cpp": Definition(
        acceptance_rate="accepted / drafted (α drafted), drafts too short to be verified left out",
        tokens_per_step="1 + accepted / verification steps, the mean acceptance length",
        emitted="generated tokens; also the first of each request, and those of steps without a draft, "
        "which are not counted",
        source="ggml-org/llama.cpp#24536, #14104; tools/server/server-context.cpp",
        mean="accepted",
        outside="any",
    ),
    "flashinfer": Definition(
        acceptance_rate=NOT_KNOWN,
        tokens_per_step="1 + emitted / steps",
        emitted="drafted tokens before the first rejection, the last token of the step not counted; accepted "
        "also counts tests passed behind the rejection, so it is at least as large",
        source="flashinfer/sampling.py, chain_speculative_sampling",
        mean="accepted",
        constant=True,
        independent=True,
    ),
}
