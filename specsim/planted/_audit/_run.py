"""Audit a serving engine: make requests, keep the texts, judge them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specsim.core._checks import check_between, check_counts
from specsim.core._streams import RandomSource, root_of
from specsim.planted._audit._judge import EngineAudit, Run, judge, likeliest_order
from specsim.planted._audit._requests_plan import plan_requests
from specsim.planted._audit._store import TextStore
from specsim.planted._engines._opening import open_engine
from specsim.planted._engines._requests import Completion, Engine, Failure, Request, Sampling
from specsim.planted._folder import Planted
from specsim.planted._sampling import check_sampling, possible_orders

#: Temperature 1 and no truncation.
PLAIN = Sampling()
#: Requests that an engine is given at once; between two such groups the time is looked at.
GROUP = 64
#: Failures in a row after which an engine is not asked further.
HOPELESS = 2 * GROUP
#: Tokens from which the order of processing is inferred.
PLAIN_TOKENS = 5_000
#: The file of texts in the folder of a run.
TEXTS = "texts.jsonl"

#: What is told of the work: tokens so far, and tokens planned.
Progress = Callable[[int, int], None]


def audit_engine(
    engine: str | Engine,
    planted: Planted,
    *,
    tokens: int = 100_000,
    sampling: Sampling = PLAIN,
    texts: int = 1,
    speculative: bool = True,
    order: str | None = None,
    tolerance: float | None = None,
    seconds: float | None = None,
    out: str | Path | None = None,
    rng: RandomSource = None,
    progress: Progress | None = None,
    **options: Any,
) -> EngineAudit:
    """Audit an engine that serves a planted checkpoint.

    Every emitted token is tested against the law of the planted target after the tokens before it, by place
    in the text, and for independence of the other texts; every returned log-probability is compared with the
    law. A right engine is called biased with probability at most 1e-6.

    Parameters
    ----------
    engine : str or Engine
        "specsim", "hf", "hf-lookup", "llama.cpp", "mlx-lm", the address of an OpenAI-compatible server such
        as "http://127.0.0.1:8000/v1", or an object with the methods of `Engine`.
    planted : Planted
        What the engine serves.
    tokens : int
        Emitted tokens to test, at least 1.
    sampling : Sampling
        Temperature, truncation, a stop string of one token, and the log-probabilities that are asked for.
    texts : int
        Texts of each request, its `n`, at least 1.
    speculative : bool
        Decode with the draft, where the engine runs in this process. A server is taken as it runs.
    order : str, optional
        The order of temperature and truncation; by default that under which the texts are likeliest.
    tolerance : float, optional
        Largest error of log p of the engine's arithmetic, see `check`. Every law within it is accepted. By
        default that of float32: 1e-5, or 1e-8 for each token of the vocabulary if that is more.
    seconds : float, optional
        Time limit of serving.
    out : path, optional
        Folder in which the texts are kept as they arrive, in `texts.jsonl`. With texts of the same run in it,
        the run goes on from there.
    rng : int, Generator, SeedSequence or None
        Draws the prompts and the seeds of the requests.
    progress : callable, optional
        Called with the numbers of tokens received and planned.
    **options
        Of the engine; for a server `model` and `connections`.

    Returns
    -------
    EngineAudit
        Verdict, tests, findings, efficiency and the nearest known mistake.

    Raises
    ------
    ValueError, TypeError
        For values out of range, an unknown engine, or a folder with texts of another run.
    ImportError
        If the engine's package is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from specsim.planted import audit_engine, plant
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pair = plant(f"{folder}/pair", vocab_size=4, context=128, rng=1)
    ...     print(audit_engine("specsim", pair, tokens=20_000, rng=1).verdict)
    consistent
    """
    check_counts(tokens=tokens, texts=texts)
    check_sampling(sampling)
    if len(sampling.stop) > 1 or any(len(planted.encode(stop)) != 1 for stop in sampling.stop):
        raise ValueError(
            f"stop: {sampling.stop} is not the text of one token, such as {planted.decode([0])!r}"
        )
    if tolerance is not None:
        check_between("tolerance", tolerance, 0.0, 1.0, "difference of log p")
    if seconds is not None and not 0 < seconds < float("inf"):
        raise ValueError(f"seconds: {seconds} is not a positive number of seconds")
    if isinstance(engine, str):
        opened = open_engine(engine, planted, speculative=speculative, **options)
    elif options:
        raise TypeError(f"{next(iter(options))}: an engine that is open takes no options")
    else:
        opened = engine
    try:
        root = root_of(rng)
        requests = plan_requests(planted, root, sampling, tokens, texts)
        store = open_store(out, opened, planted, root, {"tokens": tokens, "texts": texts}, sampling)
        if order is None and isinstance(engine, str) and "://" not in engine:
            order = plain_order(engine, planted, sampling, root, options)
        run = serve(opened, planted, requests, store, root, seconds, progress)
    finally:
        if opened is not engine:
            opened.close()
    return judge(run, order=order, tolerance=tolerance)


def plain_order(
    engine: str, planted: Planted, sampling: Sampling, root: int, options: Mapping[str, Any]
) -> str | None:
    """The order in which an engine in this process applies `sampling` without speculation; None where all
    orders agree."""
    if len(possible_orders(sampling)) == 1:
        return None
    plain = open_engine(engine, planted, speculative=False, **plain_options(options))
    try:
        requests = plan_requests(planted, root, sampling, PLAIN_TOKENS)
        run = serve(plain, planted, requests, TextStore(None, {}), root, None, None)
    finally:
        plain.close()
    return likeliest_order(planted, run.texts, requests)


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an engine that mean something without speculation."""
    return {name: value for name, value in options.items() if name not in ("rule", "gamma", "mistake")}


