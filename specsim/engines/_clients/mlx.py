"""mlx-lm: `stream_generate`, plain or with a draft model.

It samples from the target, and accepts drafted tokens that are equal to what it sampled."""

import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np

from specsim.core._checks import check_counts
from specsim.engines._clients.running import Answers, described, need, one_by_one
from specsim.engines._clients.writing import REPETITION
from specsim.engines._planted.folder import Planted
from specsim.engines._planted.requests import Completion, Failure, Request


class MlxEngine:
    """The target, with the draft as `draft_model` or plain. Raises ImportError without mlx-lm."""

    name = "mlx-lm"

    def __init__(self, planted: Planted, *, speculative: bool = True, gamma: int = 4):
        check_counts(gamma=gamma)
        self._mx = need("mlx.core", "mlx-lm 'mlx[cpu]'")
        self._lm = need("mlx_lm", "mlx-lm 'mlx[cpu]'")
        self._sampling = need("mlx_lm.sample_utils", "mlx-lm")
        self.version = version("mlx-lm")
        self._planted = planted
        self._gamma = gamma if speculative else 0
        self._model, self._tokenizer = self._lm.load(str(planted.checkpoint("target", "hf")))[:2]
        self._how: dict[str, Any] = {}
        if speculative:
            draft = self._lm.load(str(planted.checkpoint("draft", "hf")))[0]
            self._how = {"draft_model": draft, "num_draft_tokens": gamma}

    def describe(self) -> dict[str, Any]:
        return described(self.name, self.version, self._planted, self._gamma, "raw")

    def complete(self, requests: Sequence[Request]) -> Iterator[Completion | Failure]:
        return one_by_one(self._answer, requests)

    def counters(self) -> dict[str, int] | None:
        """None: mlx-lm reports nothing of a server."""
        return None

    def close(self) -> None:
        self._model, self._how = None, {}

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
        return [self._completion(request, index, how) for index in range(request.n)]

    def _completion(self, request: Request, index: int, how: dict[str, Any]) -> Completion:
        started, asked = time.perf_counter(), request.sampling.logprobs
        tokens, logprobs, top, accepted = [], [], [], 0
        for one in self._lm.stream_generate(
            self._model,
            self._tokenizer,
            list(request.prompt),
            max_tokens=request.max_tokens,
            **how,
            **self._how,
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
