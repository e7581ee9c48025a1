"""The article: no number is typed into it, every macro is filled in and used, and what it names exists."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cases import cases
from refused import refuses
from typed_numbers import typed_numbers

import figures
from paper import fill, latex, macros, sources

PAPER = Path(__file__).parents[1] / "paper"
SOURCE = (PAPER / "paper.tex").read_text(encoding="utf-8")
BIBLIOGRAPHY = (PAPER / "paper.bib").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def article(made):
    """Where the article's numbers come from: the fast tables."""
    return sources.Sources(made[0], fast=True)


@pytest.fixture(scope="module")
def filled(article):
    return fill.filled(article)


def arguments(command, text=SOURCE):
    """What stands in the braces of `command`, commas apart."""
    found = re.findall(rf"\\{command}(?:\[[^\]]*\])?\{{([^}}]*)\}}", text)
    return {one.strip() for argument in found for one in argument.split(",")}


# --- no number is typed ----------------------------------------------------------------------------------


def test_no_number_is_typed():
    assert typed_numbers(SOURCE) == [], "take it from a table, by a macro of paper/macros.py"


@pytest.mark.parametrize(*cases(__file__, "typed"))
def test_a_typed_number_is_seen(typed):
    """In the middle of a paragraph of the article too, in which no other is seen."""
    seen = typed_numbers(typed)
    assert seen
    (paragraph,) = (part for part in SOURCE.split("\n\n") if "Nothing is assumed" in part)
    before, said, after = paragraph.partition("Nothing is assumed")
    assert len(typed_numbers(f"{before}{typed} {said}{after}")) == len(seen)


@pytest.mark.parametrize(*cases(__file__, "meant"))
def test_what_may_be_typed(meant):
    assert typed_numbers(meant) == []


# --- macros, tables, figures, citations ------------------------------------------------------------------


def test_every_macro_is_defined_and_every_defined_one_is_used(filled):
    used = set(re.findall(r"\\(n[A-Z][A-Za-z]*)", SOURCE))
    defined = re.findall(r"\\newcommand\{\\(\w+)\}", filled["numbers"])
    assert all(re.fullmatch(r"n[A-Z][A-Za-z]*", name) for name in defined)
    assert len(defined) == len(set(defined))
    assert used == set(defined)


def test_what_is_read_in_is_written_and_the_other_way_round(filled):
    assert arguments("input") == {f"build/{name}" for name in filled}


def test_figures_exist(made):
    named = arguments("includegraphics")
    assert named
    assert named <= set(figures.names())
    assert all((made[0] / f"{name}.pdf").is_file() for name in named)


def test_references_are_defined_and_citations_are_in_the_bibliography(filled):
    whole = SOURCE + "".join(filled.values())
    assert arguments("ref") | arguments("eqref") <= arguments("label", whole)
    assert arguments("cite") == set(re.findall(r"^@\w+\{(\w+),", BIBLIOGRAPHY, re.MULTILINE))


def test_tables_are_ascii_and_their_rows_are_whole(filled):
    for name, content in filled.items():
        assert content.isascii(), name
    for name in filled.keys() - {"numbers", "kill_matrix"}:
        head, *rows = [line for line in filled[name].splitlines() if line.endswith(r"\\")]
        widths = {re.sub(r"\\multicolumn\{2\}", "& ", row).count("&") for row in (head, *rows)}
        assert len(widths) == 1, name


def test_the_kill_matrix_has_every_row(filled, article):
    assert len(re.findall(r"^\\code", filled["kill_matrix"], re.MULTILINE)) == len(article.matrix.rows)


def test_numbers_come_from_the_tables(article):
    """Another table, another number; and where it would make a sentence false, none."""

    class Changed(sources.Sources):
        def rows(self, name, **values):
            found = super().rows(name, **values)
            if name == "claims":
                return found[:-1]
            if name == "lossy_speed":
                return [{**row, "tv": 1.0 - row["tv"]} for row in found]
            return found

    changed = Changed(article.figures, fast=True)
    claims = [
        int(macros.claims(one)["nClaims"].removeprefix(r"\num{").removesuffix("}"))
        for one in (changed, article)
    ]
    assert claims[0] == claims[1] - 1
    refuses(r"the article says: and \(p - q\)₊ is nearer to the target", macros.lossy, changed)


