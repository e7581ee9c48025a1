"""What results show in Jupyter: their numbers, in tables, and nothing that a name could break."""

import dataclasses
import io
import sys
from fractions import Fraction
from html.parser import HTMLParser

import numpy as np
import pytest
from matplotlib.figure import Figure
from rich.console import Console

import specsim
from specsim.core._tables import Line, Listing, Table, as_dict, bars, plain, to_rich
from specsim.models import TableModel
from specsim.planning import Constant, Oracle
from specsim.planning._plan import Candidate, plan, rank_drafts
from specsim.traces import summarise, writer


class Cells(HTMLParser):
    """The texts of table cells, row by row; those of rows in bold; and whatever stands in paragraphs."""

    def __init__(self, html):
        super().__init__()
        self.rows, self.bold, self.said, self._open = [], [], [], []
        self.feed(html)
        self.close()
        assert not self._open, "every element is closed"

    def handle_starttag(self, tag, attrs):
        self._open.append(tag)
        if tag == "tr":
            self.rows.append([])
            if ("style", "font-weight:bold") in attrs:
                self.bold.append(self.rows[-1])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        else:
            self.said.append(data)


def shown(result):
    return Cells(result._repr_html_())


P, Q = ([Fraction(n, 6) for n in weights] for weights in ((3, 2, 1), (1, 2, 3)))


def test_a_proof_shows_what_was_proved_and_where_it_is_worst():
    found = dict(shown(specsim.prove(TableModel(P), TableModel(Q), gamma=2)).rows)
    assert found["TV from the target"] == "0, exactly"
    assert found["every next token"] == "as claimed"
    assert found["drafts enumerated"] == "9"
    assert found["tokens per step"] == "19/9 = 2.11111"
    proof = specsim.prove(TableModel(P), TableModel(Q), rule="pointwise_envelope", gamma=1)
    found = dict(shown(proof).rows)
    assert found["TV from the target"].startswith(f"{proof.tv} = 0.")
    assert found["worst next token"].startswith(f"after {list(proof.worst_prefix)}, TV {proof.worst_tv} = 0.")
    assert "every next token" not in found


def test_a_plan_has_its_best_choice_in_bold():
    made = plan(0.8, 0.05)
    ((gamma, *_),) = shown(made).bold
    assert gamma == str(made.best.gamma) == "8"
    assert not shown(plan(0.01, 0.5)).bold[0][0].strip("0"), "γ = 0: do not speculate"


def test_ranked_drafts_stand_in_their_order():
    ranked = rank_drafts(
        [Candidate.of_counts("<small>", 750, 1000, 0.02), Candidate.of_counts("large", 820, 1000, 0.11)]
    )
    head, *rows = shown(ranked).rows
    assert [row[0] for row in rows] == ["<small>", "large"]
    assert dict(zip(head, rows[1], strict=False))["best γ"] == str(ranked[1].gamma)
    assert rows[1][-1] == "surely worse"


def test_bars_leave_out_what_is_not_finite_and_json_has_no_arrays():
    assert bars([0.5, 0.25, float("nan")], width=8) == ["█" * 8, "█" * 4, ""]
    assert bars([0.0, float("inf")]) == ["", ""]
    values = {"a": np.arange(2), "b": (float("nan"), np.float64(0.5)), "c": None}
    assert plain(values) == {"a": [0, 1], "b": [None, 0.5], "c": None}
    assert as_dict(plan(0.8, 0.05).best, without=("operations",), more=(1,))["more"] == [1]


def test_terminal_and_jupyter_show_the_same_cells():
    made = plan(0.8, 0.05)
    console = Console(width=100, file=io.StringIO())
    console.print(*to_rich(made.parts()), sep="\n")
    lines = console.file.getvalue().splitlines()
    for row in shown(made).rows:
        assert any(line.split() == " ".join(row).split() for line in lines), row
    assert lines[2].startswith(" 0"), "numbers stand to the right"


def test_print_writes_no_second_output_in_jupyter(monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *_: pytest.fail("a second output"))
    assert str(plan(0.8, 0.05)).startswith("γ = 8")


