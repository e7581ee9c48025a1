"""OpenVINO GenAI: `LLMPipeline`, plain or with a draft model, one text at a time.

optimum-intel converts the checkpoints when the engine is opened."""

import random
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from specsim.engines._clients.running import InProcess, convert, need
from specsim.engines._clients.writing import grammar_of
from specsim.engines._planted.law import MODELS
from specsim.engines._planted.requests import BANS, PENALTIES, RARE, Request
from specsim.models._processed import SAMPLING

PACKAGES = "openvino-genai optimum-intel"
#: A planted model is so small that threads wait for each other.
ONE_THREAD = {"INFERENCE_NUM_THREADS": 1}
#: Seeds that tell generators apart: those of 32 bits.
SEEDS = 2**32


class OpenVinoEngine(InProcess):
    """The target, with the draft as `draft_model` or plain."""

    name, _package = "openvino", "openvino-genai"
    _lacks = frozenset({"penalty_last_n", "logit_bias", "defaults", *RARE})

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

    def _texts(self, request: Request) -> Iterator[dict[str, Any]]:
        """A pipeline that drafts makes one text of a request: for several their seeds count up."""
        config, prompt = self._configured(request), self._tensor(np.array([request.prompt], dtype=np.int64))
        for index in range(request.n // config.num_return_sequences):
            seed = request.seed
            config.rng_seed = random.getrandbits(32) if seed is None else (seed + index) % SEEDS
            found = self._model.generate(prompt, config)
            drafts = found.extended_perf_metrics if self._gamma else None
            for tokens, reason in zip(found.tokens, found.finish_reasons, strict=True):
                yield {
                    "tokens": tuple(tokens),
                    "drafted": drafts and drafts.get_num_draft_tokens(),
                    "accepted": drafts and drafts.get_num_accepted_tokens(),
                    "finish": "stop" if reason == self._genai.GenerationFinishReason.STOP else "length",
                }

    def _configured(self, request: Request) -> Any:
        sampling = request.sampling
        names = (*PENALTIES, *(SAMPLING if sampling.temperature > 0 else ()))
        how: dict[str, Any] = {name: getattr(sampling, name) for name in names} | {
            "do_sample": sampling.temperature > 0,
            "max_new_tokens": request.max_tokens,
            "min_new_tokens": min(sampling.min_tokens, request.max_tokens),
            "stop_strings": set(sampling.stop),
            "stop_token_ids": {*sampling.stop_ids, self._planted.eos},
            "num_assistant_tokens": self._gamma or None,
            "num_return_sequences": 1 if self._gamma else request.n,
        }
        if sampling.acting & {*BANS}:
            grammar = grammar_of(self._planted, sampling)
            how["structured_output_config"] = self._genai.StructuredOutputConfig(grammar=grammar)
        given = {name: value for name, value in how.items() if value is not None}
        return self._genai.GenerationConfig(**given)
