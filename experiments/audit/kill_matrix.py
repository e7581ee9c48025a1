"""The kill matrix: how often each criterion that engines test with passes each verifier that is known to be
wrong.

Every criterion of `experiments.audit._criteria`, and specsim's own audit, is run on every verifier with
several seeds. A criterion that passes a wrong verifier does not detect that bug; one that fails an exact
verifier raises a false alarm. A decoder draws its own drafts and keeps its own state, so criteria that hand
tokens to a kernel do not apply to it: only the audit is run on decoders.
"""

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

import specsim
from experiments import Floats, Ints, Row
from experiments._kept import kept, lacking
from experiments._pages import filled, joined, markdown_table, written
from experiments.audit._criteria import FOUND, Criterion, criteria
from specsim import audit, mistakes, rules
from specsim.adapters import Verifier as Function
from specsim.adapters import declares
from specsim.models import TableModel, chain
from specsim.theory import step_law, target_law

TITLE = "Known-wrong verifiers that the tests of inference engines pass"
MINUTES = 60

#: The name of specsim's own criterion, and the level of its audits.
AUDIT, LEVEL = "specsim audit", "quick"
#: Seeds of a pair; a criterion that is repeated less often takes the first ones.
SEEDS = 20
#: What is run with `fast`, with one seed, and audits at level smoke.
FAST_VERIFIERS = ("one_hot_draft", "resamples_target", "greedy_draft")
FAST_CRITERIA = ("TensorRT-LLM KL", AUDIT)
#: p of the pair for which the exact deviation of each verifier is given; q is p reversed.
PAIR = tuple(Fraction(weight, 100) for weight in (30, 20, 15, 10, 10, 5, 5, 5))


def standard(draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator) -> Ints:
    return np.asarray(specsim.verify(draft_tokens, p, q, rng=rng).tokens)


STANDARD = mistakes.Mistake(
    name="standard",
    family="exact",
    mechanism="None: the standard rule of specsim.",
    verify=standard,
    law=rules.get("standard").law,
)


def cells(*, fast: bool) -> list[tuple[str, str]]:
    """(verifier, criterion), exact verifiers first."""
    found = []
    for mistake in (STANDARD, *mistakes.exact_controls(), *mistakes.catalogue()):
        applicable = [*(one.name for one in criteria()), AUDIT] if mistake.decode is None else [AUDIT]
        found += [(mistake.name, name) for name in applicable]
    return [cell for cell in found if not fast or (cell[0] in FAST_VERIFIERS and cell[1] in FAST_CRITERIA)]


def run_cell(cell: tuple[str, str], *, fast: bool, rng: int) -> Row:
    """How many runs of a criterion pass a verifier, with what is known of the verifier."""
    name, criterion = cell
    mistake = STANDARD if name == STANDARD.name else mistakes.get(name)
    known = {one.name: one for one in (*criteria(), audit_criterion("smoke" if fast else LEVEL))}
    exact = mistake is STANDARD or name in mistakes.names("exact control")
    return measure(mistake, known[criterion], range(rng, rng + (1 if fast else SEEDS)), exact=exact)


def measure(mistake: Any, criterion: Criterion, seeds: Sequence[int], *, exact: bool = False) -> Row:
    """Run `criterion` on `mistake` with the first `criterion.repeats` of `seeds`.

    `exact` says that the verifier must pass.
    """
    function = mistake.function
    if mistake.decode is not None:
        function = declares(decoder=True)(function)
    runs = seeds[: criterion.repeats]
    return {
        "verifier": mistake.name,
        "criterion": criterion.name,
        "family": mistake.family,
        "exact": exact,
        "decoder": mistake.decode is not None,
        "tv": exact_tv(mistake),
        "passed": sum(criterion.holds(function, seed) for seed in runs),
        "runs": len(runs),
    }


def audit_criterion(level: str = LEVEL) -> Criterion:
    """specsim's audit as a criterion: it passes unless the verdict is biased or broken."""

    def passes(verifier: Function, rng: np.random.Generator) -> bool:
        return audit(verifier, level, rng=rng, fail_fast=True, diagnose=False).verdict not in FOUND

    about = f"all cases at level {level}, every position and prefix: verdict neither biased nor broken"
    return Criterion(AUDIT, "specsim.audit", about, passes, 1)


def exact_tv(mistake: Any) -> float | None:
    """The largest total variation between the distribution of a next token and the target's, at any position
    of two drafts.

    Enumerated where p is `PAIR` and q the same reversed, from the mistake's own `law`, in fractions if it has
    them; None without one.
    """
    if mistake.law is None or mistake.verify is None:
        return None
    target, draft = TableModel(PAIR), TableModel(PAIR[::-1])
    law = step_law(mistake, target, draft, chain(2))
    p = target_law(target, 1)
    nexts: dict[tuple[int, ...], list[Fraction]] = defaultdict(lambda: [Fraction(0)] * len(PAIR))
    for emitted, mass in law.items():
        for i, x in enumerate(emitted):
            nexts[emitted[:i]][x] += mass
    gaps = [
        sum(abs(mass - sum(row) * p[x,]) for x, mass in enumerate(row)) / sum(row) for row in nexts.values()
    ]
    tv = float(max(gaps)) / 2.0
    return tv if tv > ROUNDING else 0.0


# --- the matrix, and its page ----------------------------------------------------------------------------

