"""`specsim trace record` and `record hf`."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from specsim.cli._app import ending, record_app, trace_app
from specsim.cli._options import REAL, Dtype, Gamma, Models, Rule, Seed, whole
from specsim.cli._pair_options import models_of
from specsim.cli._terminal import written


@trace_app.command(name="record", help_epilogue=ending("trace record ours --models ngram --steps 10k"))
def trace_record(
    path: Annotated[Path, Parameter(help="Folder to write; must be new or empty.")],
    *,
    models: Models = "ngram",
    steps: Annotated[int, Parameter(converter=whole, help="Speculative steps to log.")] = 1000,
    gamma: Gamma = 5,
    rule: Rule = "standard",
    dtype: Dtype = "float32",
    top: Annotated[
        int | None,
        Parameter(converter=whole, help="Log only this many of the most probable tokens of each row."),
    ] = None,
    seed: Seed = None,
) -> None:
    """Decode speculatively, and log the drafted tokens with their rows of p and q."""
    from specsim.decoding import record

    layout: dict[str, Any] = {"gamma": gamma, "dtype": dtype, "top": top}
    trace = record(path, *models_of(models), steps=steps, rule=rule, rng=seed, **layout)
    print(f"{written(trace)} (seed {trace.provenance['root']})")


@record_app.command(
    help_epilogue=ending("record hf ours --target gpt2-xl --draft gpt2 --prompts prompts.txt")
)
def hf(
    path: Annotated[Path, Parameter(help="Folder to write; must be new or empty.")],
    *,
    target: Annotated[
        str, Parameter(help="The target: a folder or name that transformers' from_pretrained loads.")
    ],
    draft: Annotated[str, Parameter(help="The draft, with the same tokenizer.")],
    prompts: Annotated[
        Path,
        Parameter(help='A text file, a prompt on each line; or .jsonl, an object with "prompt" on each.'),
    ],
    gamma: Gamma = 5,
    max_new_tokens: Annotated[int, Parameter(converter=whole, help="Tokens for each prompt.")] = 128,
    temperature: Annotated[float, REAL, Parameter(help="Temperature of both models; 0 is greedy.")] = 1.0,
    top_k: Annotated[
        int, Parameter(converter=whole, help="Keep this many most probable tokens; 0: all.")
    ] = 0,
    top_p: Annotated[float, REAL, Parameter(help="Keep the most probable tokens up to this mass.")] = 1.0,
    rule: Rule = "standard",
    dtype: Dtype = "float32",
    top: Annotated[
        int | None,
        Parameter(converter=whole, help="Store this many tokens of each row, and the mass of the rest."),
    ] = None,
    device: Annotated[str, Parameter(help="The torch device of the models.")] = "cpu",
    seed: Seed = None,
) -> None:
    """Decode with two models of Hugging Face transformers, and log the drafted tokens with p and q."""
    from specsim.decoding import record_hf
    from specsim.decoding._recording.prompts import read_prompts

    texts = read_prompts(prompts)
    sampling: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "rule": rule}
    layout: dict[str, Any] = {"gamma": gamma, "dtype": dtype, "top": top}
    limits: dict[str, Any] = {"max_new_tokens": max_new_tokens, "device": device}
    trace = record_hf(path, target, draft, texts, rng=seed, **sampling, **layout, **limits)
    print(
        f"wrote {trace.num_steps:,} steps of {len(texts):,} texts, {trace.num_bytes / 1e6:.1f} MB to {path} "
        f"(seed {trace.provenance['root']})"
    )