def test_rows_are_there_for_programs(monkeypatch):
    made = plan(0.8, 0.05)
    table = made.to_arrow()
    assert table.column_names == ["gamma", "tokens_per_step", "improvement", "operations"]
    assert table.to_pylist()[8] == dataclasses.asdict(made.best)
    assert made.to_pandas().to_dict("records") == table.to_pylist()
    run = specsim.simulate([0.5, 0.5], [0.2, 0.8], gamma=2, steps=100, rng=1)
    assert run.to_arrow()["steps"].to_pylist() == run.lengths.tolist()
    compared = specsim.compare([0.5, 0.5], [0.2, 0.8], rules=["standard", "lenience"], steps=100, rng=1)
    assert compared.to_arrow()["tv"].to_pylist() == [entry.tv for entry in compared]
    checked = specsim.check_metrics(accepted=20, emitted=30, steps=7)
    assert checked.to_arrow()["holds"].to_pylist() == [check.holds for check in checked.checks]
    for library, method, remedy in (
        ("pandas", made.to_pandas, r"pip install 'specsim-decoding\[pandas\]'"),
        ("pyarrow", made.to_arrow, r"pip install 'specsim-decoding\[arrow\]'"),
    ):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(ModuleNotFoundError, match=remedy):
            method()


def test_pictures_show_the_numbers_of_the_result():
    run = specsim.simulate([0.5, 0.5], [0.2, 0.8], gamma=2, steps=100, rng=1)
    axes = Figure().subplots()
    assert run.plot(axes) is axes
    assert [bar.get_height() for bar in axes.patches] == pytest.approx((run.lengths / 100).tolist())
    compared = specsim.compare([0.5, 0.5], [0.2, 0.8], rules=["standard", "lenience"], steps=100, rng=1)
    points = [tuple(xy) for line in compared.plot(Figure().subplots()).lines for xy in line.get_xydata()]
    assert points == [(entry.tv, entry.tokens_per_step) for entry in compared]
    axes = compared.plot(Figure().subplots(), x="lenience")
    assert axes.get_xlabel() == "lenience"
    assert [tuple(xy) for line in axes.lines for xy in line.get_xydata()] == [
        (0.5, entry.tokens_per_step) for entry in compared if entry.name == "lenience"
    ]
    with pytest.raises(ValueError, match="unknown setting 'gamma'"):
        compared.plot(x="gamma")


def test_policies_stand_side_by_side_and_the_fastest_in_bold():
    log = specsim.draft_log(TableModel([0.5, 0.3, 0.2]), TableModel([0.3, 0.3, 0.4]), 2000, rng=1)
    runs = specsim.simulate_policies(log, [Constant(9), Oracle()])
    found = shown(runs)
    assert [row[0] for row in found.rows[1:]] == ["constant 9", "oracle"]
    assert [row[0] for row in found.bold] == ["oracle"]
    assert found.rows[1][3] == f"{runs[0].speedup:.4f}"
    assert isinstance(runs, tuple)


def test_reported_numbers_that_are_at_odds_stand_in_bold():
    found = shown(specsim.check_metrics(gamma=4, accepted=20, emitted=30, steps=7))
    assert ["emitted = accepted + steps", "fails", "30", "27", "-3"] in found.bold
    assert found.said[0].startswith("impossible: emitted = accepted + steps fails")
    right = shown(specsim.check_metrics(gamma=4, accepted=20, emitted=27, steps=7))
    assert not right.bold
    assert ["it follows", "", ""] in right.rows
    assert right.said[0].startswith("possible")


def test_a_summary_of_a_trace_shows_its_rates(tmp_path):
    p, q = np.full((3, 4), 0.25), np.array([[0.5, 0.5, 0, 0]] * 3)
    with writer(tmp_path / "trace", vocab_size=4, gamma=2) as log:
        for accepted in (0, 0, 1, 0):
            log.append(0, [0, 1], accepted, p, q)
    summary = summarise(specsim.open_trace(tmp_path / "trace"))
    page = shown(summary)
    assert page.said[0].startswith("4 steps, γ = 2; V = 4")
    found = {row[0]: row[1:] for row in page.rows}
    assert found["tokens per step"] == ["1.25000 ± 0.25000", ""]
    assert found["1"][:4] == ["4", "1", "0.2500", "0.5000"]
    assert found["2"][:4] == ["1", "0", "0.0000", "0.5000"]
    assert found["3"][:4] == ["–", "–", "–", "–"], "no step reached the bonus"
    assert summary.to_arrow()["beta"].to_pylist() == [0.5, 0.5, None]
    assert summary.plot(Figure().subplots()).lines[0].get_ydata().tolist() == [0.25, 0.0]