def open_store(
    out: str | Path | None,
    engine: Engine,
    planted: Planted,
    root: int,
    size: Mapping[str, int],
    sampling: Sampling,
) -> TextStore:
    """The texts of a run, in the folder `out` or in memory."""
    if out is None:
        return TextStore(None, {})
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    header = {
        "engine": engine.name,
        "version": engine.version,
        "described": engine.describe(),
        "planted": planted.digest,
        "seed": root,
        "sampling": asdict(sampling) | {"stop": list(sampling.stop)},
        **size,
    }
    return TextStore(folder / TEXTS, header)


def serve(
    engine: Engine,
    planted: Planted,
    requests: Sequence[Request],
    store: TextStore,
    root: int,
    seconds: float | None,
    progress: Progress | None,
) -> Run:
    """Make the requests that have no text yet, and keep what comes back. Ctrl-C ends the run early."""
    started, before = time.perf_counter(), engine.counters()
    planned = sum(one.max_tokens * one.n for one in requests)
    done = sum(len(one.tokens) for one in store.completions.values())
    interrupted, failed = False, 0
    try:
        for group in _groups(requests, store):
            for answer in store.add(_checked(engine.complete(group), group)):
                failed = failed + 1 if isinstance(answer, Failure) else 0
                done += len(answer.tokens) if isinstance(answer, Completion) else 0
                if progress is not None:
                    progress(done, planned)
            late = seconds is not None and time.perf_counter() - started > seconds
            if late or failed >= HOPELESS:
                break
    except KeyboardInterrupt:
        interrupted = True
    after = engine.counters()
    described = engine.describe()
    return Run(
        engine=engine.name,
        version=engine.version,
        described=described,
        planted=planted,
        requests=requests,
        texts=store.texts(),
        failures=[store.failures[number] for number in sorted(store.failures)],
        counters=_difference(before, after),
        gamma=described.get("gamma"),
        root=root,
        interrupted=interrupted,
        seconds=time.perf_counter() - started,
    )


def _groups(requests: Sequence[Request], store: TextStore) -> Iterator[list[Request]]:
    """The requests without all of their texts, in groups."""
    kept: dict[int, int] = {}
    for number, _ in store.completions:
        kept[number] = kept.get(number, 0) + 1
    missing = [one for one in requests if kept.get(one.number, 0) < one.n]
    for start in range(0, len(missing), GROUP):
        yield missing[start : start + GROUP]


def _checked(
    answers: Iterator[Completion | Failure], group: Sequence[Request]
) -> Iterator[Completion | Failure]:
    """The answers to `group`; others are not taken."""
    asked = {request.number: request for request in group}
    for answer in answers:
        request = asked.get(answer.number)
        if request is None or (isinstance(answer, Completion) and not 0 <= answer.index < request.n):
            continue
        yield answer


def _difference(before: Mapping[str, int] | None, after: Mapping[str, int] | None) -> dict[str, int] | None:
    if before is None or after is None:
        return None
    return {name: after[name] - before[name] for name in after if name in before}
