"""Logs: α of a trace beside a plain read of its rows, and the import of JSON Lines beside plain parsing."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import numpy as np
import orjson

from benchmarks._report import Report, in_turn
from specsim import open_trace
from specsim.core._kernels import available_threads
from specsim.distributions import synthetic_pair
from specsim.traces import import_trace, summarise, writer
from specsim.traces._analysis import summarise_and_read

#: Reads of memory vary more than computing, and take little time.
GAMMA, READS, IMPORTS = 5, 31, 15


def measure(report: Report) -> None:
    for size in (256, 32_000):
        for dtype in ("float32", "float16", "bfloat16"):
            alpha(report, size, dtype)
    for form in ("completions", "chats"):
        jsonl(report, form)


def alpha(report: Report, size: int, dtype: str) -> None:
    """Beside a plain read by as many threads, of the same mapped pages: the sum of all words of p and q."""
    with tempfile.TemporaryDirectory() as folder:
        trace = open_trace(_write_trace(Path(folder) / "trace", size, dtype, 2**28))
        arrays = [array for shard in trace.shards for array in (shard.columns.p, shard.columns.q)]
        words = [array.reshape(-1).view(np.uint64) for array in arrays]
        total = sum(w.nbytes for w in words)

        def read() -> None:
            with ThreadPoolExecutor(available_threads()) as pool:
                list(pool.map(np.sum, words))

        def beside(name: str, analyse: Callable[[], object], wanted: str) -> None:
            plain, ours = in_turn(read, analyse, READS)
            speeds = f"{total / np.median(ours) / 1e9:.1f} GB/s of {total / np.median(plain) / 1e9:.1f}"
            report.add(f"bytes/s: {name} / plain read, V = {size:,}, {dtype}", plain / ours, wanted, speeds)

        beside("trace alpha", lambda: summarise(trace), "≥ 0.9" if dtype == "float32" else "≥ 0.85")
        beside("the same with entropies", lambda: summarise_and_read(trace, rng=0), "")


def jsonl(report: Report, form: str) -> None:
    """A target's prompts and a draft's answers, 20 tokens listed at each place."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{name}.jsonl" for name in ("target", "draft")]
        _write_lines(files, form, texts=192, places=256)
        lines = [line for file in files for line in file.read_bytes().splitlines()]
        total, number = sum(os.path.getsize(file) for file in files), count()

        def parse() -> None:
            for line in lines:
                orjson.loads(line)

        def convert() -> None:
            import_trace(files[0], Path(folder) / f"trace-{next(number)}", draft=files[1], progress=False)

        plain, read = in_turn(parse, convert, IMPORTS)
        report.add(f"MB/s: import of JSON Lines, {form}", total / read / 1e6, "≥ 60")
        report.add(f"bytes/s: the same / one pass of orjson alone, {form}", plain / read)


def _write_lines(files: list[Path], form: str, texts: int, places: int, listed: int = 20) -> None:
    rng, size = np.random.default_rng(1), 32_000
    logprobs = -1.0 - 0.25 * np.arange(listed) - math.log(2)

    def row(token: int) -> dict[int, float]:
        others = np.unique((size * rng.random(2 * listed) ** 4).astype(int))
        tokens = [token, *others[others != token][: listed - 1].tolist()]
        return dict(zip(tokens, (logprobs - 0.01 * rng.random(listed)).tolist(), strict=False))

    def chat(token: int, value: float) -> dict[str, object]:
        return {"token": f"token_id:{token}", "logprob": value, "bytes": None}

    with files[0].open("w") as target, files[1].open("w") as draft:
        for _ in range(texts):
            text = (size * rng.random(places) ** 4).astype(int).tolist()
            scored = [
                {
                    str(x): {"logprob": v, "rank": 1, "decoded_token": f" word{x}"}
                    for x, v in row(token).items()
                }
                for token in text
            ]
            rows = [row(token) for token in text]
            if form == "chats":
                content = [
                    chat(x, one[x]) | {"top_logprobs": [chat(*entry) for entry in one.items()]}
                    for x, one in zip(text, rows, strict=True)
                ]
                written: dict[str, object] = {"content": content}
            else:
                written = {
                    "tokens": [f"token_id:{x}" for x in text],
                    "token_logprobs": [one[x] for x, one in zip(text, rows, strict=True)],
                    "top_logprobs": [{f"token_id:{x}": v for x, v in one.items()} for one in rows],
                }
            print(json.dumps({"choices": [{"prompt_logprobs": [None, *scored]}]}), file=target)
            print(json.dumps({"choices": [{"logprobs": written}]}), file=draft)


def _write_trace(path: Path, vocab_size: int, dtype: str, size: int) -> Path:
    """A trace of about `size` bytes."""
    p, q = synthetic_pair("zipf", vocab_size, 0.8, rng=0)
    p_rows, q_rows = np.tile(p, (GAMMA + 1, 1)), np.tile(q, (GAMMA + 1, 1))
    steps = size // ((8 if dtype == "float32" else 4) * vocab_size * (GAMMA + 1))
    with writer(path, vocab_size=vocab_size, gamma=GAMMA, dtype=dtype) as log:
        for step in range(steps):
            log.append(step // 500, [0] * GAMMA, 2, p_rows, q_rows)
    return path
