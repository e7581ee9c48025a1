"""The texts of a run, kept as JSON Lines as they arrive, so that a run can be continued and judged again."""

import json
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from specsim.core._files import check_target, naming, open_file
from specsim.core._json import parse_json, rebuilding
from specsim.core._types import check_arguments
from specsim.engines._clients.http import HttpServer, TextCompletion
from specsim.engines._planted.folder import Planted
from specsim.engines._planted.processing import BANNED
from specsim.engines._planted.requests import Completion, Engine, Failure, Request, Sampling

#: The first line of a file says what it is. Version 1 had no checksums.
FORMAT = "specsim engine texts 2"
CHECKSUM = "crc32"


class TextStore:
    """The texts of one run, in a file or in memory only (`path` None). A text is kept once.

    The first line of a file is a header: the run's settings, which a continued run must share. Every further
    line is one completion or one failure, with a checksum. Raises ValueError, naming the line, if the file is
    of another run, or is not such a file."""

    def __init__(self, path: Path | None, header: dict[str, Any]):
        self.path = path
        self.completions: dict[tuple[int, int], Completion] = {}
        self.failures: dict[int, Failure] = {}
        if path is None:
            return
        header = json.loads(json.dumps(header))  # as it will be read
        if check_target(path).exists() and not _is_cut_header(path):
            kept = read_header(path)
            if different := [name for name in header if kept.get(name) != header[name]]:
                first = different[0]
                raise ValueError(
                    f"{path}: the texts are of another run: its {', '.join(different)} differ ({first} "
                    f"{_short(kept.get(first))}, now {_short(header[first])}); give another folder, or judge "
                    f"these with 'specsim audit engine {path} --planted DIR'"
                )
            for answer in _read(path):
                self._keep(answer)
            with path.open("rb+") as file:  # a last line that a crash left unfinished is cut off
                file.truncate(file.read().rfind(b"\n") + 1)
        else:
            _append(path, {"format": FORMAT} | header, "w")

    def add(self, answers: Iterable[Completion | Failure]) -> Iterator[Completion | Failure]:
        """Keep each of `answers` that is new, write it, and hand it on."""
        for answer in answers:
            if self._keep(answer):
                if self.path is not None:
                    kind = "completion" if isinstance(answer, Completion) else "failure"
                    _append(self.path, {kind: asdict(answer)})
                yield answer

    def _keep(self, answer: Completion | Failure) -> bool:
        if isinstance(answer, Failure):
            self.failures[answer.number] = answer
            return True
        self.failures.pop(answer.number, None)  # a later try succeeded
        return self.completions.setdefault((answer.number, answer.index), answer) is answer

    def texts(self) -> list[Completion]:
        """All completions, by request and index: the same whatever order they arrived in."""
        return [self.completions[key] for key in sorted(self.completions)]


def read_store(path: Path) -> tuple[dict[str, Any], TextStore]:
    """The header of a file of texts, and its content. Raises ValueError for other files."""
    header, store = read_header(path), TextStore(None, {})
    for answer in _read(path):
        store._keep(answer)
    return header, store


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def read_header(path: Path) -> dict[str, Any]:
    with open_file(path) as file:
        header = _parsed(file.readline(), path, 1)
    if not isinstance(header, dict) or header.pop("format", None) != FORMAT:
        raise ValueError(f"{path}, line 1: expected the header of a file that specsim audit engine wrote")
    return header


def _read(path: Path) -> Iterator[Completion | Failure]:
    """The answers in a file. A last line that was cut by a crash is left out."""
    with open_file(path) as file:
        file.readline()
        for number, line in enumerate(file, start=2):
            if not line.endswith(b"\n"):
                return
            entry = _parsed(line, path, number)
            with rebuilding(f"{path}, line {number}", "delete the line"):
                ((kind, fields),) = entry.items()
                answer = _completion(fields) if kind == "completion" else Failure(**fields)
                check_arguments(type(answer), (), vars(answer))
            yield answer


