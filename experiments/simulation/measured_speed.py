"""Measured speed-ups of two small transformers on one core, beside Theorem 3.8.

kept/recording is a trace of the pair that tests/engines/installed/test_recording_hf.py trains, with the
seconds of all passes: `specsim trace record recording --target target --draft draft --prompts prompts.txt
--gamma 5 --max-new-tokens 60 --top 1 --seed 1`. The speed-up of γ is the tokens per step over the cost of a
step, in median passes of the target over one token, with 95 % intervals over texts; `formula` is
(1 - α^{γ+1})/((1 - α)(γc + 1)) (Leviathan et al., arXiv 2211.17192, Thm 3.8) with the α and c of the
recording.
"""

from experiments import ROOT, Progress, Row
from specsim import open_trace
from specsim.planning._measured import plan_recorded

TITLE = "Measured speed-ups of a recording, and by the formula with its α and c"


def run(*, fast: bool, rng: int, progress: Progress | None) -> list[Row]:
    """A row for each γ."""
    found = plan_recorded(open_trace(ROOT / "experiments/kept/recording"), rng)
    return [row | {"formula": one} for row, one in zip(found.records(), found.formula, strict=True)]
