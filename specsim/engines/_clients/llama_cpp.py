"""llama.cpp in this process, from the wheel xllamacpp: its own server without HTTP.

It samples from the target, and accepts drafted tokens that are equal to what it sampled."""

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

from specsim.core._checks import check_counts
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
            drafts.draft.n_max, kinds = self._gamma, xllamacpp.common_speculative_type
            kind = f"COMMON_SPECULATIVE_TYPE_DRAFT_{(planted.heads or 'simple').upper()}"
            drafts.types, params.load_mtp = [getattr(kinds, kind)], planted.heads == "mtp"
            if not params.load_mtp:
                drafts.draft.mparams.path = str(planted.checkpoint(planted.models[-1], "gguf"))
        self._model = xllamacpp.Server(params)

    def complete(self, requests: Sequence[Request]) -> Iterator[Completion | Failure]:
        with ThreadPoolExecutor(self._parallel) as executor:
            answers = side_by_side(self._tried, requests, executor, 2 * self._parallel)
            yield from chain.from_iterable(answers)

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