def _completion(fields: dict[str, Any]) -> Completion:
    top, kind = fields["top"], Completion
    if "forms" in fields:  # of a server that was asked by text
        kind = TextCompletion
        fields = fields | {"forms": {name: tuple(pieces) for name, pieces in fields["forms"].items()}}
    return kind(
        **fields
        | {
            "tokens": tuple(fields["tokens"]),
            "logprobs": None if fields["logprobs"] is None else tuple(fields["logprobs"]),
            "top": None if top is None else tuple({int(k): v for k, v in one.items()} for one in top),
        }
    )


def _parsed(line: bytes, path: Path, number: int) -> Any:
    try:
        entry = parse_json(line)
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: not JSON ({error})") from error
    if isinstance(entry, dict) and entry.pop(CHECKSUM, None) != _checksum(entry):
        if number == 1:
            raise ValueError(f"{path}, line 1: not the header of a file of specsim audit engine, or damaged")
        raise ValueError(f"{path}, line {number}: its checksum is wrong; delete the line to request it again")
    return entry


def _checksum(entry: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(entry, sort_keys=True).encode())


def _append(path: Path, entry: dict[str, Any], mode: str = "a") -> None:
    with naming(path), path.open(mode, encoding="utf-8") as file:
        plain = json.loads(json.dumps(entry, allow_nan=False))  # as it will be read
        file.write(json.dumps(plain | {CHECKSUM: _checksum(plain)}) + "\n")


def _is_cut_header(path: Path) -> bool:
    """Whether a crash cut the file in its first line, so that nothing is in it."""
    with open_file(path) as file:
        line = file.readline()
    begun = json.dumps({"format": FORMAT})[:-1].encode()
    return not line.endswith(b"\n") and (line.startswith(begun) or begun.startswith(line))


# Ask an engine for the texts that are missing, and keep what comes back.

#: Requests that an engine is given at once; between two such groups the time is looked at.
GROUP = 64
#: Failures in a row after which an engine is not asked further; a late answer counts as several.
HOPELESS, OF_SILENCE = 2 * GROUP, 8


class Asking:
    """The requests to one engine in one run.

    They end at the `deadline`, a time of `time.perf_counter`, or when the engine does not answer; `ended`
    says so. A group is not cut off by the deadline, since texts that came early would be other ones than all,
    but no server that becomes slower then is waited for."""

    def __init__(self, engine: Engine, store: TextStore, deadline: float | None):
        self.engine, self.store, self.deadline = engine, store, deadline
        self.ended, self._failed = False, 0
        if isinstance(engine, HttpServer):
            engine.deadline = deadline
        self._before = engine.counters()

    def answers(self, requests: Sequence[Request]) -> Iterator[Completion | Failure]:
        """The new answers to those of `requests` that lack texts."""
        kept = Counter(number for number, _ in self.store.completions)
        missing = [one for one in requests if kept[one.number] < one.n]
        for start in range(0, len(missing), GROUP):
            if self.ended:
                return
            group = missing[start : start + GROUP]
            asked = {(one.number, index) for one in group for index in range(one.n)}
            # what was not asked for is not taken; a failure has no index
            given = (a for a in self.engine.complete(group) if (a.number, getattr(a, "index", 0)) in asked)
            for answer in self.store.add(given):
                if isinstance(answer, Failure):
                    self._failed += OF_SILENCE if answer.kind == "timeout" else 1
                else:
                    self._failed = 0
                yield answer
                if self._failed >= HOPELESS:
                    self.ended = True
                    return
            self.ended = self.deadline is not None and time.perf_counter() > self.deadline

    def gained(self) -> dict[str, int] | None:
        """What the engine's own counters counted since the beginning; None without counters."""
        before, after = self._before, self.engine.counters()
        if before is None or after is None:
            return None
        return {name: after[name] - before[name] for name in after if name in before}


# Which requests an audit makes: drawn from the seed alone, so that a run can be continued or repeated.

#: Lengths of most texts, and of every eighth, which ends early: engines differ in what they do at the end.
LONG, SHORT, SHORT_EVERY = 64, (1, 2, 3, 5, 8), 8
#: Tokens of a prompt beyond what the distribution reads; pages of an engine's cache begin at multiples of 16.
BEYOND = (0, 1, 2, 3, 5, 8, 14, 15, 16, 17, 31, 32)
#: Where prompts share their beginnings they share this many tokens or more; and the most words of their own.
PAGE, OWN = 16, 3
#: The same for every second prompt where they are to be unequal: a batch of them is mostly padding.
FAR = 256
#: Prompts that are asked once, and then again in the order of a stride.
BLOCK, STRIDE = 8, 3
#: Requests that are made again at the end, with the same seed.
REPEATED = 8


