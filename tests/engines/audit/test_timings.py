"""Times that a server reports: those that add up, those between answers, and those of other requests."""

import pytest
from commands import run, says
from listening import listening

from specsim import audit_engine, plant
from specsim.engines import Completion
from specsim.engines._audit.speeds import plan_audited
from specsim.engines._audit.store import TextStore
from specsim.engines._audit.timings import about_times
from specsim.engines._clients.answers import read_counters
from specsim.engines._server.decoding import Decoder
from specsim.engines._server.http import Handler, Server

#: Each of 100 texts has 64 tokens after its first one.
TEXTS = [Completion(number, 0, (0,) * 65) for number in range(100)]


def histograms(intervals, between, *, name="inter_token_latency", latency=None, texts=100, first=20.0):
    """The series of `texts` texts and as many intervals, in ms, which add up but for another `latency`."""
    whole = first + intervals * between / texts if latency is None else latency
    times = (
        ("time_to_first_token", texts, first),
        (name, intervals, between),
        ("e2e_request_latency", texts, whole),
    )
    return "".join(
        f'vllm:{kind}_seconds_bucket{{le="+Inf"}} {number}\nvllm:{kind}_seconds_count{{engine="0"}} {number}\n'
        f'vllm:{kind}_seconds_sum{{engine="0"}} {number * each / 1e3}\n'
        for kind, number, each in times
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (histograms(6400, 10.0), []),
        (histograms(6400, 10.0, name="time_per_output_token"), []),
        (histograms(6400, 10.0, latency=655.0), []),  # what follows the last token takes time too
        (histograms(2200, 30.0), ["2,200 intervals of 30 ms, and 6,400 tokens of 10.312 ms"]),
        (histograms(6400, 10.0, latency=300.0), ["(latency − TTFT) / TPOT fails, 6,400 against"]),
        (histograms(2200, 30.0, latency=3000.0), ["is that between answers", "contradict each other"]),
        (histograms(7000, 10.0), ["are not used: they count 100 texts and 7,000 intervals"]),
        (histograms(6400, 10.0, texts=101), ["are not used: they count 101 texts"]),
        (histograms(6400, 10.0).replace("e2e", "other"), []),
        (histograms(0, 0.0), []),
        ("vllm:spec_decode_num_draft_tokens_total 7\n", []),
    ],
)
def test_times_add_up_over_all_texts(given, said):
    found = [*about_times(TEXTS, read_counters(given))]
    assert len(found) == len(said)
    assert all(part in one for part, one in zip(said, found, strict=True))


class Timed(Handler):
    """Reports an interval of 12 ms for each step after the first one of a text."""

    def _metrics(self):
        texts, steps = self.server.batching._numbers, self.server.batching.decoder.totals["steps"]
        return super()._metrics() + histograms(steps - texts, 12.0, texts=texts) * (texts > 0)


def test_a_server_that_counts_answers_as_tokens_is_told_so(tmp_path):
    pair = plant(tmp_path / "pair", vocab_size=6, context=160, rng=1)
    server = Server(Decoder(pair), port=0)
    server.RequestHandlerClass = Timed
    with listening(server) as url:
        audit_engine(url, pair, tokens=100, rng=2)  # others were served before
        found = audit_engine(url, pair, tokens=2_000, rng=1)
    (note,) = [one for one in found.notes if "latency between tokens" in one]
    assert "intervals of 12 ms" in note
    assert (found.verdict.value, found.exit_code) != ("biased", 1)


def test_an_audit_says_what_a_step_takes_and_a_matrix_where_it_breaks_even(tmp_path):
    """Ten texts of 24 tokens in eight steps; a slow one changes no median."""

    def keep(file, time, **told):
        file.parent.mkdir(parents=True, exist_ok=True)
        texts = (Completion(i, 0, (0,) * 24, seconds=time * (1 + (i == 9)), **told) for i in range(10))
        list(TextStore(file, {}).add(texts))
        return file

    keep(tmp_path / "texts.jsonl", 0.16, drafted=32, accepted=16)
    said = run("plan", "--from", tmp_path).out
    assert said.startswith("a step of γ = 4 takes 20 (20 – 20) ms and emits 3 (3 – 3) tokens\n")
    says("no picture of a single audit", "plan", "--from", tmp_path, "-o", tmp_path / "a.png", code=2)
    keep(tmp_path / "speculative/plain.jsonl", 0.16, drafted=32, accepted=14, steps=8)
    plain = keep(tmp_path / "plain/plain.jsonl", 0.24)
    (choice,) = plan_audited(tmp_path).choices
    found = choice.cost, choice.break_even, choice.tokens_per_step, choice.speedup
    assert [float(one[0]) for one in found] == pytest.approx([2.0, 0.25, 3.0, 1.5])
    plain.rename(tmp_path / "plain/texts.jsonl")
    says("0 requests with seconds and steps; audit an", "plan", "--from", plain.parent, code=2)