def test_the_page_of_the_kill_matrix_has_the_numbers_of_the_article():
    """Mistakes of verifiers are counted apart from those of decoders, which no test of a kernel can see."""
    found = macros.kill_matrix(sources.Sources(Path(), fast=True))
    names = "MistakesVerifiers", "MissedLeast", "MissedMost", "MissedAudit"
    verifiers, least, most, audit = (
        int(found[f"n{name}"].removeprefix(r"\num{").removesuffix("}")) for name in names
    )
    page = (PAPER.parent / "docs/results/kill-matrix.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| **wrong verifiers, missed**"))
    first, *criteria = (cell.strip() for cell in row.split("|")[3:-1])
    assert (min(criteria), max(criteria)) == (f"{least} of {verifiers}", f"{most} of {verifiers}")
    assert first == f"{audit} of {verifiers}"


def too_wide(log):
    """What LaTeX says of lines that are more than a point too wide, and of floats that are too high."""
    boxes = re.findall(r"Overfull \\[hv]box \((\d+\.?\d*)pt too \w+\).*", log)
    return [points for points in boxes if float(points) > 1.0] + re.findall("Float too large.*", log)


@pytest.mark.skipif(shutil.which("latexmk") is None, reason="latexmk is not there")
def test_nothing_runs_off_the_page(filled, made, tmp_path):
    """The article is built from the fast tables; LaTeX warns of no reference, no box and no float."""
    for name in ("paper.tex", "paper.bib", "rounding.sty"):
        shutil.copy(PAPER / name, tmp_path)
    (tmp_path / "build").mkdir()
    for name, content in filled.items():
        here = re.sub(r"\\graphicspath.*", lambda _: rf"\graphicspath{{{{{made[0]}/}}}}", content)
        (tmp_path / f"build/{name}.tex").write_text(here, encoding="utf-8")
    command = ["latexmk", "-pdf", "-interaction=nonstopmode", "-halt-on-error", "-outdir=build", "paper.tex"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace", timeout=280)
    assert ran.returncode == 0, ran.stdout[-2000:]
    log = (tmp_path / "build/paper.log").read_text(encoding="utf-8", errors="replace")
    assert too_wide(log) == []
    assert not re.findall("LaTeX Warning: .*(?:undefined|multiply)", log)


def test_what_runs_off_the_page_is_seen():
    log = "Overfull \\hbox (0.31pt too wide) in x\nOverfull \\hbox (315.19566pt too wide) in paragraph\n"
    assert too_wide(log) == ["315.19566"]
    assert too_wide("LaTeX Warning: Float too large for page by 12.0pt on input line 9.\n")


def test_the_pdf_names_title_author_subject_and_keywords():
    for key in ("pdftitle", "pdfauthor", "pdfsubject", "pdfkeywords"):
        (value,) = re.findall(rf"{key}=\{{([^}}]+)\}}", SOURCE)
        assert value


def test_numbers_are_handed_to_siunitx_unrounded():
    assert latex.whole(5161) == r"\num{5161}"
    assert latex.decimal(1 / 3, 2) == r"\decimal{2}{0.3333333333333333}"
    assert latex.percent(0.25) == r"\share{0}{25.0}"
    assert [latex.short(number) for number in (0.0, 812.0, 65536, 9.96e-5)] == [
        r"\short{fixed}{0.0}",
        r"\short{fixed}{812.0}",
        r"\short{scientific}{65536.0}",
        r"\short{scientific}{9.96e-05}",
    ]
    refuses("not a whole number", latex.whole, 0.5)


def test_a_sign_that_latex_does_not_know_is_an_error():
    assert latex.text("α_i ≥ 50%") == r"$\alpha$\_i $\ge$ 50\%"
    refuses(r"data/latex\.toml", latex.text, "ж")


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not there")
def test_without_latexmk_make_paper_says_what_to_install(tmp_path):
    """With nothing but make and a shell on the path."""
    for name in ("make", "sh", "echo"):
        (tmp_path / name).symlink_to(shutil.which(name))
    found = subprocess.run(
        ["make", "--no-print-directory", "latexmk"],
        cwd=PAPER.parent,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert found.returncode == 2
    assert "apt-get install latexmk" in found.stdout + found.stderr
