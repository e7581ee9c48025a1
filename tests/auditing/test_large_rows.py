"""The tokens of cases of many ids under known mistakes, and names that small cases cannot give."""

from dataclasses import replace

import numpy as np
import pytest
from conftest import FALSE_ALARM
from test_server_shapes import SERVER, in_calls_of_a_server, judged

from specsim import mistakes
from specsim.auditing._cases.shapes import KINDS, ShapesCase
from specsim.auditing._checks.subjects import VerifierSubject
from specsim.auditing._diagnosis import large, verifiers
from specsim.auditing._diagnosis.likelihood import fit
from specsim.auditing._diagnosis.posterior import Limits, score
from specsim.auditing._diagnosis.reproduction import Audited
from specsim.auditing._verifier.local import Local
from specsim.mistakes._rows import PARTS
from specsim.simulation._counting import run

#: Values with which a mistake shows over a hundred ids.
VISIBLE = {
    "ratio_epsilon": "epsilon=0.02", "clamped_draft": "epsilon=0.02", "residual_epsilon": "epsilon=0.01",
    "coarse_test": "bits=1", "coarse_draw": "bits=4", "floored_race": "bits=2.5", "race_epsilon": "bits=2.5",
    "rounded_ids": "bits=2", "wrapped_ids": "bits=5", "last_tile_never": "size=64",
    "tiles_share_noise": "size=32", "likeliest_only": "k=8",
}  # fmt: skip
#: Too near the right law for so few ids.
FAINT = "float16_ratio", "bfloat16_ratio", "last_id_never"
CASE = ShapesCase("many", "", (100,), (1, 3), ((4, 150), (8, 75)))


def seen_of(function, steps=8 * CASE.round_steps):
    subject = VerifierSubject("own", Local(function))
    subject.cases = [CASE]  # a cached property
    source, tally = subject.counter(CASE.name)
    key = large.case_key(1, CASE.name)
    counts = run(source, tally, key, 0, steps, threads=1).counts
    begin = tally.axes.first("kind of row")
    images = counts["images"][begin : begin + len(KINDS)]
    return [
        large.Seen(CASE.name, CASE, order, images[:, order], list(large._steps(CASE, key, steps)))
        for order in range(len(CASE.orders))
    ]


@pytest.mark.parametrize("name", PARTS)
def test_tokens_have_the_law_of_the_mistakes_parts_and_no_other(name):
    mistake = mistakes.get(":".join([name, VISIBLE[name]]) if name in VISIBLE else name)
    seen = seen_of(mistake.function)
    assert min(fit(one.under(mistake)) for one in seen) > FALSE_ALARM
    assert name in FAINT or min(fit(one.right) for one in seen) < FALSE_ALARM


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant", ["likeliest_only:k=1024", "last_tile_never:size=4096", "ratio_epsilon:epsilon=1e-5"]
)
def test_a_mistake_of_many_ids_is_named(variant):
    name, _, value = variant.partition(":")
    wrong = in_calls_of_a_server(name, **{key: float(number) for key, number in [value.split("=")]})
    result = judged(wrong, SERVER, 2)
    subject = VerifierSubject("own", Local(wrong))
    audited = Audited(subject, [replace(result, planned=2 * result.steps)], "quick", 1, Limits())
    found = verifiers._in_large_rows(mistakes.catalogue(), audited)
    assert found is not None
    assert found.named[0].name.partition(":")[0] == name


def test_a_right_verifier_fits_no_mistake_of_many_ids():
    def right(draft_tokens, p, q, rng):
        return mistakes._reference.verify(draft_tokens, p, q, rng)

    seen = seen_of(right)[0]
    exact = score(verifiers.EXACT[0], seen.right, large.TOLD)
    for name in PARTS:
        assert large.score(mistakes.get(name), seen).log_likelihood < exact.log_likelihood + np.log(20)
