"""mlx-lm: `stream_generate`, plain or with a draft model.

It samples from the target, and accepts drafted tokens that are equal to what it sampled."""

from typing import Any

import numpy as np

from specsim.engines._clients.running import InProcess, need
from specsim.engines._planted.law import most_probable
from specsim.engines._planted.requests import BANS, PENALTIES, RARE, Request


class MlxEngine(InProcess):
    """The target, with the draft as `draft_model` or plain."""

    name, _package, _logprobs = "mlx-lm", "mlx-lm", "raw"
    # stream_generate has no stop strings
    _lacks = frozenset({"stop", "stop_ids", "min_tokens", "defaults", *RARE, *BANS} - {"xtc_probability"})

    def _open(self) -> None:
        self._mx = need("mlx.core", "mlx-lm 'mlx[cpu]'")
        self._lm = need("mlx_lm", "mlx-lm 'mlx[cpu]'")
        self._sampling = need("mlx_lm.sample_utils", "mlx-lm")
        self._model, self._tokenizer = self._load("target")
        self._drafting: dict[str, Any] = {}
        if self._gamma:
            self._drafting = {"draft_model": self._load("draft")[0], "num_draft_tokens": self._gamma}

    def _load(self, which: str) -> Any:
        return self._lm.load(str(self._planted.checkpoint(which, "hf")))[:2]

    def _text(self, request: Request, index: int) -> dict[str, Any]:
        sampling, prompt = request.sampling, list(request.prompt)
        if request.seed is not None and index == 0:
            self._mx.random.seed(request.seed)
        sampler = self._sampling.make_sampler(
            temp=sampling.temperature,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            top_k=sampling.top_k or 0,
            xtc_probability=sampling.xtc_probability,
            xtc_threshold=sampling.xtc_threshold,
        )
        far = sampling.penalty_last_n or self._planted.context  # mlx-lm's default is 20
        processors = self._sampling.make_logits_processors(
            dict(sampling.logit_bias) or None,
            **{name: getattr(sampling, name) for name in PENALTIES},
            **{name.replace("penalty", "context_size"): far for name in PENALTIES},
        )
        how = {"sampler": sampler, "logits_processors": processors, **self._drafting}
        tokens, logprobs, top, accepted = [], [], [], 0
        for one in self._lm.stream_generate(
            self._model, self._tokenizer, prompt, max_tokens=request.max_tokens, **how
        ):
            token, accepted = int(one.token), accepted + bool(one.from_draft)
            tokens.append(token)
            if sampling.logprobs is not None:
                row = np.array(one.logprobs.astype(self._mx.float32), dtype=np.float64)
                logprobs.append(float(row[token]))
                top.append(most_probable(row, sampling.logprobs))
        return {
            "tokens": tuple(tokens),
            "logprobs": None if sampling.logprobs is None else tuple(logprobs),
            "top": tuple(top) if sampling.logprobs else None,
            "accepted": accepted if self._gamma else None,
        }
