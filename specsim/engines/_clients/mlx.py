"""mlx-lm: `stream_generate`, plain or with a draft model.

It samples from the target, and accepts drafted tokens that are equal to what it sampled."""

import time
from typing import Any

import numpy as np

from specsim.engines._clients.running import Answers, InProcess, need
from specsim.engines._clients.writing import REPETITION
from specsim.engines._planted.requests import Completion, Request


class MlxEngine(InProcess):
    """The target, with the draft as `draft_model` or plain."""

    name, _package, _logprobs = "mlx-lm", "mlx-lm", "raw"

    def _open(self) -> None:
        self._mx = need("mlx.core", "mlx-lm 'mlx[cpu]'")
        self._lm = need("mlx_lm", "mlx-lm 'mlx[cpu]'")
        self._sampling = need("mlx_lm.sample_utils", "mlx-lm")
        self._model, self._tokenizer = self._load("target")
        self._how: dict[str, Any] = {}
        if self._gamma:
            self._how = {"draft_model": self._load("draft")[0], "num_draft_tokens": self._gamma}

    def _load(self, which: str) -> Any:
        return self._lm.load(str(self._planted.checkpoint(which, "hf")))[:2]

    def close(self) -> None:
        super().close()
        self._how = {}

    def _answer(self, request: Request) -> Answers:
        sampling = request.sampling
        if sampling.stop:
            raise NotImplementedError("stop: stream_generate has no stop strings")
        if request.seed is not None:
            self._mx.random.seed(request.seed)
        how = {
            "sampler": self._sampling.make_sampler(
                temp=sampling.temperature,
                top_p=sampling.top_p,
                min_p=sampling.min_p,
                top_k=sampling.top_k or 0,
            )
        }
        if sampling.penalties:
            how["logits_processors"] = self._sampling.make_logits_processors(repetition_penalty=REPETITION)
        return [self._completion(request, index, how | self._how) for index in range(request.n)]

    def _completion(self, request: Request, index: int, how: dict[str, Any]) -> Completion:
        started, asked, prompt = time.perf_counter(), request.sampling.logprobs, list(request.prompt)
        tokens, logprobs, top, accepted = [], [], [], 0
        for one in self._lm.stream_generate(
            self._model, self._tokenizer, prompt, max_tokens=request.max_tokens, **how
        ):
            token, accepted = int(one.token), accepted + bool(one.from_draft)
            tokens.append(token)
            if asked is not None:
                row = np.array(one.logprobs.astype(self._mx.float32), dtype=np.float64)
                logprobs.append(float(row[token]))
                top.append({int(x): float(row[x]) for x in np.argsort(-row, kind="stable")[:asked]})
        return Completion(
            request.number,
            index,
            tuple(tokens),
            tuple(logprobs) if asked is not None else None,
            tuple(top) if asked else None,
            accepted=accepted if self._gamma else None,
            finish="length",
            seconds=time.perf_counter() - started,
        )
