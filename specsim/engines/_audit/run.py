"""Audit a serving engine: make requests, keep the texts, judge them."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specsim.core._files import make_folder
from specsim.core._json import rebuilding
from specsim.core._progress import Progress, ShowProgress, shows_progress, silent, told
from specsim.core._streams import RandomSource, root_of
from specsim.core._types import check_arguments, check_between, check_counts, check_seconds, count_of
from specsim.engines._audit.judge import Run, judge, likely_orders
from specsim.engines._audit.results import EngineAudit
from specsim.engines._audit.store import LONG, Asking, TextStore, plan_requests, read_store
from specsim.engines._clients.opening import open_engine
from specsim.engines._planted.folder import Planted
from specsim.engines._planted.processing import possible_orders
from specsim.engines._planted.requests import Completion, Engine, Request, Sampling

#: Temperature 1 and no truncation.
PLAIN = Sampling()
#: Tokens from which the order of processing is inferred.
PLAIN_TOKENS = 5_000
#: Texts that an interrupted audit waits for, at most.
MOST_AT_ONCE = 4096
#: The file of texts in the folder of a run.
TEXTS = "texts.jsonl"
#: How requests are made, as `plan_requests` has it, and the words for what is not usual.
FORM = {"request_seeds": "unseeded", "unequal_prompts": "unequal"}
FORM |= {"shared_prompts": "shared", "mixed_requests": "mixed"}


@shows_progress("audit", " tokens")
def audit_engine(
    engine: str | Engine,
    planted: Planted,
    *,
    tokens: int | str = 100_000,
    sampling: Sampling = PLAIN,
    texts: int = 1,
    request_seeds: bool = True,
    unequal_prompts: bool = False,
    shared_prompts: bool = False,
    mixed_requests: bool = False,
    speculative: bool = True,
    order: str | None = None,
    tolerance: float | None = None,
    seconds: float | None = None,
    out: str | Path | None = None,
    rng: RandomSource = None,
    progress: ShowProgress = None,
    **options: Any,
) -> EngineAudit:
    """Audit an engine that serves a planted checkpoint.

    The audit tests every emitted token against the planted target's distribution after the tokens before it,
    by place in the text, and for independence of the other texts. It compares every returned log-probability
    with that distribution. The probability of a false alarm is at most 1e-6.

    Parameters
    ----------
    engine : str or Engine
        "specsim", "hf", "hf-lookup", "hf-universal", "hf-early-exit", "hf-mtp", "llama.cpp",
        "llama.cpp-ngram", "mlx-lm", "onnxruntime", "onnxruntime-ngram", "openvino", the address of an
        OpenAI-compatible server such as "http://127.0.0.1:8000/v1", or an object with the methods of
        `Engine`.
    planted : Planted
        The checkpoints that the engine serves.
    tokens : int or str
        Emitted tokens to test, at least 1.
    sampling : Sampling
        Temperature, truncation, penalties, bias, a stop string or id of one token, and the log-probabilities
        to ask for.
    texts : int
        Number of texts per request, its `n`, at least 1.
    request_seeds : bool
        Give each request a seed of its own.
    unequal_prompts : bool
        Make every second prompt longer by 256 tokens, or as many as the context allows: texts that are
        decoded together begin at different places.
    shared_prompts : bool
        Let eight prompts at a time begin with the same tokens, which engines keep, and end with their own.
    mixed_requests : bool
        Make as many requests again that ask for something else, to be decoded beside those that are tested.
    speculative : bool
        Decode with the draft. Ignored for a server, which is already configured.
    order : str, optional
        The order of temperature and truncation; by default that under which the texts are likeliest, of those
        that are possible without speculation where the engine runs in this process.
    tolerance : float, optional
        Maximum error of log p in the engine's arithmetic, see `check`. By default that of float32: 1e-5, or
        1e-8 for each token of the vocabulary if that is more.
    seconds : float, optional
        Time limit of serving.
    out : path, optional
        Folder in which the texts are kept as they arrive, in `texts.jsonl`. With texts of the same run in it,
        the run continues from there.
    rng : int, Generator, SeedSequence or None
        Source of the prompts and of the requests' seeds.
    progress : bool or callable, optional
        A bar by default, as in `specsim.simulate`. A function is called with the numbers of tokens
        received and planned.
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
    >>> from specsim import audit_engine, plant
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pair = plant(f"{folder}/pair", vocab_size=4, context=128, rng=1)
    ...     print(audit_engine("specsim", pair, tokens=20_000, rng=1).verdict)
    consistent
    """
    tokens = count_of("tokens", tokens)
    check_counts(texts=texts)
    if len(sampling.stop) + len(sampling.stop_ids) > 1:
        raise ValueError(f"stop, stop_ids: {sampling.stop}, {sampling.stop_ids}; give one")
    if sampling.stop and not {*sampling.stop} <= {planted.decode([x]) for x in range(planted.target.words)}:
        raise ValueError(f"stop: {sampling.stop} is not the text of a token, such as {planted.decode([0])!r}")
    _check_tolerance(tolerance)
    if seconds is not None:
        check_seconds("seconds", seconds)
    with opening(engine, planted, options, speculative) as opened:
        root = root_of(rng)
        form = dict(zip(FORM, (request_seeds, unequal_prompts, shared_prompts, mixed_requests), strict=True))
        requests = plan_requests(planted, root, sampling, tokens, texts, **form)
        more = {"planted": planted.digest, "tokens": tokens, "texts": texts, **form}
        began = time.perf_counter()
        store = open_store(out, TEXTS, opened, root, sampling, more)
        if seconds is not None:  # a server that does not say who it is takes them too
            seconds -= time.perf_counter() - began
        orders = [] if order is None else [order]
        if order is None and isinstance(engine, str) and "://" not in engine:
            orders = possible_orders(sampling)
            if len(orders) > 1:  # which one an engine in this process applies, its plain texts show
                orders = likely_orders(tried(engine, planted, sampling, root, options), tolerance)
        run = serve(opened, planted, requests, store, root, seconds, told(progress))
    return judge(run, orders=orders, tolerance=tolerance)


@contextmanager
def opening(
    engine: str | Engine, planted: Planted, options: Mapping[str, Any], speculative: bool = True
) -> Iterator[Engine]:
    """The engine of that name, closed at the end, or an open one, which takes no options (TypeError)."""
    if isinstance(engine, str):
        with closing(open_engine(engine, planted, speculative=speculative, **options)) as opened:
            yield opened
    elif options:
        raise TypeError(f"{next(iter(options))}: an open engine takes no options; pass its name")
    else:
        yield engine


def _check_tolerance(tolerance: float | None) -> None:
    if tolerance is not None:
        check_between("tolerance", tolerance, 0.0, 1.0, "difference of log p")


def judge_texts(
    path: str | Path, planted: Planted, *, order: str | None = None, tolerance: float | None = None
) -> EngineAudit:
    """Judge the texts that an audit kept, without the engine.

    Counters that a server keeps for all requests together are not in the file.

    Parameters
    ----------
    path : path
        `texts.jsonl` of an audit, or the file of a setting of `audit_matrix`.
    planted : Planted
        The checkpoints that the engine served.
    order, tolerance
        As in `audit_engine`.

    Returns
    -------
    EngineAudit
        As of `audit_engine`, from what is in the file; interrupted if texts are missing.

    Raises
    ------
    ValueError
        For a file that holds no such texts, or those of another checkpoint.

    Examples
    --------
    >>> import tempfile
    >>> from specsim import audit_engine, plant
    >>> from specsim.engines import judge_texts
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pair = plant(f"{folder}/pair", vocab_size=4, context=128, rng=1)
    ...     first = audit_engine("specsim", pair, tokens=2_000, out=f"{folder}/run", rng=1)
    ...     judge_texts(f"{folder}/run/texts.jsonl", pair).tests == first.tests
    True
    """
    _check_tolerance(tolerance)
    file = Path(path)
    with rebuilding(file, "run the audit again"):
        header, store = read_store(file)
        if header.get("planted") != planted.digest:
            whose = "another checkpoint" if "planted" in header else "no planted checkpoint"
            raise ValueError(f"{file}: the texts are of {whose}; {planted.folder} has another digest")
        sampling = Sampling.from_json(header["sampling"])
        form = {name: header[name] for name in FORM if name in header}
        root = header["seed"]
        asked_for = planted, root, sampling, header["tokens"], header["texts"]
        check_arguments(plan_requests, asked_for, form)
        answers = len(store.completions) + len(store.failures) + MOST_AT_ONCE
        asked_for = (*asked_for[:3], min(header["tokens"], answers * LONG), header["texts"])
        requests = plan_requests(*asked_for, **form)
        about: dict[str, Any] = {name: str(header[name]) for name in ("engine", "version")}
        asked = {one.number: one.n for one in requests}
        for one in store.completions.values():
            if not 0 <= one.index < asked.get(one.number, 0):
                raise ValueError(f"{file}: text {one.index} of request {one.number} was not asked for")
        lacking = len(store.completions) < sum(asked[one] for one in asked if one not in store.failures)
        about["described"] = dict(header["described"])
        run = _run(planted, requests, store, about, root=root, interrupted=lacking)
        return judge(run, orders=[] if order is None else [order], tolerance=tolerance)


def tried(
    engine: str, planted: Planted, sampling: Sampling, root: int = 0, options: Mapping[str, Any] = {}
) -> Run:
    """A few texts of an engine in this process without speculation."""
    requests = plan_requests(planted, root, sampling, PLAIN_TOKENS)
    with opening(engine, planted, plain_options(options), speculative=False) as opened:
        return serve(opened, planted, requests, TextStore(None, {}), root)


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an engine that mean something without speculation."""
    return {name: value for name, value in options.items() if name not in ("rule", "gamma", "mistake")}