#: Total variation of rounding, of a law in floats.
ROUNDING = 1e-14
#: Total variation from which on a mistake of an independent author counts.
LARGE = 0.02
#: Why a criterion has no cell for a decoder.
NOT_APPLICABLE = "not applicable: the criterion draws the drafts itself, so it cannot see a bug in drafting"


class Verifier(NamedTuple):
    """A verifier or decoder. `exact` says that it must pass; `tv` is the largest exact deviation, None if not
    known."""

    name: str
    family: str
    exact: bool
    decoder: bool
    tv: float | None


class Cell(NamedTuple):
    """`passed` of `runs` runs of a criterion on a verifier."""

    passed: int
    runs: int

    @property
    def fraction(self) -> float:
        return self.passed / self.runs

    def __str__(self) -> str:
        """0, 1, or two decimals."""
        return f"{self.fraction:.{2 if 0 < self.passed < self.runs else 0}f}"


class KillMatrix:
    """The rows of the experiment as a matrix: verifiers down, criteria across; specsim's audits are at
    `level`."""

    def __init__(self, rows: Sequence[Row], columns: Sequence[Criterion]):
        found = [
            Verifier(row["verifier"], row["family"], row["exact"], row["decoder"], row["tv"]) for row in rows
        ]
        self.rows = list(dict.fromkeys(found))
        self.columns = columns
        self.level = LEVEL
        self._cells = {(row["verifier"], row["criterion"]): Cell(row["passed"], row["runs"]) for row in rows}

    def cell(self, verifier: str, criterion: str) -> Cell | None:
        """The cell of a verifier and a criterion, None where the criterion does not apply."""
        return self._cells.get((verifier, criterion))

    def missed(self, criterion: str) -> list[str]:
        """The wrong verifiers and decoders that a criterion passed in more than half of the runs, or does not
        apply to."""
        cells = {one.name: self.cell(one.name, criterion) for one in self.rows if not one.exact}
        return [name for name, cell in cells.items() if cell is None or cell.fraction > 0.5]

    def wrong(self, *, decoders: bool) -> list[str]:
        """The wrong verifiers, which a test of a kernel can see, or the wrong decoders, which it cannot."""
        return [row.name for row in self.rows if not row.exact and row.decoder == decoders]

    def by_family(self) -> list[tuple[str, list[Verifier]]]:
        """The verifiers by family, in the order in which families first occur."""
        families: dict[str, list[Verifier]] = {}
        for one in self.rows:
            families.setdefault(one.family, []).append(one)
        return list(families.items())

    def markdown(self) -> str:
        """A table of the fractions of runs that pass, and below it what each criterion draws and asserts."""
        names, lines = sorted((one.name for one in self.columns), key=lambda name: name != AUDIT), []
        for family, members in self.by_family():
            lines.append([f"**{family}**", *[""] * (len(names) + 1)])
            for one in members:
                shown = [show_cell(self.cell(one.name, name)) for name in names]
                lines.append([f"`{one.name}`", show_tv(one.tv), *shown])
        for kind, decoders in (("verifiers", False), ("decoders", True)):
            wrong = self.wrong(decoders=decoders)
            missed = [
                f"{len({*wrong} & {*self.missed(name)})} of {len(wrong)}"
                if any(self.cell(one, name) for one in wrong)
                else "–"
                for name in names
            ]
            lines.append([f"**wrong {kind}, missed**", "", *missed])
        notes = [f"- *{column.name}*: {column.about} ({column.source})." for column in self.columns]
        if any(one.decoder for one in self.rows):
            notes.append(f"- –: {NOT_APPLICABLE}.")
        return joined([markdown_table(["", "TV", *names], lines), "\n".join(notes)])


def matrix_of(rows: Sequence[Row]) -> KillMatrix:
    """The matrix of all criteria, from the rows of the experiment."""
    return KillMatrix(rows, [*criteria(), audit_criterion()])


def kept_matrix() -> KillMatrix:
    """The matrix that the repository keeps."""
    return matrix_of(kept("kill_matrix"))


def page(rows: Sequence[Row]) -> str:
    """docs/results/kill-matrix.md."""
    values = {
        "LEVEL": LEVEL,
        "LARGE": LARGE,
        "added": filled(lacking(cells(fast=False), rows, "verifier")),
        "matrix": matrix_of(rows).markdown(),
        "independent": independent_markdown(kept("independent_set")),
    }
    return written("kill-matrix", values)


def independent_markdown(rows: Sequence[Row]) -> str:
    """A row for each set of independent authors: how many of its wrong verifiers each test misses."""
    names, lines = [one.name for one in criteria()], []
    wrong = [row for row in rows if row["kind"] == "wrong verifier" and row["verdict"] and row["tv"] >= LARGE]
    for each in dict.fromkeys(row["set"] for row in wrong):
        some = [row for row in wrong if row["set"] == each]
        missed = [str(sum(row[name] for row in some)) if name in some[0] else "–" for name in names]
        missed.insert(0, str(sum(row["verdict"] not in FOUND for row in some)))
        lines.append([f"{each} set", *(one if one == "–" else f"{one} of {len(some)}" for one in missed)])
    return joined([markdown_table(["", AUDIT, *names], lines)])


def show_cell(cell: Cell | None) -> str:
    """The fraction of runs that pass; – where the criterion does not apply."""
    return "–" if cell is None else str(cell)


def show_tv(tv: float | None) -> str:
    """Total variation with three decimals, or as the power of ten where it is smaller; – if not known."""
    if tv is None:
        return "–"
    return "0" if tv == 0 else f"{tv:.3f}" if tv >= 5e-4 else f"{tv:.0e}"
