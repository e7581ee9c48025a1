"""Reads what engines log of speculative decoding into records, whichever engine wrote it.

A line is read by its content: JSON, a line of a log, or a series of Prometheus; data/metrics.toml has the
formats. What is printed over several lines, as by a terminal, is one."""

import io
import re
import reprlib
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from specsim.core._files import open_file, read_table
from specsim.core._json import LONGEST, log_files, read_line, split_lines
from specsim.core._types import said_of
from specsim.served._prometheus import SERIES, read_series
from specsim.traces._responses import COUNTS, first_of

FORMATS = read_table("metrics")
OWNERS: dict[str, tuple[str, bool]] = FORMATS["owners"]
ENGINES: dict[str, str] = FORMATS["engines"]
NAMED = {end: of for name, of in SERIES.items() for end in (name, name.removesuffix("_total"))}
#: The names of each number in JSON; OpenAI's predicted outputs are no drafts.
NAMES = {
    name: [one for one in (*COUNTS.get(name, []), *names) if not one.endswith("prediction_tokens")]
    for name, names in FORMATS["names"].items()
}
WHOLE = ("steps", "drafted", "accepted", "rejected", "ignored", "emitted", "gamma")
SPEEDS = ("itl", "tpot", "throughput", "batch")
IDS = ("custom_id", "request_id", "id")
#: The most tokens accepted in a step, the largest count, and the deepest object.
MOST_ACCEPTED, MOST, DEEPEST = 256, 2**53, 12
#: Characters of a line that are searched, and lines that one may be broken into.
SEARCHED, BROKEN = 10_000, 6
ESCAPES = re.compile(r"\x1b\[[0-9;:?]*[@-~]|\x1b\][^\x07\x1b]*\x07?|[\r\x00\ufeff]")
NUMBER = r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?%?)"
#: Numbers of Prometheus that are no counters.
GAUGES = ("acceptance_rate", "tokens_per_step")
#: What may be before a document: spaces, and the mark of UTF-8.
BLANK = b"\xef\xbb\xbf \t\r\n"
#: How a line of JSON begins, unlike one of a log.
JSON = re.compile(r"\{|\[\s*($|[\[{\"])")
#: Labels of Prometheus that tell apart the numbers of one server, and their values.
INSIDE, PLACE = ("position", "le", "token_position"), re.compile(r"\d{1,3}(\.\d+)?|\+Inf")


class Record(NamedTuple):
    """What was logged of a request, or of a server; `part` says which one, or which lines."""

    place: str
    engine: str
    numbers: dict[str, Any]  #: as arguments of `check_metrics`
    lengths: tuple[int, ...] = ()  #: [k] steps that accepted k drafted tokens
    part: str = ""
    is_request: bool = False
    beside: bool = False  #: whether its numbers are in others too
    identity: str = ""  #: what tells a request of a log from the others


#: What marks each kind of line, and its numbers.
LINES: dict[str, dict[str, str]] = {
    kind: {name: text.replace("{n}", NUMBER) for name, text in entry.items()}
    for kind, entry in FORMATS["lines"].items()
}
MARKS = re.compile("|".join(f"({one['mark']})" for one in LINES.values()))


def read_records(source: str | Path, unreadable: list[str]) -> Iterator[Record]:
    """The records of a file, a folder of JSON Lines, "-" for standard input, or a text of a log.

    Lines of JSON that cannot be read are added to `unreadable`. Raises ValueError for a series that
    Prometheus does not read, and as `check_file`."""
    for place, file in _open(source):
        with file:
            texts = _Texts()
            for where, line in _lines(file, place):
                document = read_line(line.encode(), where) if JSON.match(line) else None
                if document is None or (document.problem and MARKS.search(line[:SEARCHED])):
                    texts.add(where, line)
                    continue
                problem, whole = document.problem, document.record
                for one in whole if isinstance(whole, list) else [whole] * (not problem):
                    try:
                        records = [*_objects(one, where)]
                    except ValueError as error:
                        problem = ascii(str(error))[1:-1]
                        continue
                    # where an object has a histogram, others repeat what it says
                    records = [record for record in records if record.lengths] or records
                    named = first_of(one, IDS) if isinstance(one, dict) and len(records) == 1 else None
                    yield from (one._replace(identity="" if named is None else str(named)) for one in records)
                unreadable += [f"{where}: {problem}"] * bool(problem)
            yield from texts.records(place)


