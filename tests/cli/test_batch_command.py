"""`specsim simulate-batch`: files of one's own, options that contradict each other, errors in one line."""

import json

import pytest
from commands import says

SMALL = ("--requests", "400", "--replications", "2", "--seed", "1")


def test_measured_passes_and_logged_requests_are_read(tmp_path):
    """A pass of 5 ms + 0.1 ms for each token; two requests a second, of 3 tokens each, one at a time."""
    rows = [(b, b * k, 5 + 0.1 * b * k) for b in (1, 4, 9) for k in (1, 3, 5)]
    (tmp_path / "passes.csv").write_text("batch,tokens,ms\n" + "".join(f"{b},{t},{m}\n" for b, t, m in rows))
    (tmp_path / "log.csv").write_text(
        "arrival,prompt,output\n" + "".join(f"{i / 2},1,3\n" for i in range(30))
    )
    words = "--measured passes.csv,1 --log log.csv --max-batch 1 --policy none --no-prefill --seed 1"
    document = json.loads(says("{", "simulate-batch", *words.split(), "--json", cwd=tmp_path))
    assert (document["load"], document["requests"]) == ("steady", 30)
    assert document["estimates"]["latency_p99"]["mean"] == pytest.approx(3 * 5.1e-3)


def test_a_sweep_is_a_table_and_a_picture(tmp_path):
    words = ("simulate-batch", "--over", "output=8,geometric:8", *SMALL, "-o", "gain.svg", "--csv")
    head, *lines = says("\n", *words, cwd=tmp_path).splitlines()
    assert head.startswith("output,speedup,speedup_low,speedup_high,capacity_gain")
    assert [line.split(",")[0] for line in lines] == ["8", "geometric:8"]
    assert (tmp_path / "gain.svg").read_text().startswith("<?xml")
