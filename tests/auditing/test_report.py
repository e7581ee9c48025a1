"""The forms of a report: they agree with each other and with the audit, and each is well-formed."""

import hashlib
import io
import json
import re
from dataclasses import replace
from datetime import datetime
from functools import partial
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
import verifiers
from listening import answering
from matplotlib.figure import Figure
from rich.console import Console

import specsim
from specsim.adapters import declares
from specsim.adapters._contract import Declared
from specsim.auditing import audit_against
from specsim.auditing._cases.battery import battery, decoder_battery
from specsim.auditing._cases.shapes import shape_cases
from specsim.auditing._diagnosis.diagnose import diagnose_failed
from specsim.auditing._report import text as words
from specsim.auditing._report.audit import Audit
from specsim.auditing._report.figures import audit_figure, main_tables, worst_tables
from specsim.auditing._results.audit import STOPPED, Diagnosis, Efficiency, Finding, ProofSummary, Verdict
from specsim.core._plotting import save_figure
from specsim.core._report import json_of, junit_of, page_of
from specsim.core._tables import to_rich
from specsim.engines import Sampling, audit_matrix, compare_servers
from specsim.engines._audit.matrix import settings

pytestmark = pytest.mark.usefixtures("few_cases_in_module")
#: One of them has tables of more cells than a picture shows.
FEW_CASES = {"two-point", "asymmetric", "zeros", "Markov chain", "Zipf 1 000"}

SEED = 1


def says_what_cannot_be_written(draft_tokens, p, q, rng):
    raise RuntimeError("\x00 \x1b[31m <b>&\ud800 $x$")


def wrong(*given):
    return verifiers.resamples_from_target(*given)


@pytest.fixture(scope="module")
def audits(few_cases_in_module, full, bank):
    """{what it shows: an audit}."""
    audited = {
        "consistent": "standard",
        "lossy": "lenience:lenience=0.5",
        "biased": verifiers.resamples_from_target,
        "broken": verifiers.raises,
        "unprintable": says_what_cannot_be_written,
    }
    # some known mistakes, whose parameters need no fit, unless all tests are run
    known = [specsim.mistakes.get(name) for name in ("resamples_target", "inverted_ratio", "greedy_draft")]
    some = diagnose_failed if full else partial(diagnose_failed, known=known)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("specsim.auditing._diagnosis.diagnose.diagnose_failed", some)
        found = bank(
            "reports", lambda: {kind: specsim.audit(one, "smoke", rng=SEED) for kind, one in audited.items()}
        )
    standard = found["consistent"]
    found["refuted"] = replace(standard, proof=ProofSummary(30, 0.01, True))
    found["limited"] = with_cases(standard, lambda case: replace(case, planned=2 * case.steps))
    half = replace(standard.cases[4], interrupted=True, planned=2 * standard.cases[4].steps)
    found["interrupted"] = replace(standard, cases=(*standard.cases[:4], half), interrupted=True, proof=None)
    found["nothing"] = replace(standard, cases=(), interrupted=True, proof=None)
    found["weak"] = replace(standard, wanted_tv=between(standard))
    found["decoder"] = with_cases(
        replace(found["biased"], cases=found["biased"].cases[: None if full else 3]),
        lambda case: replace(case, tree=None, alphas=None, efficiency=None),
    )
    return found


def between(result):
    """A total variation that was detectable in all cases but the two least sensitive ones."""
    return sorted(case.first_token.detectable_tv for case in result.cases)[-3]


#: What a server says of itself, and what of it may reach a terminal, a page or a file.
HOSTILE, WRITTEN = "\x1b]0;<b>\x07evil", "\\x1b]0;<b>\\x07evil"


@pytest.fixture(scope="module")
def judged(audits, bank, tmp_path_factory):
    """The audits, and all else that has such a report."""
    return audits | bank("judged", lambda: of_engines(tmp_path_factory.mktemp("planted") / "pair"))


