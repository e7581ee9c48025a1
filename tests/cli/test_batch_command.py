"""`specsim simulate-batch`: files of one's own, options that contradict each other, errors in one line."""

import json

import pytest
from commands import run

SMALL = ("--requests", "400", "--replications", "2", "--seed", "1")


def test_measured_passes_and_logged_requests_are_read(tmp_path):
    """A pass of 5 ms + 0.1 ms for each token; two requests a second, of 3 tokens each, one at a time."""
    rows = [(b, b * k, 5 + 0.1 * b * k) for b in (1, 4, 9) for k in (1, 3, 5)]
    (tmp_path / "passes.csv").write_text("batch,tokens,ms\n" + "".join(f"{b},{t},{m}\n" for b, t, m in rows))
    (tmp_path / "log.csv").write_text(
        "arrival,prompt,output\n" + "".join(f"{i / 2},1,3\n" for i in range(30))
    )
    words = "--measured passes.csv,1 --log log.csv --max-batch 1 --policy none --no-prefill --seed 1"
    found = run("simulate-batch", *words.split(), "--json", cwd=tmp_path)
    assert found.code == 0, found.err
    document = json.loads(found.out)
    assert (document["load"], document["requests"]) == ("steady", 30)
    assert document["estimates"]["latency_p99"]["mean"] == pytest.approx(3 * 5.1e-3)


def test_accepted_lengths_come_from_the_log_of_an_engine(tmp_path):
    (tmp_path / "log.jsonl").write_text(
        '{"acceptance_histogram": [10, 0, 30]}\n{"acceptance_histogram": [20, 0, 40]}\n'
    )
    words = ("simulate-batch", "--policy", "constant:gamma=2", *SMALL, "--json")
    by_file, by_counts = (
        json.loads(run(*words, "--lengths", one, cwd=tmp_path).out) for one in ("log.jsonl", "30,0,70")
    )
    assert by_file["values"] == by_counts["values"]
    assert 2.2 < by_file["estimates"]["tokens_per_pass"]["mean"] < 2.4  # 1 + 1.4, less at ends of texts


def test_a_sweep_is_a_table_and_a_picture(tmp_path):
    words = ("simulate-batch", "--over", "output=8,geometric:8", *SMALL, "-o", "gain.svg", "--csv")
    found = run(*words, cwd=tmp_path)
    assert found.code == 0, found.err
    assert found.out.splitlines()[0].startswith("output,speedup,speedup_low,speedup_high,capacity_gain")
    assert [line.split(",")[0] for line in found.out.splitlines()[1:]] == ["8", "geometric:8"]
    assert (tmp_path / "gain.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--rate 0", "--rate: 0 requests per second never arrive"),
        ("--rate nan", "--rate: nan is outside"),
        ("--alpha 120%", "--alpha: 1.2 is outside [0, 1]"),
        ("--alpha 0.5,x", "--alpha: 'x' is not a number"),
        ("--alpha beta:0.5", "--alpha: 'beta:0.5' is not of the form beta:MEAN,DEVIATION"),
        ("--alpha beta:1.5,0.1", "--alpha: 1.5 is outside [0, 1]"),
        ("--lengths 1,2 --alpha 0.5", "--alpha has no effect with --lengths"),
        ("--lengths 1,2", "alpha: the log has drafts of 1, the policy of 4"),
        ("--lengths no.jsonl", "--lengths: 'no.jsonl' is not a whole number"),
        ("--prompt uniform:3", "--prompt: 'uniform:3' is neither"),
        ("--output geometric:0", "--output: mean: 0.0 is outside"),
        ("--policy constant:gamma=-1", "--policy: 'constant:gamma=-1': gamma: -1 is not at least 0"),
        ("--policy gooput", "unknown policy 'gooput'; did you mean 'goodput'?"),
        ("--preset x", "unknown preset 'x'"),
        ("--measured no.csv", "--measured: the draft's milliseconds are missing; add them, as in no.csv,2"),
        ("--measured no.csv,1", "no.csv: no such file; check the path"),
        ("--measured no.csv,nan", "--measured: nan is not a time in ms"),
        ("--log no.csv", "no.csv: no such file; check the path"),
        ("--over rate", "--over: 'rate' is not of the form"),
        ("--over gamma=1,2", "unknown setting 'gamma'"),
        ("--log log.csv --over prompt=3", "--over: prompt has no effect on a log, which has the requests"),
        ("--log log.csv --over output=3", "--over: output has no effect on a log, which has the requests"),
        ("--over rate=1 --over rate=2", "give each setting once"),
        ("--over max_batch=1.5", "--over: '1.5' is not a whole number"),
        ("--max-batch 500", "requests: 2,000 are too few for batches of 500; give at least 5,000"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(words, message, tmp_path):
    (tmp_path / "log.csv").write_text("arrival,prompt,output\n0,5,9\n1,4,3\n")
    found = run("simulate-batch", *words.split(), cwd=tmp_path)
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("specsim: ")
    assert found.err.count("\n") == 1
    assert message in found.err
