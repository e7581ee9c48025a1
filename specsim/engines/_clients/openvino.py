"""OpenVINO GenAI: `LLMPipeline`, plain or with a draft model, one text at a time.

optimum-intel converts the checkpoints when the engine is opened."""

import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from specsim.engines._clients.running import InProcess, convert, need
from specsim.engines._planted.law import MODELS
from specsim.engines._planted.requests import Request

PACKAGES = "openvino-genai optimum-intel"
#: A planted model is so small that threads wait for each other.
ONE_THREAD = {"INFERENCE_NUM_THREADS": 1}
#: Seeds that tell generators apart: those of 32 bits.
SEEDS = 2**32


class OpenVinoEngine(InProcess):
    """The target, with the draft as `draft_model` or plain."""

    name, _package = "openvino", "openvino-genai"

    def _open(self) -> None:
        self._genai = need("openvino_genai", PACKAGES)
        self._tensor = need("openvino", PACKAGES).Tensor
        with TemporaryDirectory() as folder:
            target, *drafts = (
                self._converted(which, Path(folder)) for which in MODELS[: 1 + bool(self._gamma)]
            )
            # without it a pipeline caches prefixes, and with a draft most texts end in an error
            how: dict[str, Any] = {"scheduler_config": self._genai.SchedulerConfig(), **ONE_THREAD}
            if drafts:
                how["draft_model"] = self._genai.draft_model(drafts[0], "CPU", **ONE_THREAD)
            self._model = self._genai.LLMPipeline(target, "CPU", **how)

    def _converted(self, which: str, folder: Path) -> Path:
        """A checkpoint in OpenVINO's format, with unchanged weights."""
        source, made = str(self._planted.checkpoint(which, "hf")), folder / which
        words = ["export", "openvino", "-m", source, "--task", "text-generation-with-past"]
        convert("optimum.commands.optimum_cli", [*words, "--weight-format", "fp32", str(made)], PACKAGES)
        return made

    def _text(self, request: Request, index: int) -> dict[str, Any]:
        """A pipeline that drafts makes one text of a request: for several their seeds count up."""
        sampling, config = request.sampling, self._genai.GenerationConfig()
        config.max_new_tokens, config.stop_strings = request.max_tokens, set(sampling.stop)
        config.rng_seed = random.getrandbits(32) if request.seed is None else (request.seed + index) % SEEDS
        if self._gamma:
            config.num_assistant_tokens = self._gamma
        if sampling.temperature > 0:
            config.do_sample, config.temperature = True, sampling.temperature
            config.top_p, config.min_p = sampling.top_p, sampling.min_p
            if sampling.top_k is not None:
                config.top_k = sampling.top_k
        found = self._model.generate(self._tensor(np.array([request.prompt], dtype=np.int64)), config)
        stopped = found.finish_reasons[0] == self._genai.GenerationFinishReason.STOP
        drafts = found.extended_perf_metrics if self._gamma else None
        return {
            "tokens": tuple(found.tokens[0]),
            "drafted": drafts and drafts.get_num_draft_tokens(),
            "accepted": drafts and drafts.get_num_accepted_tokens(),
            "finish": "stop" if stopped else "length",
        }
