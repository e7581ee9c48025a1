"""Train the two small transformers of the bundled trace "transformers", and record it.

They are trained on the source text of Python's standard library, split as for the bundled n-grams, and decode
after lines of the files that were held out. Run by `make transformers-trace`, which installs torch and
transformers; it takes a quarter of an hour on one core."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specsim.core._types import Ints
from specsim.decoding._recording.huggingface import record_hf
from specsim.decoding._recording.models import new_log
from specsim.models._trained_pairs import standard_library
from specsim.traces import default_trace, summarise
from specsim.traces._reader import BUNDLED, Trace

SEED = 1
VOCAB_SIZE = 1024
#: Tokens of a sequence, and sequences of a batch.
LENGTH, BATCH = 256, 4
MODELS = {
    "target": {"layers": 4, "width": 192, "heads": 6, "updates": 1400},
    "draft": {"layers": 2, "width": 64, "heads": 2, "updates": 2400},
}
#: The largest learning rates of matrices, trained by Muon, and of the embedding and gains, by AdamW.
RATES = 0.02, 0.005
#: Sequences of held-out text over which the loss is stated.
EVALUATED = 128

#: Texts, the lines before each, and the new tokens of each.
TEXTS, LINES, NEW_TOKENS = 64, 4, 64
GAMMA = 4
#: Tokens that are sampled from. Rows list them and the drafted one, so that they leave nothing out.
TOP_K = 20
END = "<|end|>"
#: Where the models and the trace of whole rows are kept.
FOLDER = Path("results/transformers")


def main() -> None:
    import torch

    torch.set_num_threads(1)
    corpus = standard_library()
    training, held_out = _decoded(corpus.training), _decoded(corpus.held_out)
    tokenizer = _tokenizer(training)
    seen, unseen = _tokens(tokenizer, training), _tokens(tokenizer, held_out)
    facts: dict[str, Any] = {
        **corpus.facts(),
        "tokenizer": f"byte-pair encoding, {VOCAB_SIZE} tokens",
        "training_tokens": len(seen),
        "tokens_per_update": LENGTH * BATCH,
        "seed": SEED,
        "models": {},
    }
    for name, shape in MODELS.items():
        model, found = _train(name, shape, seen, unseen)
        facts["models"][name] = shape | found
        for part in (model, tokenizer):
            part.save_pretrained(FOLDER / name)
    print(record_pair(facts, _prompts(tokenizer, held_out)))


def record_pair(facts: dict[str, Any], prompts: Sequence[str]) -> Trace:
    """Record the trained pair after `prompts`: whole rows in `FOLDER`, listed ones where they are bundled.

    α of the whole rows is a fact in the manifest, to be compared with that of the listed ones."""
    folder = BUNDLED["transformers"]
    for old in (FOLDER / "whole", folder):
        shutil.rmtree(old, ignore_errors=True)
    pair = FOLDER / "target", FOLDER / "draft"
    sampling: dict[str, Any] = {"temperature": 1.0, "top_k": TOP_K}
    options: dict[str, Any] = {"gamma": GAMMA, "max_new_tokens": NEW_TOKENS, "rng": SEED, **sampling}
    whole = record_hf(FOLDER / "whole", *pair, prompts, **options)
    facts = {"rule": "standard", "steps": whole.num_steps, "texts": len(prompts), **sampling} | facts
    facts["alpha_context"] = summarise(whole).alpha_context
    columns = [columns for columns, _ in whole.scan()]
    context, accepted = (
        np.concatenate([getattr(part, name) for part in columns]).reshape(-1, GAMMA + 1)
        for name in ("context", "accepted")
    )
    layout: dict[str, Any] = {"vocab_size": whole.vocab_size, "gamma": GAMMA, "dtype": "float16"}
    with new_log(folder, **layout, top=TOP_K + 1, root=SEED, facts=facts) as add:
        for step, (tokens, p, q) in enumerate(zip(*whole.steps(np.arange(whole.num_steps)), strict=True)):
            add(int(context[step, 0]), tokens.tolist(), int((accepted[step] == 1).sum()), p, q)
    return default_trace("transformers")


def _decoded(files: Sequence[bytes]) -> list[str]:
    """Their text; a few files are not UTF-8."""
    return [file.decode(errors="replace") for file in files]


def _tokenizer(texts: Sequence[str]) -> Any:
    """A tokenizer with byte-pair encoding, trained on `texts`; its token 0 ends a text."""
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(texts, VOCAB_SIZE, special_tokens=[END], show_progress=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, eos_token=END)


def _tokens(tokenizer: Any, texts: Sequence[str]) -> Ints:
    """The tokens of all texts, each with its end."""
    encoded = [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in texts]
    return np.concatenate([np.array(tokens, dtype=np.int64) for tokens in encoded])


def _train(name: str, shape: dict[str, Any], tokens: Ints, held_out: Ints) -> tuple[Any, dict[str, Any]]:
    """A transformer trained on `tokens`, with its number of parameters and its loss on `held_out`."""
    import torch
    from tqdm import trange
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=shape["width"],
        intermediate_size=3 * shape["width"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        max_position_embeddings=LENGTH,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
    )
    torch.manual_seed(SEED)
    model, updates = LlamaForCausalLM(config), shape["updates"]
    matrices = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
    others = [weight for weight in model.parameters() if all(weight is not one for one in matrices)]
    optimizers = (
        torch.optim.Muon(matrices, lr=RATES[0], weight_decay=0.1),
        torch.optim.AdamW(others, lr=RATES[1], betas=(0.9, 0.95), weight_decay=0.1),
    )
    schedules = [
        torch.optim.lr_scheduler.OneCycleLR(one, rate, updates, pct_start=0.05, cycle_momentum=False)
        for one, rate in zip(optimizers, RATES, strict=True)
    ]
    rng = np.random.default_rng(SEED)
    for _ in trange(updates, desc=name, mininterval=30.0):
        model.zero_grad()
        _loss(model, tokens, rng.integers(len(tokens) - LENGTH, size=BATCH)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for one in (*optimizers, *schedules):
            one.step()
    places = np.linspace(0, len(held_out) - LENGTH, EVALUATED).astype(np.int64)
    with torch.inference_mode():
        loss = float(_loss(model.eval(), held_out, places))
    size = sum(parameter.numel() for parameter in model.parameters())
    return model, {"parameters": size, "held_out_nats_per_token": loss}


def _loss(model: Any, tokens: Ints, starts: Ints) -> Any:
    """The mean loss of a batch of sequences of `tokens`."""
    import torch

    batch = torch.from_numpy(tokens[starts[:, None] + np.arange(LENGTH)])
    return model(input_ids=batch, labels=batch).loss


def _prompts(tokenizer: Any, texts: Sequence[str]) -> list[str]:
    """`LINES` lines each, from places drawn uniformly, that leave room for the new tokens."""
    rng = np.random.default_rng(SEED)
    lines = "".join(texts).splitlines(keepends=True)
    found: list[str] = []
    while len(found) < TEXTS:
        first = int(rng.integers(len(lines) - LINES))
        prompt = "".join(lines[first : first + LINES])
        if prompt.strip() and len(tokenizer(prompt)["input_ids"]) + NEW_TOKENS + GAMMA <= LENGTH:
            found.append(prompt)
    return found


if __name__ == "__main__":
    main()