def test_results_are_markdown_and_latex_with_every_sign_as_it_is_and_are_cut():
    rows = [
        ("1", "a|b_c*d`e[f]<g>#h$i%j&k{l}m~n^o\\p γ ≤ 10^-6.5", "██"),
        ("2.5", "x\ny", "█"),
        ("3", "", ""),
    ]
    shown = Listing([Line("Σ = 1", "bold"), "", Table(("n", "what", ""), rows, bold=[0])], [])
    signs = r"a\|b\_c\*d\`e\[f\]\<g\>#h\$i%j&k{l}m\~n^o\\p γ ≤ 10^-6.5"
    head = "**Σ = 1**\n\n| n | what |  |\n| ---: | :--- | :--- |\n"
    assert shown.to_markdown() == f"{head}| **1** | **{signs}** | **██** |\n| 2.5 | x y | █ |\n| 3 |  |  |"
    signs = (
        r"a$|$b\_c$*$d`e{[}f]$<$g$>$\#h\$i\%j\&k\{l\}m\textasciitilde{}n\textasciicircum{}o\textbackslash{}p"
    )
    assert shown.to_latex().splitlines() == [
        "% Σ = 1", r"\begin{tabular}{rl}", r"\toprule", r"n & what \\", r"\midrule",
        rf"\textbf{{1}} & \textbf{{{signs} $\gamma$ $\le$ $10^{{-6.5}}$}} \\", r"2.5 & x y \\", r"3 &  \\",
        r"\bottomrule", r"\end{tabular}",
    ]  # fmt: skip
    assert Listing([], [{"a": 1}]).to_markdown() == "| a |\n| ---: |\n| 1 |"
    short, left = Table(("n",), [(str(n),) for n in range(9)], bold=[2, 7]).cut(3)
    assert (short.rows, short.bold, left.text) == ([("0",), ("2",), ("7",)], [1, 2], "6 more rows: --verbose")
    assert Table(("n",), [("1",), ("2",)]).cut(1)[1].text == "1 more row: --verbose"
    compared = specsim.compare([0.5, 0.5], [0.2, 0.8], steps=9, rng=1)
    assert "more rows: to_markdown()" in str(compared)
    assert "more rows: see All tables" in compared._repr_html_()


def test_readers_find_names_sides_and_decimals():
    pair = [0.5, 0.5], [0.2, 0.8]
    compared = specsim.compare(*pair, rules=["standard", "lenience"], steps=100, rng=1)
    named = compared.plot(Figure().subplots()).texts
    assert {one.get_text() for one in named} == {entry.rule for entry in compared}
    table = Table(("rule", "α"), [("standard", "0.5")]).to_html()
    assert '<td style="text-align:left">standard</td><td>0.5</td>' in table  # Jupyter puts cells to the right
    swept = specsim.sweep(*pair, over={"rule": ["standard", "block"]}, steps=100, rng=1)
    assert swept.plot(Figure().subplots()).lines[0].get_linestyle() == "None"  # a name is no number
    assert swept.plot(Figure().subplots(), "alpha_verified").get_ylabel() == "α verified"
    models = (TableModel(row) for row in ([0.5, 0.3, 0.2], [0.2, 0.3, 0.5]))
    proof = str(specsim.prove(*models, rule="lenience:lenience=0.9", gamma=3))
    assert not [word for word in proof.split() if "/" in word and len(word) > 40]
    for call, wrong, right in (
        (specsim.simulate, "seed", "rng"), (specsim.simulate, "rules", "rule"), (specsim.compare, "names", "rules"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=f"'{wrong}'; did you mean '{right}'"):
            call(*pair, **{wrong: 1})