def _open(source: str | Path) -> Iterator[tuple[str, BinaryIO]]:
    text = str(source)
    if text == "-":
        copy: Any = tempfile.SpooledTemporaryFile(LONGEST)  # noqa: SIM115 - read twice, and closed there
        shutil.copyfileobj(sys.stdin.buffer, copy)
        yield "standard input", copy
    elif isinstance(source, str) and (text.lstrip()[:1] in ("{", "[") or "\n" in text or MARKS.search(text)):
        yield "the text", io.BytesIO(text.encode("utf-8", "replace"))
    else:
        yield from ((str(path), open_file(path)) for path in log_files(Path(source)))


def _lines(file: BinaryIO, place: str) -> Iterator[tuple[str, str]]:
    """The lines with their places; a JSON document of several lines is one, however it is indented."""
    file.seek(0)
    if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):  # UTF-16, as PowerShell writes
        file.seek(0)
        file = io.BytesIO(file.read(LONGEST).decode("utf-16", "replace").encode())
    file.seek(0)
    first = file.read(SEARCHED).lstrip(BLANK)
    file.seek(0)
    if first[:1] in (b"{", b"[") and read_line(first.partition(b"\n")[0], place).problem:
        whole = file.read(LONGEST).lstrip(BLANK)
        if len(whole) < LONGEST and not read_line(whole, place).problem:
            yield place, whole.decode("utf-8")
            return
        file.seek(0)
    for number, line in enumerate(split_lines(file), 1):
        text = ESCAPES.sub("", (line or b"").decode("utf-8", "replace")).strip()
        if text := text.removeprefix("data: "):
            yield f"{place}:{number}", text


class _Texts:
    """Collects the lines of logs, and the series of Prometheus, of one source."""

    def __init__(self) -> None:
        self._broken: list[str] = []  # the lines of a record that may have more
        self._place, self._format = "", ""
        self._found: list[Record] = []
        self._totals: dict[tuple[str, str], Record] = {}
        self._series: dict[tuple[str, tuple[tuple[str, str], ...]], dict[tuple[str, str], float]] = {}

    def add(self, place: str, line: str) -> None:
        line = line[:SEARCHED]
        marks = [*MARKS.finditer(line)]
        for mark, end in zip(marks, [*(one.start() for one in marks[1:]), len(line)], strict=False):
            self._end()
            self._place, self._format = place, [*LINES][(mark.lastindex or 1) - 1]
            self._broken = [line[mark.start() : end]]
        if not marks and not self._add_series(place, line) and self._broken:
            self._broken.append(line)
        if len(self._broken) >= BROKEN:
            self._end()

    def records(self, place: str) -> Iterator[Record]:
        """All that was read; a whole log's statistics take the place of the requests that they agree with."""
        self._end()
        requests, totals = self._found, [*self._totals.values()]
        logged = [one for one in requests if one.part == "llama.cpp"]
        if logged and totals:
            sums = [sum(one.numbers.get("drafted", 0) for one in some) for some in (logged, totals)]
            requests = [one for one in requests if sums[0] != sums[1] or one not in logged]
            totals = [one._replace(beside=sums[0] != sums[1]) for one in totals]
        yield from (*requests, *totals, *self._servers(place))

    def _servers(self, place: str) -> Iterator[Record]:
        """A record of all servers, and beside it of each."""
        servers, values = self._series, dict[tuple[str, str], list[float]]()
        common = set.intersection(*({*labels} for _, labels in servers)) if servers else set()
        for (engine, labels), series in servers.items():
            part = ", ".join(f'{name}="{value}"' for name, value in labels if (name, value) not in common)
            record = _server(place, series, engine)
            if len(servers) > 1 and record.numbers:
                yield record._replace(part=part or engine, beside=True)
            for key, value in series.items():
                values.setdefault(key, []).append(value)
        # a mean is that of all servers only if they agree
        agreed = {key: some for key, some in values.items() if key[0] not in GAUGES or len({*some}) == 1}
        total = {key: some[0] if key[0] in GAUGES else sum(some) for key, some in agreed.items()}
        engines = {engine for engine, _ in servers}
        record = _server(place, total, engines.pop() if len(engines) == 1 else "")
        if record.numbers or any(name in GAUGES for name, _ in values):
            yield record

    def _end(self) -> None:
        """End the record that is open, if any."""
        text, self._broken = " ".join(self._broken), []
        if not text:
            return
        line = LINES[self._format]
        found = {name: re.search(one, text) for name, one in line.items() if name not in ("engine", "mark")}
        numbers: dict[str, Any] = {name: hit[1] for name, hit in found.items() if hit}
        key = numbers.pop("key", None)  # of lines that count from the start
        if "by_position" in numbers:
            numbers["by_position"] = re.findall(r"\d+(?:\.\d+)?", numbers["by_position"])
        for name in {*WHOLE, "first"} & numbers.keys():
            numbers[name] = _count(numbers[name], f"{self._place}: {name}")
        record = Record(self._place, line["engine"], numbers, part=self._format)
        before = self._totals.get((self._format, key)) if key else record
        if not any(str(one).strip("0.%") for one in numbers.values()):
            return
        if before and (not key or before.numbers.get("drafted", 0) > numbers.get("drafted", 0)):
            self._found.append(before)  # a total that began anew
        if key:
            self._totals[self._format, key] = record

    def _add_series(self, place: str, line: str) -> bool:
        with said_of(place):
            found = read_series(line, NAMED)
        if found is None:
            return False
        engine, counted = found.engine or found.name.partition("_")[0], NAMED[found.name]
        labels = tuple(sorted((k, v) for k, v in found.labels.items() if k not in INSIDE))
        inside = next((found.labels[name] for name in INSIDE if name in found.labels), "")
        if counted in ("position", "drafted at", "up to") and not PLACE.fullmatch(inside):
            label = INSIDE[counted == "up to"]
            raise ValueError(f"{place}: {found.name} has no position; give the label {label}")
        if counted not in GAUGES:
            _count(found.value, place)
        self._series.setdefault((engine, labels), {})[counted, inside] = found.value
        return True


