"""Audit engines that are not written in Python: export cases as safetensors files, score the engine's tokens.

`export` writes one file for each case, and `manifest.json`:

    draft_tokens  int64 [N, γ]
    p             [N, γ+1, V], or [γ+1, V] if all steps share it
    q             [N, γ, V], or [γ, V]
    lengths       int64 [N], only in the case of uneven lengths

The engine verifies every step and writes, to a file of the same name in another folder, the integer tensor
`tokens` [N, γ+1], padded with -1. `score` judges the tokens as an audit does, with p and q drawn again from
the seed."""

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.adapters._contract import BrokenVerifier, Declared
from specsim.auditing._cases.battery import BITS, Case, battery, case_key
from specsim.auditing._cases.rows import CaseRows, rows_of
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._checks.counts import AuditTally
from specsim.auditing._checks.subjects import verifier_steps
from specsim.auditing._checks.tables import plan_case
from specsim.auditing._report.audit import Audit
from specsim.auditing._results.audit import BUDGET, CaseResult
from specsim.auditing._runner import check_limits
from specsim.auditing._schedule import CaseRun, run_case
from specsim.auditing._verifier.arrays import as_tokens, read_tokens
from specsim.core._files import check_new_folder, make_folder, write_text
from specsim.core._json import read_sealed, rebuilding, sealed
from specsim.core._progress import ShowProgress, shows_progress, told
from specsim.core._provenance import Provenance, specsim_version
from specsim.core._streams import Key, RandomSource, root_of
from specsim.core._tensors import read_tensors, save_tensors
from specsim.core._types import Ints, TokenArray
from specsim.simulation._rows import Rows, pieces
from specsim.simulation._sources import RowSource

MANIFEST, FORMAT = "manifest.json", "specsim audit cases"
#: Version 1 had no SHA-256 of the manifest.
VERSION = 2
#: What the rows of a file may be.
DTYPES = tuple(dtype for dtype in BITS if dtype != "bfloat16")
#: Bytes of rows in one file.
FILE_BYTES = 2**26
#: Drafts at the start of a case whose digest `score` checks.
FIRST_DRAFTS = 64
#: What must be as it was when a case was exported.
CASE_FIELDS = ("file", "name", "steps", "drafts")


def export(
    folder: str | Path,
    level: str = "smoke",
    *,
    rng: RandomSource = None,
    dtype: str = "float32",
    lengths: bool = False,
) -> Path:
    """Write the cases of `level`, with rows of `dtype`, to `folder`, which must be new or empty; return the
    path of the manifest. With `lengths` one case has drafts of different lengths."""
    check_limits(level)
    if dtype == "bfloat16":
        raise ValueError("dtype: bfloat16 cannot be written from NumPy; float32 holds its values exactly")
    if dtype not in DTYPES:
        raise ValueError(f"dtype: {dtype!r} cannot be written; choose from {', '.join(DTYPES)}")
    declared, root = Declared(dtypes=(dtype,), lengths=lengths), root_of(rng)
    check_new_folder(folder)
    path = make_folder(folder)
    document = {
        "format": FORMAT,
        "version": VERSION,
        "specsim": specsim_version(),
        "level": level,
        "root": root,
        "dtype": dtype,
        "lengths": lengths,
        "cases": [_write(path, i, case, level, root) for i, case in enumerate(battery(declared))],
    }
    write_text(path / MANIFEST, json.dumps(sealed(document), indent=1))
    return path / MANIFEST