def open_store(
    out: str | Path | None, file: str, engine: Engine, root: int, sampling: Sampling, more: Mapping[str, Any]
) -> TextStore:
    """The texts of a run, in the folder `out` or in memory; a continued run shares `more` with the first."""
    if out is None:
        return TextStore(None, {})
    folder = make_folder(out)
    return TextStore(folder / file, _about(engine) | {"seed": root, "sampling": asdict(sampling), **more})


def _about(engine: Engine) -> dict[str, Any]:
    """What an engine says of itself."""
    return {"engine": engine.name, "version": engine.version, "described": engine.describe()}


def planned_tokens(requests: Sequence[Request]) -> int:
    """The tokens of `requests`, if no text ends early."""
    return sum(one.max_tokens * one.n for one in requests)


def serve(
    engine: Engine,
    planted: Planted,
    requests: Sequence[Request],
    store: TextStore,
    root: int,
    seconds: float | None = None,
    progress: Progress = silent,
) -> Run:
    """Make the requests that have no text yet, and keep what comes back. Ctrl-C ends the run early."""
    started = time.perf_counter()
    asking = Asking(engine, store, None if seconds is None else started + seconds)
    planned = planned_tokens(requests)
    done = sum(len(one.tokens) for one in store.completions.values())
    interrupted = False
    try:
        for answer in asking.answers(requests):
            done += len(answer.tokens) if isinstance(answer, Completion) else 0
            progress(done, planned)
    except KeyboardInterrupt:
        interrupted = True
    about = _about(engine)
    more: dict[str, Any] = {"interrupted": interrupted, "seconds": time.perf_counter() - started}
    return _run(planted, requests, store, about, counters=asking.gained(), root=root, **more)


def _run(
    planted: Planted, requests: Sequence[Request], store: TextStore, about: dict[str, Any], **more: Any
) -> Run:
    failures = [store.failures[number] for number in sorted(store.failures)]
    tested = {one.number: one for one in requests if one.sampling == requests[0].sampling}
    texts = [one for one in store.texts() if one.number in tested]
    if len(tested) < len(requests):
        more["counters"] = None  # these count the others too
    return Run(**about, planted=planted, requests=[*tested.values()], texts=texts, failures=failures, **more)