def plan_requests(
    planted: Planted,
    seed: int,
    sampling: Sampling,
    tokens: int,
    n: int = 1,
    *,
    request_seeds: bool = True,
    unequal_prompts: bool = False,
    shared_prompts: bool = False,
    mixed_requests: bool = False,
) -> list[Request]:
    """Requests of `n` texts for at least `tokens` tokens, each with its own seed; then the first ones again.
    Without `request_seeds` they have none; with `unequal_prompts` every second prompt is longer by `FAR`.
    With `shared_prompts` those of a block are beginnings of one text, but for their last one to `OWN` words.
    With `mixed_requests` two of other sampling follow each two, to be decoded beside them; nobody tests them.

    Each prompt is asked twice, so that equal texts and shared random numbers can be seen, and never by two
    requests in a row, so that mixed up requests can be. Raises ValueError if the context of the checkpoints
    is too short for the shortest prompt and one token."""
    words = {*range(planted.target.words)}
    banned = {token for token, bias in sampling.logit_bias if bias <= BANNED}
    banned |= {word[0] for word in sampling.bad_words if len(word) == 1}
    left = words & {*(sampling.allowed_token_ids or words)} - banned
    sure = left - {word[-1] for word in sampling.bad_words} - {*sampling.stop_ids * bool(sampling.min_tokens)}
    some = planted.target.logits.comes[:, [*sure]].any(axis=1).all()
    if not some or not all({*dict(state)} & {*left, planted.eos} for state in sampling.grammar):
        names = "logit_bias, allowed_token_ids, bad_words, min_tokens, grammar"
        raise ValueError(f"{names}: after some tokens no word is left that may come; ban fewer")
    if sampling.top_k is None and sampling.acting & {"typical_p", "top_n_sigma"}:
        # tokens that cannot come have logits too, which these would count
        sampling = replace(sampling, top_k=len(left if sampling.top_n_sigma else words))
    if sampling.repetition_penalty is None and {*planted.defaults} - {*sampling.left_out}:
        sampling = replace(sampling, repetition_penalty=1.0)  # not that of the checkpoint
    others = Sampling(temperature=1.0 if sampling.acting else 0.5, logprobs=sampling.logprobs)
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    least = max(1, planted.target.start, planted.draft.start)
    if least + 1 > planted.context:
        raise ValueError(f"context: {planted.context} positions do not hold {least} tokens and a text")
    far = max(0, min(FAR, planted.context - LONG - least))
    found: list[Request] = []
    total = 0
    while total < tokens:
        prompts = []
        shared = planted.prompts(1, planted.context - 1, rng=rng)[0].tolist() if shared_prompts else []
        for i in range(len(found) // 2, len(found) // 2 + BLOCK):
            beyond = far if unequal_prompts and i % 2 else BEYOND[i % len(BEYOND)]
            length = min(least + beyond + shared_prompts * PAGE, planted.context - 1)
            new = SHORT[i // SHORT_EVERY % len(SHORT)] if i % SHORT_EVERY == SHORT_EVERY - 1 else LONG
            new = min(new, PAGE) if shared_prompts else new
            alike = shared[: max(0, length - 1 - i % OWN)]
            own = planted.prompts(1, length, rng=rng)[0].tolist()[len(alike) :]
            prompts.append(((*alike, *own), min(new, planted.context - length)))
        asked = [*prompts, *(prompts[(STRIDE * i + 1) % BLOCK] for i in range(BLOCK))]
        for i, (prompt, new) in enumerate(asked):
            drawn = int(rng.integers(1, 2**31)) if request_seeds else None
            found.append(Request(len(found), prompt, new, drawn, n, sampling))
            total += n * new
            for beside in asked[i - 1 : i + 1] if mixed_requests and i % 2 else ():
                found.append(Request(len(found), *beside, drawn, sampling=others))
    tested = [one for one in found if one.sampling == sampling]
    return found + [replace(one, number=len(found) + i) for i, one in enumerate(tested[:REPEATED])]
