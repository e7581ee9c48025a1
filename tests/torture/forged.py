"""Files of specsim with hostile values and right checksums, as whoever forges a file can make them, and of others.

One value of a sound file is replaced or dropped, and the file sealed again; files without checksums are also
cut, joined and encoded. It must be read with a result, or refused in words that name it; no code is run."""

import csv
import gzip
import hashlib
import json
import random
import shutil
import tempfile
from contextlib import chdir, suppress
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from blocks import TRACEBACK, WRONG, in_blocks
from calls import P, Q
from command_lines import smaller_audits
from flips import make_files
from judging import answer_of
from pyarrow import parquet
from safetensors import SafetensorError

import specsim
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


def _part(path, rng, run=None):
    arrays, metadata = read_tensors(path)
    head = json.loads(metadata[FORMAT].partition("\n")[2])
    if run is not None:
        head["run"] |= run
    elif rng.random() < 0.3:
        _array(arrays, rng)
    else:
        change(head, rng)
    head = json.dumps(head)
    save_tensors(path, arrays, {FORMAT: f"{_digest(head, arrays)}\n{head}"})


def _foreign(path, rng):
    """A part of a failed audit of a verifier whose code is in this folder, perhaps with its digest."""
    code = Path(f"theirs_{rng.randrange(10**9)}.py")
    code.write_text("open('HARM', 'w').close()")
    name = rng.choice([f"{code.stem}:verify", f"{code.stem}.x:y", f"shreyansh:source={Path.cwd()}"])
    digest = hashlib.sha256(code.read_bytes()).hexdigest()
    _part(path, rng, {"audit of": name} | rng.choice([{}, {"verifier's code": digest}]))


#: What is written for what in files of others: another separator, a name twice, an array of terabytes.
SWAPS = [
    (b",", b";"), (b".", b","), (b"\n", b"\r"), (b"q", b"p"), (b"0.", "\u0660.".encode()), (b"0", b"_0"), (b"[", b"[" * 10**4),
    (b", 3), }" + b" " * 11, b", 3" + b"0" * 11 + b"), }"), (b'{"', b'{"choices": 3, "'), (b"\n", b"\n\n"), (b"3", b"NaN"),
]  # fmt: skip
#: How the values of such a file are read, and how they are written.
FORMATS = {
    ".csv": (lambda path: [*csv.reader(path.open())], lambda path, rows: csv.writer(path.open("w")).writerows(rows)),
    ".jsonl": (lambda path: [json.loads(line) for line in path.open()], lambda path, rows: path.write_text("\n".join(map(json.dumps, rows)))),
    ".parquet": (lambda path: parquet.read_table(path).to_pylist(), lambda path, rows: parquet.write_table(pa.Table.from_pylist(rows), path)),
    ".npy": (lambda path: {"": np.load(path)}, lambda path, arrays: np.save(path, arrays[""])),
    ".npz": (lambda path: dict(np.load(path)), lambda path, arrays: np.savez(path, **arrays)),
    ".safetensors": (lambda path: read_tensors(path)[0], save_tensors),
}  # fmt: skip


def _mangled(path, rng):
    """A file with other values, or cut, joined and encoded otherwise."""
    read, write = FORMATS[path.suffix]
    # some values cannot be written
    with suppress(TypeError, ValueError, KeyError, AttributeError, csv.Error, SafetensorError):
        _array(values, rng, None) if isinstance(values := read(path), dict) else change(values, rng)
        write(path, values)
    content = path.read_bytes()
    begin, end = sorted(rng.choices(range(len(content) + 1), k=2))
    ways = [
        b"", content * 2, b"\xef\xbb\xbf" + content, content.decode("latin-1").encode("utf-16"), gzip.compress(content),
        content[:begin] + content[end:], content[:end] + content[begin:], content[:begin] + b"\0" + content[begin:],
        content[:begin] + b"9" * 200_000 + content[begin:], *(content.replace(*pair) for pair in SWAPS),
    ]  # fmt: skip
    path.write_bytes(rng.choice(ways) if rng.random() < 0.5 else content)


def _array(arrays, rng, most=6):
    name = rng.choice([*arrays])
    one = np.atleast_1d(arrays[name])
    values = one[:0], one[:-1], one[None], one * 0 - 1, one * 0 + 2**62, one * 0, 1.5, "x", np.nan, [-1, 5]
    values += one.astype(np.float16), one + 1j, one.astype(str), one.astype(object), one > 0, one.T, [{}]
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


def _simulated(path):
    twice = path.suffix == ".csv" and path.read_bytes().startswith(b"p,p")
    _show(specsim.simulate(*specsim.read_pair(str(path)), gamma=2, steps=64, rng=1, threads=1))
    assert not twice, "one of two columns is read"


def _analysed(trace):
    for analyse in (specsim.traces.summarise, specsim.traces.read_alpha, specsim.traces.audit_log):
        _show(analyse(trace))


def _import(path):
    shutil.rmtree("imported", ignore_errors=True)
    _analysed(specsim.traces.import_trace(path, "imported", draft=path if path.suffix == ".jsonl" else None))


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
    ("foreign code", "theirs.part", _foreign, lambda path: _show(specsim.merge([path]))),
    ("forged pairs", "pair/planted.json", _planted, lambda path: _show(specsim.engines.check("pair", rng=0))),
    ("forged traces", "tr*/manifest.json", _sealed, lambda path: _analysed(specsim.open_trace(path.parent))),
    ("hostile pairs", "rows.*", _mangled, _simulated),
    ("hostile logs", "log.*", _mangled, _import),
    ("forged texts", "engine/texts.jsonl", _texts, lambda path: _show(judge_texts(path, specsim.open_planted("pair")))),
]  # fmt: skip


def run_forged(number, seed):
    """A tally for each kind of file, of `number` forged ones."""
    smaller_audits()
    with tempfile.TemporaryDirectory() as folder:
        prepare = partial(_prepare, Path(folder, "sound"))
        for name, *kind in KINDS:
            tasks = [
                f"{seed} {name} {i}" for i in range(number // (20 if name == "foreign code" else 1) or 1)
            ]
            yield in_blocks(
                name, tasks, lambda task, kind=kind: _act(random.Random(task), *kind), str, prepare
            )


def _prepare(sound):
    """A link to the sound files, which the first block makes."""
    if not sound.exists():
        sound.mkdir()
        with chdir(sound):
            make_files()
            specsim.audit("standard", "smoke", rng=1, cases=["two-point"]).save("audit.json")
            audit_shard("verifiers:resamples_from_target", "theirs.part", (0, 1), "smoke", rng=1)
            np.savez("rows.npz", p=P, q=Q)
            np.save("rows.npy", [P, Q])
            save_tensors(Path("rows.safetensors"), {"p": P, "q": Q})
            Path("rows.csv").write_text("p,q\n" + "".join(f"{p},{q}\n" for p, q in zip(P, Q, strict=True)))
    Path("sound").symlink_to(sound)
    shutil.copytree("sound/pair", "pair")


def _act(rng, pattern, forge, read):
    sound = rng.choice(sorted(Path("sound").glob(pattern)))
    path = sound.relative_to("sound")
    top = path.parts[0]
    if Path(top).is_dir():
        shutil.rmtree(top)
    (shutil.copy if path == Path(top) else shutil.copytree)(Path("sound", top), top)
    forge(path, rng)
    try:
        read(path)
    except Exception as error:
        fault = answer_of(error)
        return ("refused", None) if fault is None else ("accident", (TRACEBACK, fault))
    return "read", (WRONG, "its code is run") if Path("HARM").exists() else None
