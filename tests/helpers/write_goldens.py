"""What `tests/goldens` keeps of the package's behaviour: run this file to write it again and see what
changed.

    python tests/helpers/write_goldens.py [NAME …]

For each run below, NAME.json has its numbers and names, and NAME.txt its sentences, so that a change of words
touches the second only. `help.txt` has the help of every command, `names.json` the public names with their
parameters."""

import difflib
import hashlib
import importlib
import inspect
import json
import math
import re
import shlex
import sys
import tempfile
import tomllib
from collections import Counter
from enum import Enum
from itertools import chain
from pathlib import Path
from unittest.mock import patch

from commands import every_command, help_of, run

import specsim
from specsim.adapters import declares
from specsim.core.distributions import synthetic_pair
from specsim.models import DynamicTree
from specsim.planning import Cascade, ConfidenceThreshold, Constant, Goodput, Oracle
from specsim.simulation._comparison import load_bundled

__all__ = [
    "FILES", "GOLDENS", "RUNS", "changed", "differences", "help_text", "made", "public_names", "read",
    "write",
]  # fmt: skip

GOLDENS = Path(__file__).parents[1] / "goldens"

#: wrong.py: the token after a rejection is drawn from p, and not from the residual.
WRONG = """\
import numpy as np


def verify(draft_tokens, p, q, rng):
    count, gamma = draft_tokens.shape
    rows, places = np.arange(count), np.arange(gamma)
    drafted = rows[:, None], places, draft_tokens
    passed = rng.random((count, gamma)) * q[drafted] < p[drafted]
    accepted = np.cumprod(passed, axis=1).sum(axis=1)
    weights = p[rows, accepted].cumsum(axis=1)
    output = np.full((count, gamma + 1), -1)
    output[:, :gamma] = np.where(places < accepted[:, None], draft_tokens, -1)
    output[rows, accepted] = (weights <= rng.random((count, 1)) * weights[:, -1:]).sum(axis=1)
    return output
"""

#: The commands of each golden file.
COMMANDS = tomllib.loads(Path(__file__).with_name("golden_commands.toml").read_text(encoding="utf-8"))


def looked_ahead():
    """Drafts whose shape or length depends on what is drafted, which no command offers."""
    pair = specsim.default_pair()
    tree = DynamicTree(width=2, depth=3, nodes=4)
    run = specsim.simulate(*pair, rule="deterministic_children", gamma=tree, steps=500, rng=1, threads=1)
    yield "simulate, dynamic tree", run.to_dict()
    log = specsim.draft_log(*pair, tokens=2000, rng=1)
    policies = Constant(4), ConfidenceThreshold(), Goodput(), Cascade(), Oracle()
    yield "policies", [run.to_dict() for run in specsim.simulate_policies(log, policies, draft_cost=0.05)]


def audited():
    """A rule that declares another law, one that is wrong, and a whole loop that is wrong."""
    for verifier in ("lenience:lenience=0.8", "pruned_children", keeps_rejected):
        result = specsim.audit(verifier, "smoke", rng=1, threads=1)
        yield f"audit {result.verifier}", result.to_dict()


@declares(decoder=True)
def keeps_rejected(*arguments):
    """A decoder that keeps the token that was rejected."""
    return specsim.mistakes.get("keeps_rejected").function(*arguments)


def compared():
    """Rules of each kind, side by side."""
    names = ["standard", "gumbel", "k_seq", "without_replacement", "lenience", "greedy_match"]
    pair, names = synthetic_pair("zipf", 50, rng=0), [*names, "pruned_children"]
    yield "compare", specsim.compare(*pair, rules=names, gamma=3, steps=4096, rng=1, threads=1).to_dict()


#: What is run: the commands above, or a function that yields (title, document).
RUNS = {**COMMANDS, "look_ahead": looked_ahead, "audits": audited, "compare": compared}

#: All files of the folder.
FILES = {f"{name}{ending}" for name in RUNS for ending in (".json", ".txt")} | {"help.txt", "names.json"}

#: The modules whose names are public: those that the documentation mentions.
MODULES = [
    "specsim", "specsim.adapters", "specsim.auditing", "specsim.decoding", "specsim.distributions",
    "specsim.engines", "specsim.mistakes", "specsim.models", "specsim.planning", "specsim.rules",
    "specsim.stats", "specsim.testing", "specsim.theory", "specsim.traces",
]  # fmt: skip

# --- made ---------------------------------------------------------------------------------------------------

#: Keys whose strings are names, which programs read; every other string is a sentence.
NAMES = {
    "case", "draft_sampling", "dtype", "engine", "entropy_of", "group", "kernel", "kind", "level", "load",
    "plain_load", "policy", "quantity", "rule", "verdict", "verifier",
}  # fmt: skip
#: Keys of what differs from machine to machine, or from run to run.
VOLATILE = {"judging", "seconds", "path", "sha256", "origin"}
#: Longer lists of numbers and names are kept in short.
LONGEST = 12


