"""ONNX Runtime GenAI: plain, with a draft model, or with drafts that are found in the text.

Its model builder converts the checkpoints when the engine is opened."""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from specsim.engines._clients.running import InProcess, convert, need
from specsim.engines._clients.writing import grammar_of
from specsim.engines._planted.requests import BANS, Request

PACKAGES = "onnxruntime-genai onnx onnx-ir torch transformers"
#: A planted model is so small that threads wait for each other.
ONE_THREAD = {"intra_op_num_threads": 1, "inter_op_num_threads": 1}
#: Drafts that are found in the text follow its last two tokens.
NGRAM = 3


class OnnxRuntimeEngine(InProcess):
    """The target, with the draft or plain."""

    name, _package = "onnxruntime", "onnxruntime-genai"
    _lacks = InProcess._lacks - {"repetition_penalty", "stop_ids", "min_tokens", *BANS} | {"stop", "min_p"}

    def _open(self) -> None:
        self._genai = need("onnxruntime_genai", PACKAGES)
        self._folder = TemporaryDirectory()  # its tokenizer is read with each grammar
        self._configured = {"decoder": self._build("target", folder := Path(self._folder.name))}
        self._drafting = self._how_to_draft(folder) if self._gamma else {}
        self._model = cache(self._ended_by)

    def _ended_by(self, *stops: int) -> Any:
        """The model with further ids that end its texts, which no request can have."""
        config = self._genai.Config(self._folder.name)
        ends = {"eos_token_id": [self._planted.eos, *stops]}
        config.overlay(json.dumps({"model": self._configured | ends}))
        return self._genai.Model(config)

    def _build(self, which: str, folder: Path) -> dict[str, Any]:
        """Convert a checkpoint without changing its weights. Returns its decoder's configuration."""
        source = str(self._planted.checkpoint(which, "hf"))
        options = ("-m", source, "-o", str(folder), "-p", "fp32", "-e", "cpu")
        convert("onnxruntime_genai.models.builder", options, PACKAGES)
        decoder = json.loads((folder / "genai_config.json").read_bytes())["model"]["decoder"]
        return decoder | {"session_options": ONE_THREAD}

    def _how_to_draft(self, folder: Path) -> dict[str, Any]:
        """The speculative options; the target's configuration is given its draft."""
        self._configured["draft"] = self._build("draft", folder / "draft") | {"filename": "draft/model.onnx"}
        return {"max_draft_tokens": self._gamma}

    def _text(self, request: Request, index: int) -> dict[str, Any]:
        sampling = request.sampling
        how: dict[str, Any] = {"do_sample": False}
        if sampling.temperature > 0:
            how = {"do_sample": True, "temperature": sampling.temperature}
            how |= {"top_k": sampling.top_k or 0, "top_p": sampling.top_p}
        if request.seed is not None:
            how["random_seed"] = request.seed + index
        how |= {"repetition_penalty": sampling.repetition_penalty or 1.0}
        least, most = (len(request.prompt) + n for n in (sampling.min_tokens, request.max_tokens))
        params = self._genai.GeneratorParams(model := self._model(*sampling.stop_ids))
        params.set_search_options(**how, min_length=min(least, most), max_length=most)
        if sampling.acting & {*BANS}:
            params.set_guidance("lark_grammar", grammar_of(self._planted, sampling, lark=True))
        if self._drafting:
            params.set_speculative_options(**self._drafting)
        generator = self._genai.Generator(model, params)
        generator.append_tokens(np.array(request.prompt, dtype=np.int32))
        while not generator.is_done():
            generator.generate_next_token()
        drafts = generator.get_speculative_stats() if self._drafting else {}
        return {
            "tokens": tuple(int(token) for token in generator.get_sequence(0)[len(request.prompt) :]),
            "drafted": drafts.get("draft_tokens_proposed"),
            "accepted": drafts.get("draft_tokens_accepted"),
        }


class NgramEngine(OnnxRuntimeEngine):
    """The target with drafts that are found in the text, `ngram_size`."""

    name = "onnxruntime-ngram"

    def _how_to_draft(self, folder: Path) -> dict[str, Any]:
        return {"max_draft_tokens": self._gamma, "ngram_size": NGRAM}