@shows_progress("score", " cases")
def score(
    folder: str | Path, tokens: str | Path, *, name: str = "tokens", progress: ShowProgress = None
) -> Audit:
    """Judge the tokens in folder `tokens`, one file for each case that `export` wrote to `folder`.

    A case whose file is missing, unreadable or breaks the contract is `broken`. Raises ValueError if `tokens`
    is not a folder, or `folder` is not an export of a compatible version."""
    tell, started, path = told(progress), time.perf_counter(), Path(folder) / MANIFEST
    if not path.is_file():
        raise ValueError(f"{path}: there is no such file; give the folder that export wrote")
    document = read_sealed(path, FORMAT, VERSION, "export again")
    if not Path(tokens).is_dir():
        raise ValueError(f"{tokens}: there is no such folder; give the one with the engine's tokens")
    with rebuilding(path, "export again"):
        declared = Declared(dtypes=(document["dtype"],), lengths=document["lengths"])
        cases, plans = {case.name: case for case in battery(declared)}, []
        for entry in document["cases"]:
            case = cases.get(entry["name"])
            about = case and _about(list(cases).index(case.name), case, document["level"], document["root"])
            if not case or not about or any(entry[field] != about[field] for field in CASE_FIELDS):
                raise ValueError(
                    f"{path}: specsim {document['specsim']} made the case {entry['name']!r} differently from "
                    f"{specsim_version()}; export again"
                )
            tally = AuditTally(case, Claim(None, case.tree))
            plans.append(plan_case(tally, "rows", entry["steps"], rows_of(case).alpha_context()))
        listed = [plan.case.name for plan in plans]
        if not listed or len(set(listed)) < len(listed):
            raise ValueError("no case is listed, or one twice")
    tests = sum(plan.tests for plan in plans)
    results: list[CaseResult] = []
    for entry, plan in zip(document["cases"], plans, strict=True):
        run = CaseRun(plan, document["root"], BUDGET / tests, extends=False)
        try:
            found = _read(Path(tokens) / entry["file"], (plan.steps, plan.case.positions))
            stored: Any = _Stored(cases[entry["name"]], found)
            run_case(stored, run)
        except BrokenVerifier as error:
            run.fail(error)
        results.append(run.result())
        if run.interrupted:
            break
        tell(len(results), len(plans))
    return Audit(
        verifier=name,
        level=document["level"],
        cases=tuple(results),
        proof=None,
        budget=BUDGET,
        tests=tests,
        interrupted=results[-1].interrupted,
        provenance=Provenance.record(document["root"], 1, time.perf_counter() - started),
        planned=len(plans),
        left_out=tuple(name for name in cases if name not in listed),
    )


def _write(folder: Path, index: int, case: Case, level: str, root: int) -> dict[str, Any]:
    steps, key = _steps(case, level), case_key(root, case.name)
    rows = rows_of(case).rows(key, 0, steps if _own_rows(case) else 1)
    arrays = {"draft_tokens": _drafts(case, key, steps)}
    for name, array in (("p", rows.p), ("q", rows.q)):
        own = array if _own_rows(case) else array[0]
        arrays[name] = own.astype(np.dtype(case.dtype), copy=False)
    if case.uneven and isinstance(rows, CaseRows) and rows.lengths is not None:
        arrays["lengths"] = rows.lengths
    about = _about(index, case, level, root)
    save_tensors(folder / about["file"], arrays)
    return about


def _about(index: int, case: Case, level: str, root: int) -> dict[str, Any]:
    steps = _steps(case, level)
    drafts = _drafts(case, case_key(root, case.name), min(steps, FIRST_DRAFTS))
    return {
        "file": f"{index:02d}-{case.name.replace(' ', '-')}.safetensors",
        "name": case.name,
        "purpose": case.purpose,
        "steps": steps,
        "gamma": case.gamma,
        "vocab_size": case.target.vocab_size,
        "drafts": hashlib.sha256(np.ascontiguousarray(drafts, dtype="<i8").tobytes()).hexdigest()[:16],
    }


def _steps(case: Case, level: str) -> int:
    steps = verifier_steps(case, level)
    return min(steps, max(8, FILE_BYTES // case.step_bytes)) if _own_rows(case) else steps


def _own_rows(case: Case) -> bool:
    return case.rotated or not case.is_pair


def _drafts(case: Case, key: Key, steps: int) -> Ints:
    """The drafted tokens [steps, γ], drawn in pieces to limit memory."""
    reader = rows_of(case)
    return np.concatenate([reader.rows(key, *piece).draft_tokens for piece in pieces(0, steps, 256)])


def _read(path: Path, shape: tuple[int, int]) -> NDArray[Any]:
    try:
        found, _ = read_tensors(path)
    except (OSError, ValueError) as error:
        raise BrokenVerifier(f"{path.name}: cannot be read ({error})") from error
    if "tokens" not in found:
        raise BrokenVerifier(f"{path.name}: has no tensor named tokens, but {', '.join(found) or 'nothing'}")
    return as_tokens(found["tokens"], shape)


@dataclass(frozen=True)
class _Stored:
    """A subject whose tokens are stored."""

    case: Case
    tokens: NDArray[Any]
    threads = 1

    def counter(self, name: str, patience: float) -> tuple[RowSource, AuditTally]:
        tally = AuditTally(self.case, Claim(None, self.case.tree))
        return RowSource(rows_of(self.case), self._stored_tokens), tally

    def _stored_tokens(self, rows: Rows, key: Key, first: int) -> tuple[TokenArray, Ints]:
        tokens = self.tokens[first : first + len(rows.draft_tokens)].astype(np.int64)
        lengths = rows.lengths if isinstance(rows, CaseRows) else None
        return read_tokens([tokens], rows.draft_tokens, lengths, rows.p.shape[2], first)