def of_engines(folder):
    pair = specsim.plant(folder, vocab_size=6, context=160, rng=1)
    biased = specsim.audit_engine("specsim", pair, tokens=1_000, mistake="greedy_residual", rng=SEED)
    with pytest.MonkeyPatch.context() as patch:
        two = settings(pair)[:2]
        patch.setattr("specsim.engines._audit.matrix.settings", lambda *_: two)
        matrix = audit_matrix("specsim", pair, tokens=1_000, mistake="target_not_rolled_back", rng=SEED)
    with answering(lambda *_: {"choices": [{"text": HOSTILE}]}, f"{HOSTILE}/1", HOSTILE) as url:
        hostile = specsim.audit_engine(url, pair, tokens=100, rng=SEED)
        prompts = ["a<b>", "b&c"]
        with answering(lambda *_: {"choices": [{"text": "Hi, you", "finish_reason": "stop"}]}) as other:
            changed = compare_servers(url, other, prompts, tokens=1_000, length=2, rng=SEED)
            greedy = compare_servers(url, other, prompts, sampling=Sampling(temperature=0.0), rng=SEED)
    return {
        "engine": biased,
        "engine, interrupted": replace(biased, findings=(), interrupted=True),
        "engine, without a text": hostile,
        "settings": matrix,
        "servers": changed,
        "servers, greedy": greedy,
        "verifiers": audit_against(declares(vocab_size=4)(wrong), "standard", "smoke", rng=SEED),
        "verifiers, broken": audit_against(says_what_cannot_be_written, "standard", "smoke", rng=SEED),
    }


@pytest.fixture(scope="module")
def pages(audits, judged, bank, full):
    def page(kind, result):
        with pytest.MonkeyPatch.context() as patch:
            if kind in audits and kind not in ("biased", "nothing") and not full:  # as those
                patch.setattr("specsim.auditing._report.audit._svg", lambda *_: "")
            return page_of(result)

    return bank("pages", lambda: {kind: page(kind, result) for kind, result in judged.items()})


def with_cases(result, change):
    return replace(result, cases=tuple(map(change, result.cases)))


KINDS = ["consistent", "lossy", "biased", "broken", "unprintable"]  # and those made of them
KINDS += ["refuted", "limited", "interrupted", "nothing", "weak", "decoder"]
OTHERS = ["engine", "engine, interrupted", "engine, without a text", "settings", "servers", "servers, greedy"]
OTHERS += ["verifiers", "verifiers, broken"]


def printed(result, width=80, parts=None):
    console = Console(width=width, file=io.StringIO())
    console.print(*to_rich(result.parts() if parts is None else parts), sep="\n")
    return console.file.getvalue()


def flat(text):
    return " ".join(text.split())


class Page(HTMLParser):
    """Text, tags that were not closed in order, and what is referred to."""

    VOID = ("meta", "br", "link", "img", "input", "hr")

    def __init__(self, page):
        super().__init__()
        self.open, self.wrong, self.texts, self.references, self.ids = [], [], [], [], []
        self.feed(page)
        self.close()
        self.text = re.sub(r" ([,.])", r"\1", flat(" ".join(self.texts)))  # after a link

    def handle_starttag(self, tag, attributes):
        self.open += [] if tag in self.VOID else [tag]
        self.references += [value for name, value in attributes if name.endswith(("href", "src", "data"))]
        self.ids += [value for name, value in attributes if name == "id"]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.texts += [] if self.open[-1:] == ["style"] else [data]