def made(name):
    """What the run `name` gives now: (documents, text)."""
    if callable(RUNS[name]):
        # as they are read back from JSON, where NumPy's numbers are numbers
        found = ((title, json.dumps(one, default=lambda x: x.item())) for title, one in RUNS[name]())
        pieces = [(title, None, json.loads(text), "") for title, text in found]
    else:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "wrong.py").write_text(WRONG)
            with (
                patch("specsim.rules.names", _tabled_names),
                patch(
                    "specsim.core._plotting.save_figure"
                ),  # pictures, which tests of commands draw, are not kept
                patch("specsim.auditing._report.audit._svg", return_value=""),
            ):
                pieces = [_ran(line.strip(), folder) for line in RUNS[name].strip().splitlines()]
    documents, texts = [], []
    for title, code, document, printed in pieces:
        sentences = {}
        documents.append({"run": title, "exit code": code, "says": _numbers(document, sentences)})
        texts += [f"# {title}", printed, *sentences, ""]
    return documents, re.sub(r"\n{3,}", "\n\n", "\n".join(texts))


def _tabled_names(*groups, names=specsim.rules.names):
    """`specsim.rules.names` of the table that comes with specsim: a rule just added changes no golden."""
    tabled = {entry.name for entry in load_bundled()}
    return [name for name in names(*groups) if name in tabled]


def _ran(line, folder):
    line, _, file = line.partition(" > ")
    found = run(*shlex.split(line), cwd=folder)
    if found.err:
        raise RuntimeError(f"specsim {line}: {found.err}")
    document, printed = None, found.out
    if line.endswith("--json"):
        document, printed = json.loads(found.out), ""
    elif file:
        document = json.loads(Path(folder, file).read_text(encoding="utf-8"))
    document = json.loads(json.dumps(document).replace(folder, "."))
    # times, versions and folders, as they are printed
    printed = re.sub(r", [\d.]+ s( on \d+ threads?)?, specsim [\w.]+", "", printed)
    printed = re.sub(r" in [\d.]+ s, [\d,]+ tokens/s; judged in [\d.]+ s", "", printed)
    printed = "\n".join(line.rstrip() for line in printed.splitlines())
    site = str(Path(specsim.__file__).parent)
    return f"specsim {line}", found.code, document, printed.replace(site, "specsim").replace(folder, ".")


def _numbers(value, sentences, key=""):
    """`value` without what is volatile, its sentences gone to the keys of `sentences`, long lists made
    short."""
    if isinstance(value, dict):
        if key == "provenance":
            return {"root": value["root"]}
        return {k: _numbers(v, sentences, k) for k, v in value.items() if k not in VOLATILE}
    if isinstance(value, str):
        if (
            key in NAMES
            or (key == "name" and re.fullmatch(r"[\w:=.,-]+", value))
            or re.fullmatch(r"[\d.]+%?", value)
        ):
            return value
        sentences[value] = None
        return "(text)"
    if isinstance(value, list):
        return _items(value, sentences, key)
    return value


def _items(values, sentences, key):
    """The same of a list: numbers as their sums, with a digest of integers; names counted; tables as their
    columns."""
    if key == "tables" and values:
        columns = {name: [table[name] for table in values] for name in values[0]}
        return {"tables": len(values)} | {k: _items(column, sentences, k) for k, column in columns.items()}
    if len(values) <= LONGEST:
        return [_numbers(item, sentences, key) for item in values]
    kinds = {type(item) for item in values} - {type(None)}
    if kinds == {int}:
        digest = hashlib.sha256(json.dumps(values).encode()).hexdigest()[:16]
        return {"integers": len(values), "sum": sum(filter(None, values)), "sha256": digest}
    if kinds <= {int, float}:
        weighted = [i * item for i, item in enumerate(values, 1) if item is not None]
        return {
            "numbers": len(weighted),
            "sum": math.fsum(filter(None, values)),
            "weighted": math.fsum(weighted),
        }
    if kinds == {list}:
        lengths = _items([*map(len, values)], sentences, key)
        return {"lengths": lengths, "joined": _items([*chain.from_iterable(values)], sentences, key)}
    kept = [_numbers(item, sentences, key) for item in values]
    return dict(Counter(map(str, kept))) if kinds <= {str, bool} else kept


def help_text():
    """The help of `specsim`, and of all its commands."""
    return "\n".join(
        f"$ {' '.join(('specsim', *path))} --help\n{help_of(path)}" for path in sorted(every_command())
    )