def _server(place: str, series: Mapping[tuple[str, str], float], engine: str) -> Record:
    """The record of a server's series; counts by position, or up to each length, amount to a histogram."""
    numbers: dict[str, Any] = {}
    places: dict[str, dict[float, int]] = {}
    for (name, inside), value in series.items():
        if inside:
            places.setdefault(name, {})[float(inside)] = int(value)
        elif name in GAUGES:
            numbers[name] = str(value)
        elif value:
            numbers[name] = int(value)
    drafted, accepted, below = (places.get(name, {}) for name in ("drafted at", "position", "up to"))
    if drafted and drafted.get(0):
        numbers |= {"drafted": sum(drafted.values()), "steps": drafted[0]}
    lengths: tuple[int, ...] = ()
    if accepted and "steps" in numbers:
        numbers["gamma"] = gamma = int(max(drafted or accepted)) + 1
        numbers.setdefault("accepted", sum(accepted.values()))
        reached = [numbers["steps"], *(accepted.get(i, 0) for i in range(gamma)), 0]
        lengths = tuple(one - other for one, other in pairwise(reached))
    elif below and "steps" in numbers and all(k % 1 == 0 for k in below if k <= MOST_ACCEPTED):
        up_to = [0, *(below[k] for k in sorted(below) if k <= MOST_ACCEPTED)]
        lengths = tuple(later - one for one, later in pairwise(up_to))
    name = "vllm-v0" if "emitted" in numbers else ENGINES.get(engine, "other")
    return Record(place, name, numbers, lengths)