@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
def test_every_form_says_the_verdict_the_seed_and_every_finding(judged, pages, kind):
    result = judged[kind]
    page, suite = Page(pages[kind]), ElementTree.fromstring(junit_of(result))
    document, terminal, compact = (json.loads(json_of(result)), flat(printed(result)), result._repr_html_())
    assert document["verdict"] == str(result.verdict)
    assert document["provenance"]["root"] == SEED
    assert terminal.startswith(flat(result.headline()))
    short = [line.rstrip() for line in printed(result, parts=result.brief()).splitlines()]
    assert (len(short) <= 25, max(map(len, short)) <= 80) == (True, True)
    assert flat(" ".join(short)).startswith(flat(result.headline()))
    for line in result.finding_lines()[:2]:
        assert "".join(re.findall(r"\(and \d+ more finding", line)) in flat(" ".join(short))
    decides = *result.finding_lines(), result.meaning(), ""
    assert result.in_a_line() == flat(f"{result.headline()}: {decides[0]}").removesuffix(":")
    uncounted = kind in ("broken", "unprintable", "nothing", "servers, greedy")
    assert uncounted or "1e-06" in flat(" ".join(short))
    assert re.search(rf"[Ss]eed {SEED}", terminal)
    assert str(result.verdict) in page.text
    assert flat(result.headline()) in page.text
    again = page_of(result, "specsim audit engine URL") if kind in OTHERS else page.text
    assert re.search(rf"specsim .*--seed {SEED}", again) or f"rng={SEED}" in page.text
    properties = {entry.get("name"): entry.get("value") for entry in suite.iter("property")}
    assert properties["verdict"] == str(result.verdict)
    assert properties["seed"] == str(SEED)
    assert flat(result.headline()) in Page(compact).text
    failures = "".join(element.text for name in ("failure", "error") for element in suite.iter(name))
    for one in result.cases if isinstance(result, Audit) else [result]:
        for finding in one.findings:
            assert flat(finding.text) in page.text
            assert finding.text in failures
        assert all(flat(finding.text) in terminal for finding in one.findings[:1])
    for text in (page.text, terminal, Page(compact).text, *properties.values()):
        assert not re.search(r"\b(nan|inf)\b", text, re.IGNORECASE)
    for text in (pages[kind], printed(result), str(result), junit_of(result), json_of(result)):
        assert all(one.isprintable() or one == "\n" for one in text)


@pytest.mark.parametrize("kind", ["biased", pytest.param("broken", marks=pytest.mark.slow), "unprintable"])
def test_the_picture_is_drawn_whatever_was_run(audits, kind, tmp_path):
    save_figure(audit_figure(replace(audits[kind], verifier="$x\udcff")), tmp_path / "audit.png")


