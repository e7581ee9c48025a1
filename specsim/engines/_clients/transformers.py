"""Hugging Face transformers: plain and assisted generation, prompt lookup, universal decoding, early exit.

Assisted generation takes one text at a time. Plain sampling takes many: prompts are padded on the left, and
requests with a seed are decoded alone."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from specsim.core._types import check_choice, check_counts
from specsim.engines._clients.running import Answers, InProcess, need, or_failures
from specsim.engines._planted.architectures import ARCHITECTURES, DECIDING, STATEFUL
from specsim.engines._planted.folder import Planted
from specsim.engines._planted.grammar import follow, with_bans
from specsim.engines._planted.law import MOST_ROWS, TableLogits, most_probable
from specsim.engines._planted.requests import BANS, RARE, Completion, Failure, Request

DTYPES = ("float32", "bfloat16", "float16")
#: Ways to draft by `generate`, which is not given the tokenizer for stop strings.
NO_STOP_STRINGS = {"assistant_model", "assistant_early_exit"}


class TransformersEngine(InProcess):
    """The target, with the draft as `assistant_model` or plain."""

    name, _package, _logprobs = "hf", "transformers", "processed"
    _loads, _without_drafts = tuple(ARCHITECTURES), STATEFUL
    _lacks = frozenset({"frequency_penalty", "presence_penalty", "penalty_last_n", *RARE} - {"typical_p"})

    def __init__(
        self,
        planted: Planted,
        *,
        speculative: bool = True,
        gamma: int = 4,
        dtype: str = "float32",
        batch: int = 64,
    ):
        check_counts(batch=batch)
        check_choice("dtype", dtype, DTYPES)
        self._dtype, self._batch = dtype, 1 if speculative else batch
        self._settings = {"dtype": dtype, "batch": self._batch}
        super().__init__(planted, speculative=speculative, gamma=gamma)

    def _open(self) -> None:
        self._torch = need("torch", "torch transformers")
        transformers = need("transformers", "torch transformers")
        self._model = self._load(transformers, "target")
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(self._planted.checkpoint("target", "hf"))
        self._drafting = self._how_to_draft(transformers) if self._gamma else {}

    def complete(self, requests: Sequence[Request]) -> Iterator[Completion | Failure]:
        for members in self._batches(requests):
            threads = self._torch.get_num_threads()
            self._torch.set_num_threads(1)  # a planted model is so small that threads wait for each other
            try:
                found = or_failures(lambda members=members: self._answers(members), members)  # type: ignore[misc]
            finally:
                self._torch.set_num_threads(threads)
            yield from found

    def _load(self, transformers: Any, which: str) -> Any:
        folder = self._planted.checkpoint(which, "hf")
        dtype = getattr(self._torch, self._dtype)
        return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()

    def _how_to_draft(self, transformers: Any) -> dict[str, Any]:
        """The arguments of `generate` that make it speculate with γ drafts in every step."""
        draft = self._load(transformers, "draft")
        self._always_draft(draft)
        return {"assistant_model": draft}

    def _always_draft(self, model: Any) -> None:
        model.generation_config.num_assistant_tokens = self._gamma
        model.generation_config.num_assistant_tokens_schedule = "constant"
        model.generation_config.assistant_confidence_threshold = 0.0

    def _batches(self, requests: Sequence[Request]) -> Iterator[list[Request]]:
        """Neighbours that one call can decode."""
        for (_, _, seed), group in groupby(requests, lambda one: (one.sampling, one.max_tokens, one.seed)):
            members = list(group)
            size = self._batch if seed is None else 1
            yield from (members[i : i + size] for i in range(0, len(members), size))

    def _answers(self, members: list[Request]) -> Answers:
        """The completions of requests that differ in their prompts alone."""
        started, first = time.perf_counter(), members[0]
        self._check(first)
        if first.sampling.stop and self._drafting.keys() & NO_STOP_STRINGS:
            raise NotImplementedError("stop: assisted generation does not pass the tokenizer to the draft")
        if first.seed is not None:
            self._torch.manual_seed(first.seed)
        every = [(one, index) for one in members for index in range(one.n)]
        longest, made = max(len(one.prompt) for one in members), list[Any]()
        for start in range(0, len(every), self._batch):
            prompts = [one.prompt for one, _ in every[start : start + self._batch]]
            made += self._generate(prompts, longest, first)
        seconds = time.perf_counter() - started
        return [self._completion(*one, text, seconds) for one, text in zip(every, made, strict=True)]

    def _generate(self, prompts: Sequence[Sequence[int]], longest: int, request: Request) -> list[Any]:
        """For each prompt the new tokens, the logs [tokens, V] of their rows, and drafts counted by name."""
        torch, sampling, eos = self._torch, request.sampling, self._planted.eos
        padding = [longest - len(prompt) for prompt in prompts]
        padded = [[eos] * n + list(prompt) for n, prompt in zip(padding, prompts, strict=True)]
        mask = [[0] * n + [1] * (longest - n) for n in padding]
        how: dict[str, Any] = {"do_sample": False}
        if sampling.temperature > 0:
            how = {"do_sample": True, "temperature": sampling.temperature, "top_k": sampling.top_k or 0}
            how |= {"top_p": sampling.top_p, "min_p": sampling.min_p or None, "typical_p": sampling.typical_p}
        how["repetition_penalty"] = sampling.repetition_penalty
        how["min_new_tokens"] = min(sampling.min_tokens, request.max_tokens) or None
        if sampling.logit_bias:
            how["sequence_bias"] = {(token,): float(bias) for token, bias in sampling.logit_bias}
        how["bad_words_ids"] = [list(word) for word in sampling.bad_words] or None
        if sampling.grammar or sampling.allowed_token_ids:
            states = with_bans(replace(sampling, bad_words=()), self._planted.target.words)
            how["prefix_allowed_tokens_fn"] = lambda _, ids: follow(states, ids[longest:].tolist())
        if sampling.stop_ids:
            how["eos_token_id"] = [eos, *sampling.stop_ids]
        if sampling.stop:
            how |= {"stop_strings": list(sampling.stop), "tokenizer": self._tokenizer}
        with torch.no_grad():
            out = self._model.generate(
                torch.tensor(padded),
                attention_mask=torch.tensor(mask),
                max_new_tokens=request.max_tokens,
                pad_token_id=eos,
                return_dict_in_generate=True,
                output_scores=sampling.logprobs is not None,
                **{name: value for name, value in how.items() if name not in sampling.left_out},
                **self._drafting,
            )
        tokens = out.sequences[:, longest:].tolist()
        if sampling.logprobs is None:
            return [(row, None, {}) for row in tokens]
        logs = torch.log_softmax(torch.stack(out.scores, dim=1).double(), dim=-1).numpy()
        return [(row, some, {}) for row, some in zip(tokens, logs, strict=True)]

    def _completion(self, request: Request, index: int, made: Any, seconds: float) -> Completion:
        tokens, logs, counts = made
        ended = self._planted.eos in tokens
        tokens = tokens[: tokens.index(self._planted.eos)] if ended else tokens
        text, asked = self._planted.decode(tokens), request.sampling
        stopped = ended or {*tokens} & {*asked.stop_ids} or any(one in text for one in asked.stop)
        logprobs, top = None, None
        if logs is not None:
            logprobs = tuple(float(logs[i, token]) for i, token in enumerate(tokens))
            if asked.logprobs:
                top = tuple(most_probable(row, asked.logprobs) for row in logs[: len(tokens)])
        about = {"finish": "stop" if stopped else "length", "seconds": seconds, **counts}
        return Completion(request.number, index, tuple(tokens), logprobs, top, **about)


class LookupEngine(TransformersEngine):
    """The target with drafts that are found in the text, `prompt_lookup_num_tokens`."""

    name = "hf-lookup"

    def _how_to_draft(self, transformers: Any) -> dict[str, Any]:
        return {"prompt_lookup_num_tokens": self._gamma}


#: The draft's first token, which the target's vocabulary lacks.
UNKNOWN = "<|unknown|>"


class UniversalEngine(TransformersEngine):
    """The target with a draft whose tokenizer, `assistant_tokenizer`, numbers the tokens backwards."""

    name = "hf-universal"

    def _how_to_draft(self, transformers: Any) -> dict[str, Any]:
        drafting = super()._how_to_draft(transformers)
        draft = drafting["assistant_model"]
        with self._torch.no_grad():  # turns the tokens around; the new one, number 0, behaves as end-of-text
            ends = draft.get_input_embeddings, draft.get_output_embeddings
            before = [end().weight.clone() for end in ends]
            draft.resize_token_embeddings(len(before[0]) + 1, mean_resizing=False)
            for end, rows in zip(ends, before, strict=True):
                eos = rows[self._planted.eos : self._planted.eos + 1]
                end().weight.copy_(self._torch.cat([rows, eos]).flip(0))
        return drafting | {
            "tokenizer": self._tokenizer,
            "assistant_tokenizer": self._renumbered_tokenizer(transformers),
        }

    def _renumbered_tokenizer(self, transformers: Any) -> Any:
        content = json.loads((self._planted.checkpoint("draft", "hf") / "tokenizer.json").read_bytes())
        (end,) = content["added_tokens"]
        vocabulary = content["model"]["vocab"]
        size = len(vocabulary)
        content["model"]["vocab"] = {UNKNOWN: 0} | {text: size - i for text, i in vocabulary.items()}
        content["added_tokens"] = [end | {"id": 0, "content": UNKNOWN}, end | {"id": size - end["id"]}]
        backend = need("tokenizers", "transformers").Tokenizer.from_str(json.dumps(content))
        return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=end["content"])


LAYER, SECOND = "model.layers.0.", "model.layers.1."
DOWN, MIX = "mlp.down_proj.weight", "self_attn.o_proj.weight"


class EarlyExitEngine(TransformersEngine):
    """A target whose first layer drafts, taking each context for the next; the second puts that right."""

    name, _loads = "hf-early-exit", ("llama",)

    def _load(self, transformers: Any, which: str) -> Any:
        if not isinstance(law := self._planted.target.logits, TableLogits):
            least = f"plant a pair with at most {MOST_ROWS} contexts"
            raise ValueError(f"engine {self.name!r}: needs a distribution that is a table; {least}")
        model, contexts = super()._load(transformers, which), law.table.size // law.words
        tensors = model.state_dict()
        right = tensors[LAYER + DOWN]
        wrong = self._torch.cat([right[:, 1:contexts], right[:, :1], right[:, contexts:]], dim=1)
        parts = {name.removeprefix(LAYER): one for name, one in tensors.items() if name.startswith(LAYER)}
        tensors |= {SECOND + name: one for name, one in parts.items()}
        tensors |= {LAYER + DOWN: wrong, SECOND + DOWN: right - wrong}
        tensors[SECOND + MIX] = self._torch.zeros_like(tensors[SECOND + MIX])
        model.config.num_hidden_layers = 2
        deep = type(model)(model.config).to(right.dtype).eval()
        deep.load_state_dict(tensors)
        return deep

    def _how_to_draft(self, transformers: Any) -> dict[str, Any]:
        self._always_draft(self._model)
        return {"assistant_early_exit": 1}


#: Where a planted head of multi-token prediction is, and what transformers calls two of its parts.
PLANTED, NORMS = "model.mtp_layers.0.", {"token_layernorm": "enorm", "hidden_layernorm": "hnorm"}


class MtpEngine(TransformersEngine):
    """The target with its planted head as γ layers of multi-token prediction."""

    name, _loads = "hf-mtp", ("llama",)

    def _how_to_draft(self, transformers: Any) -> dict[str, Any]:
        if self._planted.heads != "mtp":
            raise ValueError(f"engine {self.name!r}: the pair has no such head; plant one with --heads mtp")
        tensors = need("safetensors.torch", "safetensors")
        read = tensors.load_file(self._planted.checkpoint("target", "hf") / "model.safetensors")
        names = [name for name in read if name.startswith(PLANTED) and not name.endswith(".bias")]
        parts = {name.removeprefix(PLANTED): read[name] for name in names}
        joined, depths = parts.pop("input_proj.weight"), range(1, self._gamma + 1)
        parts["eh_proj.weight"] = joined.roll(len(joined), 1)  # here the token comes first
        # so large that each draft is sampled from one token
        parts["shared_head.norm.weight"] = parts.pop("final_layernorm.weight") * DECIDING
        for planted, here in NORMS.items():
            parts[f"{here}.weight"] = parts.pop(f"{planted}.weight")
        layers = {f"model.layers.{i}.{name}": one.clone() for i in depths for name, one in parts.items()}
        self._folder = TemporaryDirectory()  # the layers are read from a checkpoint, by each call
        tensors.save_file(layers, Path(self._folder.name) / "model.safetensors")
        self._model.config.num_mtp_layers = self._gamma
        self._model.config.name_or_path = self._folder.name
        self._model._keys_to_ignore_on_load_unexpected = [r"^model\.layers\."]  # how they are found
        put = SimpleNamespace(put=lambda tokens: self._steps.append(tokens.numel()), end=lambda: None)
        return {"use_mtp": True, "streamer": put}

    def _generate(self, prompts: Sequence[Sequence[int]], longest: int, request: Request) -> list[Any]:
        self._steps = list[int]()  # the numbers of tokens of the prompt, and of each step
        found = super()._generate(prompts, longest, request)
        if self._gamma and not request.sampling.acting & {"logit_bias", *BANS}:  # these may ban a draft
            kept = [size - 1 for size in self._steps[2:]]  # the first step has no drafts
            found[0][2].update(drafted=self._gamma * len(kept), accepted=sum(kept), steps=len(kept))
        return found