def _objects(value: Any, place: str, depth: int = 0) -> Iterator[Record]:
    """The records anywhere in a document; a string in it may be a line of a log."""
    if depth > DEEPEST:
        return
    if isinstance(value, str) and MARKS.search(value[:SEARCHED]):
        texts = _Texts()
        for line in value[: LONGEST // 32].splitlines():
            texts.add(place, ESCAPES.sub("", line))
        yield from texts.records(place)
    record = _object(value, place) if isinstance(value, Mapping) else None
    if record is not None:
        yield record
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _objects(inner, place, depth + 1)


def _object(values: Mapping[str, Any], place: str) -> Record | None:
    """The record in an object; None for another object."""
    found = {name: first_of(values, names) for name, names in NAMES.items()}
    lists = [found.pop(name) for name in ("histogram", "accepted_lengths", "emitted_lengths")]
    if not all(isinstance(one, list | None) for one in lists[1:]):
        raise ValueError("accept_lengths: not a list of the tokens of each step")
    for name, value in found.items():
        if isinstance(value, Mapping):  # of AIPerf, with its unit
            found[name] = value.get("avg", value.get("value"))
    last, emitted = found.pop("last_step"), found["emitted"]
    turns = last or found["steps"]
    if isinstance(turns, list) and isinstance(emitted, list):  # of each turn; last steps are counted from 0
        found["steps"] = sum(_count(one, "steps") + bool(last) for one in turns)
        found["emitted"] = sum(_count(one, "emitted") for one in emitted)
    numbers = {name: value for name, value in found.items() if value is not None}
    counts = {name: _count(numbers.pop(name), NAMES[name][0]) for name in WHOLE if name in numbers}
    told = any({*some} <= counts.keys() for some in FORMATS["telling"])
    rates = {"tokens_per_step", "acceptance_rate", "by_position"} & numbers.keys()
    if lists == [None] * 3 and not (rates or told):
        return None
    lengths = _lengths(lists)
    if {"accepted", "rejected"} <= counts.keys():
        counts.setdefault("drafted", counts["accepted"] + counts["rejected"] + counts.get("ignored", 0))
    if "gamma" not in counts and isinstance(lists[0], list) and any(lengths):
        counts["gamma"] = len(lengths) - 1
    owner = next((of for name, of in OWNERS.items() if any(key.startswith(name) for key in values)), None)
    engine, is_request = owner or ("vllm" if lengths else "other", True)
    if engine != "sglang":
        engine = ENGINES.get(str(values.get("engine")), engine)
    for name in [*numbers]:
        if name in SPEEDS and not (type(numbers[name]) in (int, float) and 0 < numbers[name] < MOST):
            del numbers[name]
        else:
            numbers[name] = _printed(name, numbers[name], counts)
    if not lengths and not (counts.get("drafted", 1) and counts.get("steps", 1)):
        return None  # nothing was drafted
    return Record(place, engine, counts | numbers, lengths, is_request=is_request)


def _lengths(lists: Iterable[Any]) -> tuple[int, ...]:
    """A histogram, dense or sparse, or the lengths of single steps, as a dense histogram."""
    histogram, accepted, emitted = lists
    if histogram is None and (accepted or emitted):
        rows = (one if isinstance(one, list) else [one] for one in accepted or emitted)
        steps = [_count(one, "accept_lengths") for row in rows for one in row]
        last = int(not accepted and 0 not in steps)  # whether the last token of each step is counted too
        histogram = {str(k - last): n for k, n in Counter(steps).items()}
    if isinstance(histogram, Mapping):
        keys = [key for key in histogram if isinstance(key, str) and key.isdecimal() and len(key) < 6]
        if len(keys) < len(histogram):
            raise ValueError("acceptance_histogram: its keys are not numbers of accepted tokens")
        sparse = {int(key): histogram[key] for key in keys}
        if max(sparse, default=0) > MOST_ACCEPTED:
            raise ValueError(f"acceptance_histogram: has more than {MOST_ACCEPTED} accepted in a step")
        histogram = [sparse.get(k, 0) for k in range(max(sparse, default=0) + 1)]
    if histogram is None:
        return ()
    if not isinstance(histogram, list) or len(histogram) > MOST_ACCEPTED + 1:
        raise ValueError(f"acceptance_histogram: {reprlib.repr(histogram)} is not a list of counts")
    return tuple(0 if one is None else _count(one, "acceptance_histogram") for one in histogram)


def _count(value: Any, name: str) -> int:
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int or not 0 <= value <= MOST:
        raise ValueError(f"{name}: {reprlib.repr(value)} is not a count")
    return value


def _printed(name: str, value: Any, counts: Mapping[str, int]) -> Any:
    """A number as printed: rates as engines write them, of 1 or of 100."""
    if isinstance(value, list) and name == "by_position":
        texts = [_printed("", one, {}) for one in value[:MOST_ACCEPTED]]
        return [f"{text}%" for text in texts] if any(float(text) > 1 for text in texts) else texts
    if type(value) not in (int, float) or not 0 <= value <= MOST:
        raise ValueError(f"{name}: {reprlib.repr(value)} is not a number ≥ 0")
    if name != "acceptance_rate":
        return str(value)
    true = counts.get("accepted", 0) / (counts.get("drafted") or 1)
    return f"{value}%" if value > 1 or abs(value / 100 - true) < true / 100 else str(value)