@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
def test_the_page_is_whole_and_refers_to_nothing_outside_itself(pages, kind):
    text = pages[kind]
    page = Page(text)
    assert page.open == page.wrong == []
    assert len(page.ids) == len(set(page.ids))
    links = {reference for reference in page.references if reference.startswith("https://github.com/")}
    assert all(re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/issues/\d+", link) for link in links)
    inside = set(page.references) - links
    assert {reference[0] for reference in inside} <= {"#"}
    assert {reference[1:] for reference in inside} <= set(page.ids)
    outside = set(re.findall(r"https?://[^\s\"'<]*", re.sub(r"http://127.0.0.1:\d+", "server", text))) - links
    assert outside <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # names, not addresses
    assert "url(" not in text.replace("url(#", "")
    assert "@import" not in text
    text.encode("utf-8")


@pytest.mark.parametrize("kind", [*KINDS, *OTHERS])
def test_junit_counts_what_it_holds_and_fails_without_exit_code_0(judged, kind):
    result = judged[kind]
    suite = ElementTree.fromstring(junit_of(result))
    cases, checks = suite.findall("testcase"), [*result.outcomes()]
    assert [case.get("name") for case in cases] == [check.name for check in checks]
    assert len({check.name for check in checks}) == len(checks) == int(suite.get("tests"))
    for name, attribute in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        assert sum(case.find(name) is not None for case in cases) == int(suite.get(attribute))
    errors, failures = int(suite.get("errors")), int(suite.get("failures"))
    assert (errors + failures > 0) == (result.exit_code != 0)
    if kind in KINDS:
        assert len(cases) == len(result.cases) + 1 + (result.proof is not None)
        assert {case.get("classname") for case in cases} <= {result.verifier}
        verdicts = [case.verdict for case in result.cases]
        refuted = result.proof is not None and not result.proof.as_claimed
        assert errors == verdicts.count(Verdict.BROKEN) + (result.verdict is Verdict.INCONCLUSIVE)
        assert failures == verdicts.count(Verdict.BIASED) + refuted
        assert float(suite.get("time")) == pytest.approx(result.provenance.seconds, abs=1e-3)
        assert suite.get("timestamp") == result.provenance.date
        assert sum(float(case.get("time", 0)) for case in cases) <= result.provenance.seconds + 0.1


SCHEMA = json.loads((files(specsim) / "data" / "audit.schema.json").read_text(encoding="utf-8"))


def what_the_schema_refuses(document):
    validator = jsonschema.Draft202012Validator(SCHEMA)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_table_fits_into_eighty_columns_and_json_follows_its_schema(audits, kind):
    lines = printed(audits[kind]).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert "…" not in "\n".join(lines)
    document = json.loads(json_of(audits[kind]))
    assert what_the_schema_refuses(document) == []
    assert document["schema"] == SCHEMA["title"]
    assert len(document["findings"]) == sum(len(case.findings) for case in audits[kind].cases)


def test_names_of_cases_do_not_wrap_in_eighty_columns(audits):
    case = max(audits["biased"].cases, key=lambda case: case.largest_log10_e)
    shapes = [one for one in shape_cases(Declared()) if not one.together]  # of servers they are longer
    for one in (*battery(Declared()), *shapes, *decoder_battery()):
        named = replace(case, case=one.name, vocab_size=50_300, steps=1_980)
        for table in words.tables(replace(audits["biased"], cases=(named,))):
            if "case" in table.columns:  # two lines: the names of columns, and the row
                assert re.fullmatch(
                    rf".*\n{one.name} .*{table.rows[0][-1]} *\n", printed(table, parts=[table])
                )


def test_the_schema_knows_every_key(audits):
    document = json.loads(json_of(audits["biased"]))
    assert document["diagnosis"]["named"][0]["name"] == "resamples_target"
    document["cases"] = [case | {"tables": case["tables"][:1]} for case in document["cases"][:2]]
    assert document["findings"]
    assert what_the_schema_refuses(document) == []
    for part in (document, document["findings"][0], document["cases"][1], document["cases"][1]["tables"][0]):
        for key in [*part]:
            value = part.pop(key)
            assert what_the_schema_refuses(document), key
            part[key] = value
        part["unknown"] = 1
        assert what_the_schema_refuses(document)
        del part["unknown"]


def test_a_finding_has_the_numbers_of_its_table_and_a_case_one_evidence_the_strongest(audits):
    cases = audits["biased"].cases
    found = [(case, one) for case in cases for one in case.findings if one.prefix is not None]
    assert found
    for case, finding in found:
        tables = {(one.position, one.prefix): one for one in case.tables if one.kind == "prefix"}
        table = tables[finding.position, finding.prefix]
        cell = table.labels.index(finding.cell)
        assert finding.observed == pytest.approx(table.observed[cell] / table.n)
        assert finding.expected == pytest.approx(table.expected[cell] / table.n)
        assert finding.log10_e == pytest.approx(table.log10_e)
        assert finding.cell == f"token {finding.token}"
    for cases, line in zip(words.grouped(audits["biased"]), audits["biased"].finding_lines(), strict=True):
        assert re.findall(r"e = 10\^(-?\d+)", line) == [f"{cases[0].largest_log10_e:.0f}"]
        own = f"{cases[0].findings[0].log10_e:.0f}"
        said = re.findall(r"over all tables|all \d+ tables of", line)
        assert len(said) == (f"e = 10^{own};" not in line or "; all " in line)
    assert "<th>e</th>" not in page_of(audits["biased"])


def test_the_page_says_where_the_verifier_is_and_when_it_was_audited(audits, pages):
    origin, page = audits["biased"].origin, Page(pages["biased"]).text
    assert Path(origin.file) == Path(verifiers.__file__)
    lines = Path(origin.file).read_text(encoding="utf-8").splitlines()
    assert lines[origin.line - 1].startswith("def resamples_from_target(")
    assert origin.digest == hashlib.sha256(Path(origin.file).read_bytes()).hexdigest()
    assert f"{origin.file}, line {origin.line}" in page
    assert origin.digest in page
    assert f"numpy {origin.libraries['numpy']}" in page
    date = datetime.fromisoformat(audits["biased"].provenance.date)
    assert date.strftime("%Y-%m-%d %H:%M:%S UTC") in page
    assert audits["consistent"].origin is None
    assert "SHA-256" not in Page(pages["consistent"]).text


def test_an_interrupt_is_said_first_and_how_many_of_the_cases_with_tests_were_started(audits, pages):
    for kind, verdict in (("interrupted", " (interrupted)"), ("nothing", ", nothing was run")):
        for text in (printed(audits[kind]), str(audits[kind])):
            assert text.startswith(f"standard: inconclusive{verdict}\ninterrupted: the results so far")
    page = Page(pages["interrupted"]).text
    assert page.index("interrupted: the results so far") < page.index("Nothing was found")
    assert "interrupted" not in printed(audits["consistent"])
    few, planned = audits["interrupted"], audits["interrupted"].planned
    missing = replace(few, cases=few.cases[:2])
    untested = replace(few.cases[0], planned=0)
    besides = replace(few, cases=(untested, *few.cases))
    for result, started in ((few, planned), (missing, 2), (besides, planned), (audits["nothing"], 0)):
        said = f"interrupted: the results so far; {started} of {planned} cases started."
        assert said in words.progress_lines(result)


def test_the_formula_of_the_standard_rule_is_that_rule_s_alone(audits, pages):
    formula = "(1-α^(γ+1))/(1-α)"
    for kind in ("consistent", "limited", "lossy", "biased", "refuted"):
        of_standard = kind in ("consistent", "limited")
        assert (formula in printed(audits[kind])) == (formula in pages[kind]) == of_standard
    for other in ("block", "verifiers:right"):
        assert not words.iid_report(replace(audits["consistent"], verifier=other))


def test_the_wanted_power_and_fewer_steps_than_planned_are_said(audits, pages):
    said = "for a verdict it must be in half of them"
    for result in audits.values():
        needs = result.exit_code != 1
        assert (said in words.wanted_line(result)) == (said in junit_of(result)) == needs
    limited = audits["limited"]
    planned = 2 * limited.steps
    said = f"{limited.steps:,} of {planned:,} planned steps in {len(limited.cases)} cases (time limit)"
    assert said in flat(printed(limited))
    assert said in Page(pages["limited"]).text
    assert "planned steps" not in printed(audits["biased"])  # these ended early to reject


def test_a_case_that_could_find_nothing_is_not_called_consistent(audits, pages):
    weak = audits["weak"]
    assert weak.verdict is Verdict.CONSISTENT
    assert weak.exit_code == 0
    without = [case.case for case in weak.cases if case.first_token.detectable_tv > weak.wanted_tv]
    verdicts = {one.case: "no power" if one.case in without else "consistent" for one in weak.cases}
    assert len(without) == len(weak.cases) - weak.powerful == 2
    assert {row["case"]: row["verdict"] for row in words.evidence(weak)} == verdicts
    assert {row["case"]: row["verdict"] for row in weak.records()} == verdicts
    document = json.loads(json_of(weak))
    assert {case["case"]: case["verdict"] for case in document["cases"]} == verdicts
    suite = ElementTree.fromstring(junit_of(weak))
    skipped = {case.get("name"): case.find("skipped") for case in suite.iter("testcase")}
    assert [name for name, element in skipped.items() if element is not None] == without
    assert skipped[without[0]].get("message").startswith("no power: a total variation of ")
    assert pages["weak"].count('<td class="left tone no-power">no power</td>') == 2
    assert weak._repr_html_().count("no power</td>") == 1 + 2  # of the verdict, and of the cases
    said = f"no power where a total variation of {weak.wanted_tv:g} of the first token was not detectable"
    for text in (flat(printed(weak)), Page(pages["weak"]).text, Page(weak._repr_html_()).text):
        assert said in text
    assert "no power" not in printed(audits["consistent"]) + pages["consistent"]


def test_power_is_asked_of_each_case_and_takes_nothing_from_a_verdict(audits):
    for kind in ("limited", "interrupted"):
        strict = replace(audits[kind], wanted_tv=1e-3)
        assert {row["verdict"] for row in words.evidence(strict)} == {"no power"}
    unseen = with_cases(audits["interrupted"], lambda case: replace(case, steps=0, tables=()))
    assert {case.verdict for case in unseen.cases} == {Verdict.NO_POWER}
    lossy, biased = audits["lossy"], audits["biased"]
    lossless = [case for case in lossy.cases if case.verdict is Verdict.CONSISTENT]
    few = replace(lossy, wanted_tv=between(lossy))
    assert few.verdict is Verdict.LOSSY
    assert Verdict.NO_POWER in {case.verdict for case in few.cases}
    assert len(lossless) < len(lossy.cases)
    found = [case.case for case in biased.cases if case.findings]
    strict = replace(biased, wanted_tv=1e-3)
    assert strict.verdict is Verdict.BIASED
    assert [case.case for case in strict.cases if case.verdict is Verdict.BIASED] == found


def test_cases_share_a_line_and_what_has_no_rows_shows_dashes(audits):
    lines = words.finding_lines(audits["broken"])
    assert len(lines) == 2
    others = len(audits["broken"].cases) - 2
    assert lines[1].startswith(f"two-point and {others} more cases: raised RuntimeError: out of cheese")
    promises = words.evidence(audits["biased"])[0]
    assert promises.pop("case") == "promises"
    assert promises.pop("verdict") == "consistent"
    assert set(promises.values()) == {"–"}
    assert "promises" not in [row["case"] for row in words.speed(audits["biased"])]
    assert words.speed(audits["broken"]) == words.speed(audits["decoder"]) == []
    assert {row["γ"] for row in words.evidence(audits["decoder"])} == {"–"}
    assert {row["min p"] for row in words.evidence(audits["broken"])} == {"–"}


def test_what_an_error_a_server_and_a_name_say_is_escaped(audits, judged, pages):
    assert "\\x00 \\x1b[31m <b>&\\ud800 $x$" in audits["unprintable"].cases[1].findings[0].text
    assert Finding("contract", "a\nb – é").text == "a\nb – é"
    assert len(Finding("contract", "x" * 100_000).text) < 2000
    assert "&lt;b&gt;" in pages["unprintable"]
    for kind in ("engine, without a text", "servers"):
        assert WRITTEN in printed(judged[kind])
        assert WRITTEN in Page(pages[kind]).text
        assert "&lt;b&gt;" in pages[kind]
        assert "<b>" not in pages[kind]
    name = "mine\x1b[31m\udcff:\x00verify"
    suite = ElementTree.fromstring(junit_of(replace(next(iter(audits.values())), verifier=name)))
    assert r"mine\x1b[31m\udcff:\x00verify" in suite.get("name")


def test_tables_keep_what_the_pictures_need_and_the_power_curve_passes_through_it(audits):
    tables = [table for case in audits["biased"].cases for table in case.tables]
    kept = [table for table in tables if table.labels]
    assert {table.cells <= 64 for table in kept} == {True}
    assert all(table.cells > 64 for table in tables if not table.labels)
    for table in kept:
        assert len(table.labels) == len(table.observed) == len(table.expected) == table.cells
        assert sum(table.observed) == table.n
        assert sum(table.expected) == pytest.approx(table.n)
    counts = audits["biased"].cases[1].counts["prefixes"][:2]
    assert kept[0].labels == ("token 0", "token 1")
    assert kept[0].observed == tuple(counts)
    for kind in ("consistent", "biased"):
        shown = main_tables(audits[kind])
        assert shown
        for tested in shown:
            reached = tested.detectable(audits[kind], tested.case.steps)
            assert reached == pytest.approx(tested.table.detectable_tv, rel=1e-9)
            assert tested.detectable(audits[kind], 100 * tested.case.steps) < 0.5 * reached or reached == 1
    assert main_tables(audits["nothing"]) == []


def test_the_worst_tables_are_those_of_cases_with_findings(audits):
    worst = worst_tables(audits["biased"])
    accused = [case for case in audits["biased"].cases if case.findings]
    assert len(worst) == min(8, len(accused))
    thrice = replace(audits["biased"], cases=audits["biased"].cases * 3)
    assert len(worst_tables(thrice)) == 8
    assert all(tested.case.findings for tested in worst)
    assert any(tested.table.rejected for tested in worst)
    (calm,) = worst_tables(audits["consistent"])
    tables = [table for case in audits["consistent"].cases for table in case.tables]
    assert calm.table.log10_e == max(table.log10_e for table in tables if table.labels)
    assert worst_tables(audits["broken"]) == worst_tables(audits["nothing"]) == []
    impossible = Finding("support", "no table shows it")
    elsewhere = with_cases(audits["consistent"], lambda case: replace(case, findings=(impossible,)))
    assert worst_tables(elsewhere) == []


def test_it_is_said_how_to_run_it_again_and_how_to_go_on(audits):
    stopped = replace(audits["biased"], diagnosis=Diagnosis(reason=STOPPED))
    command = (
        "Continue: specsim audit diagnose FOLDER verifiers:resamples_from_target (FOLDER: that of --out)"
    )
    assert words.diagnosis(stopped)[-1] == command
    named = replace(stopped, verifier="<lambda>")
    assert words.diagnosis(named)[-1] == "Continue: specsim.auditing.diagnose(this result, the same function)"
    engine = replace(audits["biased"], verifier="hf:generate")
    clone = replace(engine, verifier="vllm-ascend:source=my clone")
    names = "standard", "verifiers:resamples_from_target", "hf:generate", "'vllm-ascend:source=my clone'"
    for one, name in zip((audits["consistent"], audits["biased"], engine, clone), names, strict=True):
        assert words.replay(one) == f"specsim audit {name} --level smoke --seed 1"
    for name in ("tokens", "__main__:verify", "mine:make.<locals>.verify"):
        renamed = replace(audits["biased"], verifier=name)
        assert words.replay(renamed) == 'the same function or tokens, with level "smoke" and rng=1'


def test_wasteful_is_said_and_no_failure(audits, monkeypatch):
    slow = with_cases(audits["consistent"], lambda case: replace(case, efficiency=Efficiency(0.5, 0.4, 0.6)))
    assert slow.exit_code == 0
    assert "standard: consistent, wasteful" in printed(slow)
    assert "0.5000 wasteful" in printed(slow)
    monkeypatch.setattr("specsim.auditing._report.audit._svg", lambda *_: "")
    assert "that costs speed, not correctness" in Page(page_of(slow)).text
    assert ElementTree.fromstring(junit_of(slow)).get("failures") == "0"


def test_the_diagnosis_is_told_and_its_threads_stand_with_the_verdict(audits, pages):
    lines = audits["biased"].diagnosis.lines()
    assert lines[0].startswith("Diagnosis: resamples_target (")
    output = ElementTree.fromstring(junit_of(audits["biased"])).find("system-out").text
    for line in lines:
        for text in (printed(audits["biased"]), Page(pages["biased"]).text, output):
            assert flat(line) in flat(text)
    assert words.diagnosis(audits["consistent"]) == []
    page = pages["biased"]
    verdict = page[page.index('<div class="verdict') : page.index("</div>")]
    assert words.finding_lines(audits["biased"])[0] in Page(verdict).text
    threads = [thread for one in audits["biased"].diagnosis.named for thread in one.threads if "#" in thread]
    assert threads
    owner, number = threads[0].split("#")
    assert f'<a href="https://github.com/{owner}/issues/{number}">{threads[0]}</a>' in verdict


def test_an_audit_is_a_table_and_a_picture_with_an_interval_only_of_independent_steps(audits):
    rows = audits["biased"].to_arrow().to_pylist()
    assert [row["verdict"] for row in rows] == [str(case.verdict) for case in audits["biased"].cases]
    assert {"log10_e", "detectable_tv", "efficiency"} <= rows[0].keys()
    worst = worst_tables(audits["biased"])[0].table
    axes = audits["biased"].plot(Figure().subplots())
    ratios = [seen / expected for seen, expected in zip(worst.observed, worst.expected, strict=True)]
    assert set(axes.lines[1].get_xdata()) <= set(ratios)
    with pytest.raises(ValueError, match="no table can be plotted"):
        audits["nothing"].plot(Figure().subplots())
    biased = audits["biased"]
    worst = worst_tables(biased)[0]
    assert axes.get_title(loc="left") or axes.get_title()
    assert worst.title(biased).startswith(f"{worst.name}\nTV ")
    tied = replace(worst.case, findings=(Finding("dependent", "rows share random numbers"),))
    assert "TV" not in replace(worst, case=tied).title(biased)
