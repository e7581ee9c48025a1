"""Files of specsim with hostile values and right checksums, as whoever forges a file can make them.

One value of a sound file is replaced or dropped, and the file sealed again. It must be read with a
result, or refused in words that name it."""

import hashlib
import json
import random
import shutil
from contextlib import chdir
from pathlib import Path

import numpy as np
from blocks import TRACEBACK, in_blocks
from calls import make_things
from command_lines import smaller_audits
from judging import answer_of

import specsim
from specsim import audit_engine, engines, open_planted, open_trace, traces
from specsim.auditing import audit_shard
from specsim.core._json import seal_of
from specsim.core._tensors import read_tensors, save_tensors
from specsim.engines import judge_texts
from specsim.engines._audit.store import _checksum
from specsim.simulation._checkpoints import FORMAT, _digest

LISTS = [[2**64], [2**63 - 1] * 2, [300], [], ["x"]]
HOSTILE = [
    None, True, -1, 0, 300, 2**62, 2**64, 10**400, 1e308, -0.5, 1e-320, "", "x", "\x1b[31m", "../../x", "a" * 10**5,
    [], [[]], {}, [[1, 2], [3]], {"float": "nan"}, {"fraction": "1/0"}, {"mapping": [[1, 2, 3]]},
    *({"tuple": one} for one in LISTS), {"class": "specsim.simulation.Simulation", "fields": 3},
    *({"array": one, "dtype": kind, "shape": [len(one)]} for one in LISTS for kind in ("int8", "int64", "object")),
]  # fmt: skip


def change(value, rng):
    """`value`, plain JSON, with one of the values in it replaced or dropped."""
    places = [*_places(value)]
    (holder, key), (other, there), how = rng.choice(places), rng.choice(places), rng.random()
    if how < 0.1 and isinstance(holder, dict):
        del holder[key]
    else:
        holder[key] = json.loads(json.dumps(other[there])) if how < 0.3 else rng.choice(HOSTILE)
    return value


def _places(value):
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def _sealed(path, rng):
    values = change(json.loads(path.read_text()), rng)
    values.pop("sha256", None)
    path.write_text(json.dumps(values | {"sha256": seal_of(values)}))


def _part(path, rng):
    arrays, metadata = read_tensors(path)
    head = json.loads(metadata[FORMAT].partition("\n")[2])
    _array(arrays, rng) if rng.random() < 0.3 else change(head, rng)
    head = json.dumps(head)
    save_tensors(path, arrays, {FORMAT: f"{_digest(head, arrays)}\n{head}"})


def _array(arrays, rng, most=6):
    name = rng.choice([*arrays])
    one = np.atleast_1d(arrays[name])
    values = one[:0], one[:-1], one[None], one * 0 - 1, one * 0 + 2**62, one * 0, 1.5, "x", np.nan, [-1, 5]
    arrays[name] = np.array(rng.choice(values[:most]))


def _planted(path, rng):
    """The distributions of a planted folder, a checkpoint's JSON, and what the folder says of them."""
    name = rng.choice(["law.npz", "target/config.json", "draft/tokenizer.json"])
    file = path.parent / name
    if name == "law.npz":
        _array(arrays := dict(np.load(file)), rng, None)
        np.savez(file, **arrays)
    else:
        file.write_text(json.dumps(rng.choice([[], 3, *[change(json.loads(file.read_text()), rng)] * 4])))
    values = json.loads(path.read_text())
    values["files"][name] = hashlib.sha256(file.read_bytes()).hexdigest()
    path.write_text(json.dumps(values | {"sha256": seal_of(values)}))
    if rng.random() < 0.3:
        _sealed(path, rng)


def _texts(path, rng):
    lines = path.read_text().splitlines()
    place = rng.randrange(len(lines)) if rng.random() < 0.7 else 0
    values = change({name: one for name, one in json.loads(lines[place]).items() if name != "crc32"}, rng)
    lines[place] = json.dumps(values | {"crc32": _checksum(values)})
    path.write_text("\n".join(lines) + "\n")


def _show(result):
    """All that is shown of a result."""
    result._repr_html_(), result.to_csv(), result.to_dict()
    if "\x1b" in str(result):
        raise AssertionError("an escape sequence is printed")


def _run(path):
    found = specsim.load(path)
    _show(found)
    if getattr(found, "planned", 0) <= 10**6:
        _show(specsim.rerun(path, threads=1))


#: A kind of file: its name, the path, what forges it and what reads it.
KINDS = [
    ("forged results", "run.json", _sealed, _run),
    ("forged audits", "audit.json", _sealed, lambda path: _show(specsim.load(path))),
    ("forged parts", "run.part", _part, lambda path: _show(specsim.merge([path]))),
    ("forged shards", "audit.part", _part, lambda path: _show(specsim.merge([path]))),
    ("forged pairs", "pair/planted.json", _planted, lambda path: _show(engines.check("pair", rng=0))),
    ("forged manifests", "trace/manifest.json", _sealed, lambda path: _show(traces.summarise(open_trace("trace")))),
    ("forged texts", "texts/texts.jsonl", _texts, lambda path: _show(judge_texts(path, open_planted("pair")))),
]  # fmt: skip


def run_forged(number, seed):
    """A tally for each kind of file, of `number` forged ones."""
    smaller_audits()
    for name, *kind in KINDS:
        tasks = [f"{seed} {name} {i}" for i in range(number)]
        yield in_blocks(name, tasks, lambda task, kind=kind: _act(random.Random(task), *kind), str, _prepare)


def _prepare():
    Path("sound").mkdir()
    with chdir("sound"):
        make_things()
        specsim.audit("standard", "smoke", rng=1, cases=["two-point"]).save("audit.json")
        audit_shard("standard", "audit.part", (0, 1), "smoke", rng=1, threads=1)
        audit_engine("specsim", open_planted("pair"), tokens=300, rng=1, out="texts")
        shutil.copytree("pair", "../pair")


def _act(rng, path, forge, read):
    top = Path(path).parts[0]
    if Path(top).is_dir():
        shutil.rmtree(top)
    (shutil.copytree if "/" in path else shutil.copy)(Path("sound", top), top)
    forge(Path(path), rng)
    try:
        read(Path(path))
    except Exception as error:
        fault = answer_of(error)
        return ("refused", None) if fault is None else ("accident", (TRACEBACK, fault))
    return "read", None
