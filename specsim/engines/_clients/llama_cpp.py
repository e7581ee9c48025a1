"""llama.cpp in this process, from the wheel xllamacpp: its own server without HTTP.

It samples from the target, and accepts drafted tokens that are equal to what it sampled."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any

from specsim.core._types import check_counts
from specsim.engines._clients.answers import read_completions, read_counters
from specsim.engines._clients.running import Answers, InProcess, need
from specsim.engines._clients.writing import TOKEN_IDS, fields_of
from specsim.engines._planted.checkpoints import GGUF
from specsim.engines._planted.folder import Planted
from specsim.engines._planted.requests import Completion, Failure, Request
from specsim.simulation._counting import side_by_side

#: The largest seed: 32 bits, less the one that means a random seed.
MOST_SEED = 2**32 - 2


class LlamaCppEngine(InProcess):
    """A target, with a draft or plain, in `parallel` slots."""

    name, _package, _logprobs = "llama.cpp", "xllamacpp", "raw"
    _loads = tuple(GGUF)
    _lacks = frozenset({"stop_ids", "min_tokens"})

    def __init__(self, planted: Planted, *, speculative: bool = True, gamma: int = 4, parallel: int = 4):
        check_counts(parallel=parallel)
        self._parallel, self._settings = parallel, {"parallel": parallel}
        super().__init__(planted, speculative=speculative, gamma=gamma)

    def _open(self) -> None:
        xllamacpp, planted = need("xllamacpp", "xllamacpp"), self._planted
        params = xllamacpp.CommonParams()
        params.model.path = str(planted.checkpoint("target", "gguf"))
        params.n_ctx, params.n_parallel = planted.context * self._parallel, self._parallel
        params.warmup, params.verbosity, params.endpoint_metrics = False, -1, True
        drafts = params.speculative
        for threads in (params.cpuparams, params.cpuparams_batch, drafts.draft.cpuparams):
            threads.n_threads = 1  # a planted model is so small that threads wait for each other
        if self._gamma:
            kind = f"COMMON_SPECULATIVE_TYPE_{self._draft(params)}"
            drafts.types = [getattr(xllamacpp.common_speculative_type, kind)]
        self._model = xllamacpp.Server(params)

    def _draft(self, params: Any) -> str:
        """Set the parameters of drafts; the end of the name of their kind."""
        planted, draft = self._planted, params.speculative.draft
        draft.n_max, params.load_mtp = self._gamma, planted.heads == "mtp"
        if not params.load_mtp:
            draft.mparams.path = str(planted.checkpoint(planted.models[-1], "gguf"))
        return f"DRAFT_{(planted.heads or 'simple').upper()}"

    def complete(self, requests: Sequence[Request]) -> Iterator[Completion | Failure]:
        with ThreadPoolExecutor(self._parallel) as executor:
            yield from chain.from_iterable(side_by_side(self._tried, requests, executor, 2 * self._parallel))

    def counters(self) -> dict[str, int] | None:
        return read_counters(self._model.handle_metrics()) if self._gamma else None

    def _answer(self, request: Request) -> Answers:
        self._check(request)
        if request.seed is not None and request.seed > MOST_SEED:
            raise NotImplementedError(f"seed: {request.seed} is more than {MOST_SEED}, llama.cpp's largest")
        started = time.perf_counter()
        fields = fields_of(request, list(request.prompt), None, TOKEN_IDS, self.name, self._planted)
        answer = self._model.handle_completions(fields)
        if isinstance(answer, dict) and "error" in answer:
            raise NotImplementedError(str(answer["error"])[:300])
        return [*read_completions(answer, request, self._planted, time.perf_counter() - started)]


class NgramEngine(LlamaCppEngine):
    """A target with drafts from the text: what followed its last two tokens before."""

    name = "llama.cpp-ngram"

    def _draft(self, params: Any) -> str:
        found = params.speculative.ngram_simple
        found.size_n, found.size_m, found.min_hits = 2, self._gamma, 1
        return "NGRAM_SIMPLE"
