"""The article's tables, by the name of their file in build/."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from jinja2 import Environment

from experiments._kept import kept
from experiments.audit._criteria import FOUND
from experiments.audit.independent_set import SETS, _names_of
from experiments.audit.kill_matrix import AUDIT, Verifier, show_cell, show_tv
from experiments.engines.engine_code import KNOWN
from experiments.literature.claims import SOURCES, VERDICTS
from paper.latex import code, decimal, short, text, whole
from paper.sources import Rows, Sources, the

TEMPLATE = Environment(
    block_start_string="<%",
    block_end_string="%>",
    variable_start_string="<<",
    variable_end_string=">>",
    trim_blocks=True,
).from_string(Path(__file__).with_name("table.tex.j2").read_text(encoding="utf-8"))
#: A column of paragraphs, ragged on the right; its width follows.
RAGGED = r">{\raggedright\arraybackslash}p"
#: Groups of rules, as the table names them.
GROUPS = {
    "chain": "A single draft, lossless",
    "tree": "Several drafts, lossless",
    "lossy": "Lossy",
    "controls": "Wrong on purpose",
}
#: Claims that mislead in practice, at least one from each document.
TELLING = (
    "closed_test",
    "always_rejects",
    "pointwise_envelope",
    "lenient_sign",
    "pseudocode",
    "other_ids",
    "same_temperature",
    "share_for_alpha",
    "own_sample",
    "accepted_only",
    "below_half",
    "three_in_one",
)


def tabular(columns: str, head: Sequence[str], rows: Sequence[Sequence[str]], **long: str) -> str:
    """A table; a row of one cell is a heading. With `caption` and `label` it may run over several pages."""
    return TEMPLATE.render(columns=columns, head=head, rows=rows, **long) + "\n"


def tabulars(sources: Sources) -> dict[str, str]:
    """All of them."""
    return {
        "rules": rules(sources),
        "power": power(sources),
        "criteria": criteria(sources),
        "kill_matrix_summary": kill_matrix_summary(sources),
        "kill_matrix": kill_matrix(sources),
        "independent": independent(sources),
        "engine_code": engine_code(sources),
        "engines": engines(sources),
        "methods": methods(),
        "not_reproducible": not_reproducible(sources),
        "documents": documents(),
        "claims": claims(sources),
        "telling_claims": telling_claims(sources),
    }


def rules(sources: Sources) -> str:
    """Three columns of rules, filled group by group; those of lossy rules have their distance beside them."""
    first = _rules_of(sources, "chain") + _rules_of(sources, "tree")
    second, third = _rules_of(sources, "lossy"), _rules_of(sources, "controls")
    longest = max(map(len, (first, second, third)))
    filled = [side + [[""] * 3] * (longest - len(side)) for side in (first, second, third)]
    rows = [[*one[:2], *two, *three[:2]] for one, two, three in zip(*filled, strict=True)]
    return tabular("lr@{\\quad}lrr@{\\quad}lr", ["", "tokens", "", "tokens", "TV", "", "tokens"], rows)


def _rules_of(sources: Sources, group: str) -> list[list[str]]:
    """Its title, then a row [name, tokens per step, TV] for each rule."""
    rows = [[rf"\emph{{{GROUPS[group]}}}", "", ""]]
    for entry in sources.rules["entries"]:
        if entry["group"] == group:
            name = entry["rule"].partition(":")[0]
            tv = "" if entry["tv"] is None else decimal(entry["tv"], 3)
            rows.append([code(name), decimal(entry["tokens_per_step"], 3), tv])
    return rows


def power(sources: Sources) -> str:
    rows = []
    for family in dict.fromkeys(row["family"] for row in sources.power["mistakes"]):
        members = [row for row in sources.power["mistakes"] if row["family"] == family]
        best = [row["best"] for row in members if row["best"]]
        runs = [row["run"] for row in members if "run" in row]
        rejected = f"{sum(run['rejected'] for run in runs)} of {sum(run['runs'] for run in runs)}"
        tvs = _range(row["tv"] for row in best)
        needed = _range(row["needed"] for row in best if row["needed"])
        rows.append([text(family), whole(len(members)), whole(len(best)), *tvs, *needed, rejected])
    head = ["", "mistakes", "law", r"\multicolumn{2}{c}{TV}", r"\multicolumn{2}{c}{steps needed}", "rejected"]
    return tabular("lrrrrrrr", head, rows)


def _range(values: Iterable[float]) -> list[str]:
    found = sorted(values)
    return [short(found[0]), short(found[-1])] if found else ["--", "--"]


def criteria(sources: Sources) -> str:
    """The criteria, and where each of them stands."""
    rows = [[text(one.name), text(one.source)] for one in sources.matrix.columns if one.name != AUDIT]
    return tabular(rf"l{RAGGED}{{12.5cm}}", ["criterion", "source"], rows)


def kill_matrix_summary(sources: Sources) -> str:
    matrix = sources.matrix
    rows = []
    kernels = [row for row in matrix.rows if not row.exact and not row.decoder]
    missed = {column.name: set(matrix.missed(column.name)) for column in matrix.columns}
    for family in dict.fromkeys(row.family for row in kernels):
        members = {row.name for row in kernels if row.family == family}
        rows.append([text(family), whole(len(members)), *_shares(missed.values(), members)])
    everything = {row.name for row in kernels}
    rows.append(["all", whole(len(everything)), *_shares(missed.values(), everything)])
    head = ["", "of", *(_upright(column.name) for column in matrix.columns)]
    return tabular("lr" + "@{\\hspace{9pt}}r" * len(matrix.columns), head, rows)


def _shares(missed: Iterable[set[str]], members: set[str]) -> list[str]:
    return [whole(len(names & members)) for names in missed]


def _upright(name: str) -> str:
    return rf"\rotatebox{{75}}{{{text(name)}}}"


def kill_matrix(sources: Sources) -> str:
    """Every row, on as many pages as it takes."""
    matrix = sources.matrix
    names = [column.name for column in matrix.columns]
    rows = []
    for family, members in matrix.by_family():
        rows.append([text(family)])
        rows += [
            [code(row.name), _tv(row), *(_cell(sources, row, name) for name in names)] for row in members
        ]
    caption = f"The kill matrix, at level {code(matrix.level)}."
    columns = "lr@{\\quad}" + "r" * len(names)
    return tabular(columns, ["", "TV", *map(_upright, names)], rows, caption=caption, label="matrix")


def _tv(row: Verifier) -> str:
    shown = show_tv(row.tv)
    return short(row.tv) if "e" in shown else text(shown)


def _cell(sources: Sources, row: Verifier, column: str) -> str:
    """The fraction that pass; bold where that is wrong."""
    cell = sources.matrix.cell(row.name, column)
    shown = text(show_cell(cell))
    wrong = cell is not None and (cell.fraction < 1.0 if row.exact else cell.fraction > 0.5)
    return rf"\textbf{{{shown}}}" if wrong else shown


def independent(sources: Sources) -> str:
    """The first audits of each set, and what diagnoses named."""
    kinds = ("wrong verifier", "wrong decoder", "right verifier", "right decoder")
    there = {row["set"] for kind in kinds for row in sources.unseen[kind]}
    sets = [each for each in SETS if each in there]
    rows, names = [], {each: _names_of(each) for each in sets}
    for each in sets:
        some = [[row["found"] for row in sources.unseen[kind] if row["set"] == each] for kind in kinds]
        wrong = [count for one in some[:2] for count in (len(one), sum(one))]
        rows.append([*wrong, *_right(some[2:]), int(names[each][3]), int(names[each][4])])
    total = [sum(column) for column in zip(*rows, strict=True)]
    shown = [[each, *map(whole, row)] for each, row in zip([*sets, "all"], [*rows, total], strict=True)]
    head = [
        "set",
        "wrong verifiers",
        "found",
        "wrong decoders",
        "found",
        "right",
        "accused",
        "named",
        "rightly",
    ]
    return tabular("l" + "r" * (len(head) - 1), head, shown)


def _right(some: Sequence[Sequence[bool]]) -> list[int]:
    return [sum(map(len, some)), sum(map(sum, some))]


def engine_code(sources: Sources) -> str:
    """What is not consistent, with the heading of what was found."""
    rows = []
    for row in sources.code:
        if row["verdict"] in FOUND:
            name = row["engine"].removeprefix("experiments.engines.")
            found = KNOWN[row["engine"]].heading.partition(": ")[2]
            where = f"{row['origin']} {row['version']}"
            rows.append([code(name), text(where), row["verdict"], text(found)])
    columns = rf"l{RAGGED}{{4.6cm}}l{RAGGED}{{5.6cm}}"
    return tabular(columns, ["audited as", "from", "verdict", "what is wrong"], rows)


def engines(sources: Sources) -> str:
    """A row for each way to serve; its pairs together."""
    rows = []
    for name, found in sources.served.items():
        kinds = dict.fromkeys(
            line.partition(":")[0] for row in found for line in row["findings"].splitlines()
        )
        verdicts = dict.fromkeys(row["verdict"] for row in found)
        ratios = sorted(round(row["efficiency"], 2) for row in found if row["efficiency"] is not None)
        efficiency = " to ".join(dict.fromkeys(decimal(ratio, 2) for ratio in (*ratios[:1], *ratios[-1:])))
        least = max(row["detectable_tv"] for row in found)
        version = found[0]["version"]
        shown = ", ".join(verdicts), ", ".join(kinds) or "none"
        rows.append([text(name), text(version), *map(text, shown), efficiency or "--", decimal(least, 3)])
    columns = rf"{RAGGED}{{3.9cm}}l{RAGGED}{{1.9cm}}{RAGGED}{{3.6cm}}rr"
    head = ["", "version", "verdict", "findings", "efficiency", "detectable"]
    return tabular(columns, head, rows)


def methods() -> str:
    """Drafting systems: lossless ones, those whose draft is assumed to be better, and lossy ones."""
    groups: dict[str, Rows] = {
        "Lossless": [],
        "Lossless, with a weight of the target in the draft that is assumed": [],
        "Lossy": [],
    }
    for row in sorted(kept("methods"), key=lambda row: -row["speed_1"]):
        place = 2 if row["tv"] != 0 else 1 if "nearer=" in row["spec"] else 0
        groups[[*groups][place]].append(row)
    speeds = [name for name in next(iter(groups.values()))[0] if name.startswith(("cost_", "speed_"))]
    rows = []
    for title, members in groups.items():
        rows.append([title])
        for row in members:
            tv = "--" if row["tv"] is None else decimal(row["tv"], 3) if row["tv"] else whole(0)
            measured = [decimal(row["tokens"], 2), tv, *(decimal(row[name], 2) for name in speeds)]
            rows.append([code(row["method"]), code(row["rule"]), whole(row["drafted"]), *measured])
    batches = [f"{name.partition('_')[0]}, {name.partition('_')[2]}" for name in speeds]
    head = ["", "rule", "drafted", "tokens", "TV", *(text(one) for one in batches)]
    return tabular("ll" + "r" * (len(head) - 2), head, rows)


def not_reproducible(sources: Sources) -> str:
    """Places and quantities are paragraphs: some are long."""
    rows = [
        [
            f"arXiv:{row.paper}",
            text(row.where),
            text(row.quantity),
            text(row.published),
            decimal(row.recomputed, 2),
        ]
        for row in sources.published
        if row.verdict == "not reproducible"
    ]
    columns = rf"l{RAGGED}{{4.6cm}}{RAGGED}{{5.3cm}}rr"
    return tabular(columns, ["", "where", "quantity", "printed", "recomputed"], rows)


def documents() -> str:
    """The documents of the ledger, and where each of them is found."""
    rows = [[text(title), text(source)] for title, source in SOURCES.items()]
    return tabular(rf"{RAGGED}{{4.8cm}}{RAGGED}{{10.8cm}}", ["document", "source"], rows)


def claims(sources: Sources) -> str:
    rows = sources.rows("claims")
    documents = list(dict.fromkeys(row["document"] for row in rows))
    shown = [[text(name), *_counts([row for row in rows if row["document"] == name])] for name in documents]
    shown.append(["all", *_counts(rows)])
    return tabular("l" + "r" * len(VERDICTS), ["", *map(text, VERDICTS)], shown)


def _counts(rows: Rows) -> list[str]:
    counts = Counter(row["verdict"] for row in rows)
    return [whole(counts[verdict]) for verdict in VERDICTS]


def telling_claims(sources: Sources) -> str:
    rows = sources.rows("claims")
    shown = []
    for name in TELLING:
        row = the(rows, lambda row, name=name: row["id"] == name)
        cells = [text(row[column]) for column in ("document", "quote", "verdict", "correct")]
        shown.append([cell.replace(r"\_", r"\_\allowbreak ") for cell in cells])  # names are wide
    columns = rf"{RAGGED}{{3.4cm}}{RAGGED}{{3.7cm}}{RAGGED}{{1.6cm}}{RAGGED}{{6.2cm}}"
    return tabular(columns, ["document", "quote", "verdict", "correct statement"], shown)
