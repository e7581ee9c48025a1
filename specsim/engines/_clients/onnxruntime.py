"""ONNX Runtime GenAI: plain, with a draft model, or with drafts that are found in the text.

Its model builder converts the checkpoints when the engine is opened."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from specsim.core._files import write_text
from specsim.engines._clients.running import InProcess, convert, need
from specsim.engines._planted.requests import Request

PACKAGES = "onnxruntime-genai onnx onnx-ir torch transformers"
CONFIGURATION = "genai_config.json"
#: A planted model is so small that threads wait for each other.
ONE_THREAD = {"intra_op_num_threads": 1, "inter_op_num_threads": 1}
#: Drafts that are found in the text follow its last two tokens.
NGRAM = 3


class OnnxRuntimeEngine(InProcess):
    """The target, with the draft or plain."""

    name, _package = "onnxruntime", "onnxruntime-genai"
    _lacks = InProcess._lacks | {"stop", "min_p"}

    def _open(self) -> None:
        self._genai = need("onnxruntime_genai", PACKAGES)
        with TemporaryDirectory() as folder:
            self._build("target", Path(folder))
            self._drafting = self._how_to_draft(Path(folder)) if self._gamma else {}
            self._model = self._genai.Model(folder)

    def _build(self, which: str, folder: Path) -> None:
        """Convert a checkpoint without changing its weights."""
        source = str(self._planted.checkpoint(which, "hf"))
        options = ("-m", source, "-o", str(folder), "-p", "fp32", "-e", "cpu")
        convert("onnxruntime_genai.models.builder", options, PACKAGES)
        content = json.loads((folder / CONFIGURATION).read_bytes())
        content["model"]["decoder"]["session_options"] |= ONE_THREAD
        write_text(folder / CONFIGURATION, json.dumps(content))

    def _how_to_draft(self, folder: Path) -> dict[str, Any]:
        """The speculative options; the target in the folder is given its draft."""
        self._build("draft", folder / "draft")
        file = folder / CONFIGURATION
        content, draft = (json.loads(one.read_bytes()) for one in (file, folder / "draft" / CONFIGURATION))
        content["model"]["draft"] = draft["model"]["decoder"] | {"filename": "draft/model.onnx"}
        write_text(file, json.dumps(content))
        return {"max_draft_tokens": self._gamma}

    def _text(self, request: Request, index: int) -> dict[str, Any]:
        sampling = request.sampling
        how: dict[str, Any] = {"do_sample": False}
        if sampling.temperature > 0:
            how = {"do_sample": True, "temperature": sampling.temperature}
            how |= {"top_k": sampling.top_k or 0, "top_p": sampling.top_p}
        if request.seed is not None:
            how["random_seed"] = request.seed + index
        params = self._genai.GeneratorParams(self._model)
        params.set_search_options(**how, max_length=len(request.prompt) + request.max_tokens)
        if self._drafting:
            params.set_speculative_options(**self._drafting)
        generator = self._genai.Generator(self._model, params)
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