def public_names():
    """The names of each public module; of functions and classes with the names of their parameters."""
    found = {}
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        found[module_name] = {name: _parameters(getattr(module, name)) for name in sorted(module.__all__)}
    return found


def _parameters(value):
    if isinstance(value, type) and issubclass(value, Enum):
        return [member.value for member in value]
    exception = isinstance(value, type) and issubclass(value, Exception)
    if exception or not callable(value) or not getattr(value, "__module__", "").startswith("specsim"):
        return type(value).__name__
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    told, keywords = [], False
    for parameter in inspect.signature(value).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not keywords:
            told.append("*")
        keywords |= parameter.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL)
        optional = "" if parameter.default is inspect.Parameter.empty else "="
        told.append(marks.get(parameter.kind, "") + parameter.name + optional)
    return f"({', '.join(told)})"


# --- kept ---------------------------------------------------------------------------------------------------


def read(file):
    """A golden: a text, or the document of a JSON file; None where there is none yet."""
    path = GOLDENS / file
    if not path.exists():
        return None
    text = path.read_text(encoding="utf-8")
    return json.loads(text) if path.suffix == ".json" else text


def differences(kept, now, at=""):
    """Where two documents differ, a line each: floats by more than 1e-9 of their size, all else at all.

    >>> list(differences({"a": [1, 2.0]}, {"a": [1, 2.0 + 1e-12]}))
    []
    >>> list(differences({"a": [1, 2.0], "b": 1}, {"a": [2, 2.1], "c": 1}))
    ['/a/0: 1, now 2', '/a/1: 2.0, now 2.1', '/b: gone', '/c: new']"""
    if isinstance(kept, dict) and isinstance(now, dict):
        for key in [*kept, *(key for key in now if key not in kept)]:
            if key not in now:
                yield f"{at}/{key}: gone"
            elif key not in kept:
                yield f"{at}/{key}: new"
            else:
                yield from differences(kept[key], now[key], f"{at}/{key}")
    elif isinstance(kept, list) and isinstance(now, list):
        if len(kept) != len(now):
            yield f"{at}: {len(kept)} items, now {len(now)}"
        for i, (one, other) in enumerate(zip(kept, now, strict=False)):
            yield from differences(one, other, f"{at}/{i}")
    elif type(kept) is type(now) is float:
        if not math.isclose(kept, now, rel_tol=1e-9):
            yield f"{at}: {kept}, now {now}"
    elif type(kept) is not type(now) or kept != now:
        yield f"{at}: {kept!r}, now {now!r}"
    elif isinstance(kept, str) and "\n" in kept:
        raise TypeError(f"{at}: texts of several lines are compared line by line")


def changed(file, kept, now):
    """What changed in a golden, line by line."""
    if isinstance(now, str):
        lines = difflib.unified_diff(
            (kept or "").splitlines(), now.splitlines(), "kept", "now", "", "", 1, ""
        )
        return list(lines)
    return list(differences(kept or type(now)(), now))


def write(file, now):
    """Write a golden unless it is as before, and print what changed."""
    lines = changed(file, read(file), now)
    if not lines and read(file) is not None:
        return
    print(f"{file}: {len(lines)} changes")
    print(*(f"    {line}" for line in lines[:40]), *(["    …"] if len(lines) > 40 else []), sep="\n")
    text = now if isinstance(now, str) else _dumped(now) + "\n"
    (GOLDENS / file).write_text(text, encoding="utf-8")


def _dumped(value, indent=""):
    """JSON with what is short on one line."""
    flat = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if len(flat) + len(indent) <= 110 or not isinstance(value, (dict, list)):
        return flat
    inner = indent + " "
    if isinstance(value, dict):
        items = [
            f"{json.dumps(key, ensure_ascii=False)}: {_dumped(item, inner)}" for key, item in value.items()
        ]
        return "{\n" + ",\n".join(inner + item for item in items) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + _dumped(item, inner) for item in value) + f"\n{indent}]"


def main(*names):
    if Path(specsim.__file__).parents[1] != GOLDENS.parents[1]:
        sys.exit(
            f"specsim is imported from {specsim.__file__}, not from beside tests/; set PYTHONPATH to the repository"
        )
    GOLDENS.mkdir(exist_ok=True)
    for name in names or [*RUNS, "help", "names"]:
        if name == "help":
            write("help.txt", help_text())
        elif name == "names":
            write("names.json", public_names())
        else:
            documents, text = made(name)
            write(f"{name}.json", documents)
            write(f"{name}.txt", text)
    if not names:
        for path in sorted(GOLDENS.iterdir()):
            if path.name not in FILES:
                print(f"{path.name}: gone")
                path.unlink()


if __name__ == "__main__":
    import write_goldens  # under its own name, which the audit of a function of this file prints

    write_goldens.main(*sys.argv[1:])
