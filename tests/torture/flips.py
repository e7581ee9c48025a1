"""Files of every kind that specsim reads, with one bit flipped.

Of its own files the result must be the same, or the damage named. Files of others, such as logs, have no
checksum: with one letter changed they say something else, so only how the reading ends is judged."""

import json
import random
import shutil
from pathlib import Path

import numpy as np
from blocks import TRACEBACK, WRONG, in_blocks
from calls import P, Q, make_things
from command_lines import make_cases, smaller_audits
from judging import answer_of

import specsim
from specsim import audit_engine, engines, open_planted, traces
from specsim.auditing import audit_shard
from specsim.auditing._offline import score
from specsim.cli._engine import prompts_of
from specsim.decoding._recording.huggingface import read_prompts
from specsim.engines._audit.run import TEXTS
from specsim.models._trained_pairs import load_pair
from specsim.simulation._result import Simulation


def _counts(run):
    return run.lengths.tolist(), run.tokens.tolist(), run.alpha_context, run.provenance.root


def _cases(audit):
    return [
        (case.case, str(case.verdict), case.steps, [table.log10_e for table in case.tables])
        for case in audit.cases
    ]


def _merged(path):
    found = specsim.merge([path])
    return _counts(found) if isinstance(found, Simulation) else _cases(found)


def _pair_of(path):
    target, draft = load_pair(path)
    contexts = target.contexts[:5]
    return [target.provenance, draft.provenance, target.contexts.tolist()] + [
        model.rows(contexts[:, contexts.shape[1] - model.order :]).tolist() for model in (target, draft)
    ]


def _trace_of(path):
    folder = Path(path).parent
    found = specsim.open_trace(folder)
    assert all(shard.ok for shard in found.verify()), "a shard is damaged"
    told = traces.summarise(found).to_dict()
    return {
        name: value for name, value in told.items() if name not in ("provenance", "seconds")
    }, found.provenance


def _planted_of(path):
    pair = open_planted(next(folder for folder in Path(path).parents if (folder / "planted.json").exists()))
    for which in ("target", "draft"):
        pair.checkpoint(which, "hf")
    return pair.to_dict(), pair.target.rows([[0], [1]]).tolist(), engines.check(pair.folder, rng=0).exit_code


def _engine_of(path):
    found = audit_engine("specsim", open_planted("pair"), tokens=300, rng=1, out=Path(path).parent)
    return {name: value for name, value in found.to_dict().items() if name not in TIMES}


def _imported(path):
    shutil.rmtree("imported", ignore_errors=True)
    traces.import_trace(path, "imported", draft=path if str(path).endswith("jsonl") else None)


#: What a result has of the run, which another one does not repeat.
TIMES = ("seconds", "judging", "provenance")
#: A kind of file: its name, the path to be changed, what reads it, and whether it has a checksum.
KINDS = [
    ("checkpoint", "run.part", _merged, True),
    ("audit shard", "audit.part", _merged, True),
    ("n-gram models", "models.npz", _pair_of, True),
    ("trace shard", "trace/shard-00000.safetensors", _trace_of, True),
    ("trace manifest", "trace/manifest.json", _trace_of, True),
    ("truncated shard", "truncated/shard-00000.safetensors", _trace_of, True),
    ("planted.json", "pair/planted.json", _planted_of, True),
    ("planted laws", "pair/law.npz", _planted_of, True),
    ("planted weights", "pair/target/model.safetensors", _planted_of, True),
    ("planted tokenizer", "pair/draft/tokenizer.json", _planted_of, True),
    ("engine texts", f"engine/{TEXTS}", _engine_of, True),
    ("exported cases", "cases/manifest.json", lambda path: _cases(score(Path(path).parent, "answers")), True),
    ("answers", "answers/*", lambda path: score("cases", Path(path).parent).verdict, False),
    ("prompts", "prompts.txt", prompts_of, False),
    ("prompts, JSON", "prompts.jsonl", read_prompts, False),
    ("served responses", "served.jsonl", lambda path: specsim.audit_served(path, rng=1), False),
    ("logged metrics", "responses.jsonl", specsim.read_acceptance, False),
    ("counters", "counters.txt", specsim.read_acceptance, False),
    ("log .npz", "log.npz", _imported, False),
    ("log .safetensors", "log.safetensors", _imported, False),
    ("log .parquet", "log.parquet", _imported, False),
    ("log .jsonl", "log.jsonl", _imported, False),
]


def make_files():
    """A sound file of every kind in this folder."""
    import pyarrow as pa
    from pyarrow import parquet
    from safetensors.numpy import save_file

    make_things()
    make_cases()
    audit_shard("standard", "audit.part", (0, 1), "smoke", rng=1, threads=1)
    audit_engine("specsim", open_planted("pair"), tokens=300, rng=1, out="engine")
    rows = np.tile(P, (4, 3, 1)), np.tile(Q, (4, 3, 1))
    with traces.writer("truncated", vocab_size=3, gamma=1, top=2) as log:
        for number in range(4):
            log.append(number, [0], 1, [([0, 1], [0.5, 0.3])] * 2, [([0, 2], [0.2, 0.5])] * 2)
    columns = {"draft_tokens": np.array([[0, 1]] * 4), "p": rows[0], "q": rows[1]}
    save_file(columns, "log.safetensors")
    parquet.write_table(pa.table({name: array.tolist() for name, array in columns.items()}), "log.parquet")
    Path("prompts.txt").write_text("a b\nb a\n" * 5)
    Path("prompts.jsonl").write_text('{"prompt": "a b"}\n' * 5)
    shutil.copy("served.jsonl", "log.jsonl")
    Path("counters.txt").write_text(
        "vllm:spec_decode_num_drafts_total 10\nvllm:spec_decode_num_draft_tokens_total 20\n"
        "vllm:spec_decode_num_accepted_tokens_total 12\n"
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 8\n'
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 4\n'
    )


def run_flips(number, seed):
    """A tally for each kind of file, of `number` flipped bits."""
    smaller_audits()
    for kind in KINDS:
        yield _run_kind(kind, number, seed)


def _run_kind(kind, number, seed):
    name, pattern, read, checked = kind
    rng, right = random.Random(f"{seed} {name}"), []
    tasks = [(rng.random(), rng.randrange(8)) for _ in range(number)]

    def prepare():
        make_files()
        path = next(iter(sorted(Path().glob(pattern))))
        right[:] = [path, path.read_bytes(), _plain(read(path)) if checked else read(path)]

    def act(task):
        path, content, expected = right
        where, bit = task
        place = int(where * len(content))
        damaged = bytearray(content)
        damaged[place] ^= 1 << bit
        path.write_bytes(damaged)
        try:
            found = read(path)
        except AssertionError:
            return "noticed", None
        except Exception as error:
            fault = answer_of(error)
            return ("noticed", None) if fault is None else ("accident", (TRACEBACK, f"byte {place}: {fault}"))
        finally:
            path.write_bytes(content)
        if not checked:
            return "read", None
        if _plain(found) != expected:
            return "read", (WRONG, f"byte {place}: another result")
        return "same result", None

    return in_blocks(name, tasks, act, lambda task: f"{pattern}, bit {task[1]}", prepare)


def _plain(found):
    """A result as text, in which no time of day is."""
    return json.dumps(found, default=str, sort_keys=True)
