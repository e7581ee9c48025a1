"""mistral.rs as an engine without drafts: its wheel drafts with heads alone, and on no CPU.

A text is the answer to a chat without a template, whose one message is the prompt."""

import os
from collections.abc import Iterator
from typing import Any

from specsim.engines._clients.running import InProcess, need
from specsim.engines._clients.writing import grammar_of
from specsim.engines._planted.requests import BANS, PENALTIES, RARE, Request, Sampling
from specsim.models._processed import SAMPLING

#: Returned log-probabilities are those before these cuts and grammars, so with them none is asked for.
CUTS = {*SAMPLING, *BANS} - {"temperature"}


class MistralEngine(InProcess):
    """The target alone. It has one seed for all requests, so those of requests are not sent."""

    name, _package, _logprobs = "mistral.rs", "mistralrs", "processed"
    _loads = ("llama", "sliding-window", "moe", "short-conv")
    _without_drafts = _loads
    _lacks = frozenset({"stop_ids", "min_tokens", "penalty_last_n", "defaults", *RARE})

    def _open(self) -> None:
        os.environ.setdefault("RAYON_NUM_THREADS", "1")  # threads of so small a model wait for each other
        self._rs = need("mistralrs", "mistralrs")
        folder = str(self._planted.checkpoint("target", "hf"))
        self._model = self._rs.Runner(self._rs.Which.Plain(folder, dtype=self._rs.ModelDType.F32))

    def _texts(self, request: Request) -> Iterator[dict[str, Any]]:
        sampling = request.sampling
        logged = sampling.logprobs is not None and not sampling.acting & CUTS
        asked = self._rs.ChatCompletionRequest(
            messages=self._planted.decode(request.prompt),
            model="default",
            max_tokens=request.max_tokens,
            n_choices=request.n,
            stop_seqs=list(sampling.stop) or None,
            logit_bias=dict(sampling.logit_bias) or None,
            logprobs=logged,
            top_logprobs=sampling.logprobs or None,
            **{name: getattr(sampling, name) for name in (*SAMPLING, *PENALTIES)},
            **(self._grammar(sampling) if sampling.acting & {*BANS} else {}),
        )
        choices = self._model.send_chat_completion_request(asked).choices
        for choice in sorted(choices, key=lambda one: one.index):
            tokens = self._planted.encode(choice.message.content or "")
            listed = choice.logprobs.content[: len(tokens)] if logged else []  # a stop string has some too
            yield {
                "tokens": tuple(tokens),
                "logprobs": tuple(one.logprob for one in listed) or None,
                "top": tuple({x.token: x.logprob for x in one.top_logprobs} for one in listed) or None,
                "finish": choice.finish_reason,
            }

    def _grammar(self, sampling: Sampling) -> dict[str, str]:
        return {"grammar": grammar_of(self._planted, sampling, lark=True), "grammar_type": "lark"}
