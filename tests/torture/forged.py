"""Files of specsim with hostile values and right checksums, as whoever forges a file can make them.

One value of a sound file is replaced, dropped or doubled, and the file sealed again. It must be read with a
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
from specsim import engines, open_planted, traces
from specsim.auditing import audit_shard
from specsim.core._json import seal_of
from specsim.core._tensors import read_tensors, save_tensors
from specsim.simulation._checkpoints import FORMAT, _digest
from specsim.traces._format import digest

ESCAPE = "\x1b[31m"
HOSTILE = [
    None, True, -1, 0, 1, 300, 2**62, 2**63, 2**64, -(2**63), 10**400, 1e308, -0.5, 1e-320, "", "x", ESCAPE,
    "../../etc/passwd", "a" * 10**5, [], [[]], {}, [[1, 2], [3]], [-1], [2**63], ["x"], {"float": "nan"},
    {"float": "inf"}, {"fraction": "1/0"}, {"tuple": []}, {"tuple": [2**64]}, {"mapping": [[1, 2, 3]]},
    {"array": [300], "dtype": "int8", "shape": [1]}, {"array": [], "dtype": "int64", "shape": [0]},
    {"array": [2**63 - 1] * 2, "dtype": "int64", "shape": [2]}, {"class": "specsim.models.Tree", "fields": {}},
    {"array": [1], "dtype": "object", "shape": [1]}, {"class": "specsim.simulation.Simulation", "fields": 3},
]  # fmt: skip


def change(value, rng):
    """`value`, plain JSON, with one of the values in it replaced, dropped or doubled."""
    places = [*_places(value)]
    holder, key = rng.choice(places)
    how = rng.random()
    if how < 0.1 and isinstance(holder, dict):
        del holder[key]
    elif how < 0.2 and isinstance(holder, list):
        holder.insert(key, holder[key])
    elif how < 0.3:
        other, there = rng.choice(places)
        holder[key] = json.loads(json.dumps(other[there]))
    else:
        holder[key] = rng.choice(HOSTILE)
    return value


def _places(value):
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def _sealed(path, rng):
    """Forge a JSON file that has its own SHA-256."""
    values = json.loads(path.read_text())
    values.pop("sha256")
    change(values, rng)
    path.write_text(json.dumps(values | {"sha256": seal_of(values)}))


def _part(path, rng):
    arrays, metadata = read_tensors(path)
    head = json.loads(metadata[FORMAT].partition("\n")[2])
    if rng.random() < 0.3:
        name = rng.choice([*arrays])
        _array(arrays, name, rng)
    else:
        change(head, rng)
    head = json.dumps(head)
    save_tensors(path, arrays, {FORMAT: f"{_digest(head, arrays)}\n{head}"})


def _array(arrays, name, rng):
    """Forge one of `arrays`."""
    one = np.atleast_1d(arrays[name])
    arrays[name] = rng.choice([
        one[:0], one[:-1], np.concatenate([one, one]), one[None], one * 0 - 1, one * 0 + 2**62, one * 0,
    ])  # fmt: skip


def _planted(path, rng):
    """Forge the distributions of a planted folder, a checkpoint's JSON, or what the folder says of them."""
    folder, which = path.parent, rng.randrange(3)
    name = ["law.npz", "target/config.json", "draft/tokenizer.json"][which]
    if which:
        values = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps(rng.choice([[], 3, change(values, rng), change(values, rng)])))
    else:
        with np.load(folder / name) as file:
            arrays = dict(file)
        entry = rng.choice([*arrays])
        if rng.random() < 0.5:
            arrays[entry] = np.array(rng.choice([0, -1, 2**62, 1.5, "x", np.nan, [], [[1]], [0, 0], [-1, 5]]))
        else:
            _array(arrays, entry, rng)
        np.savez(folder / name, **arrays)
    values = json.loads(path.read_text())
    values["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    if rng.random() < 0.3:
        change(values, rng)
    values.pop("sha256", None)
    path.write_text(json.dumps(values | {"sha256": seal_of(values)}))


def _shard(path, rng):
    """Forge the header of a trace's shard, and the manifest's SHA-256 of it."""
    data, manifest = path.read_bytes(), path.parent / "manifest.json"
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    first, last = header["checksum"]["data_offsets"]
    checksums = np.frombuffer(data[end + first : end + last], np.uint64)
    header = json.dumps(change(header, rng)).encode()
    header = len(header).to_bytes(8, "little") + header
    path.write_bytes(header + data[end:])
    values = json.loads(manifest.read_text())
    values["shards"][0] |= {
        "bytes": len(header) + len(data) - end, "sha256": digest(header, checksums)
    }  # fmt: skip
    values.pop("sha256")
    manifest.write_text(json.dumps(values | {"sha256": seal_of(values)}))


def _show(result):
    """All that is shown of a result."""
    told = [str(result), result._repr_html_(), result.to_csv(), repr(result.to_dict())]
    if "\x1b" in "".join(told[:1]):
        raise AssertionError("an escape sequence is printed")
    return told


def _run(path):
    found = specsim.load(path)
    _show(found)
    if getattr(found, "planned", 0) <= 10**6:
        _show(specsim.rerun(path, threads=1))


def _opened(path):
    pair = open_planted(path.parent)
    pair.to_dict(), pair.prompts(1, pair.target.start + 1, rng=1), pair.target.rows([[0], [1]])
    engines.check(pair.folder, rng=0)


def _trace(path):
    found = specsim.open_trace(path.parent)
    [repr(shard) for shard in found.verify()]
    _show(traces.summarise(found))


#: A kind of file: its name, the path, what forges it and what reads it.
KINDS = [
    ("forged results", "run.json", _sealed, _run),
    ("forged audits", "audit.json", _sealed, lambda path: _show(specsim.load(path))),
    ("forged parts", "run.part", _part, lambda path: _show(specsim.merge([path]))),
    ("forged shards", "audit.part", _part, lambda path: _show(specsim.merge([path]))),
    ("forged pairs", "pair/planted.json", _planted, _opened),
    ("forged manifests", "trace/manifest.json", _sealed, _trace),
    ("forged traces", "trace/shard-00000.safetensors", _shard, _trace),
]


def make_files():
    make_things()
    specsim.audit("standard", "smoke", rng=1, cases=["two-point"]).save("audit.json")
    audit_shard("standard", "audit.part", (0, 1), "smoke", rng=1, threads=1)


def run_forged(number, seed):
    """A tally for each kind of file, of `number` forged ones."""
    smaller_audits()
    for name, path, forge, read in KINDS:
        yield in_blocks(
            name,
            [f"{seed} {name} {i}" for i in range(number)],
            lambda task, path=Path(path), forge=forge, read=read: _act(task, path, forge, read),
            str,
            _prepare,
        )


def _prepare():
    Path("sound").mkdir()
    with chdir("sound"):
        make_files()


def _act(task, path, forge, read):
    rng = random.Random(task)
    top = path.parts[0]
    if Path(top).is_dir():
        shutil.rmtree(top)
    (shutil.copytree if len(path.parts) > 1 else shutil.copy)(Path("sound", top), top)
    forge(path, rng)
    try:
        read(path)
    except Exception as error:
        fault = answer_of(error)
        return ("refused", None) if fault is None else ("accident", (TRACEBACK, fault))
    return "read", None
