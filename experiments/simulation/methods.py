"""Every drafting system on the n-gram pair that comes with specsim: tokens per step, cost, and speed.

Each system of `specsim.simulation.methods` has its default parameters. The cost is that of a roofline: a
target with the dimensions of LLaMA-7B on an A100, at two batch sizes."""

from collections.abc import Sequence

from experiments import Row
from experiments._pages import joined, markdown_table, written
from specsim import default_pair
from specsim.models import Pair
from specsim.planning import compare_methods
from specsim.planning._methods import A100, CONTEXT, KINDS, kind_of, step_cost
from specsim.simulation._grid import show_tv
from specsim.simulation.methods import Method, get, names

TITLE = "Drafting systems on the n-gram pair: tokens per step, cost and speed"
MINUTES = 5

STEPS, FAST_STEPS = 2**13, 2**7
#: Sequences decoded together.
BATCHES = (1, 64)
FAST_METHODS = ("autoregressive", "spectr")


def cells(*, fast: bool) -> list[tuple[str]]:
    """(method,)."""
    return [(name,) for name in names() if not fast or name in FAST_METHODS]


def run_cell(cell: tuple[str], *, fast: bool, rng: int) -> Row:
    """Of one system: `tokens` per step with their standard `error`, and `cost` and `speed` at each batch."""
    steps, pair, method = FAST_STEPS if fast else STEPS, Pair(*default_pair()), get(cell[0])
    (one,) = compare_methods(pair, methods=[method], steps=steps, rng=rng, progress=False).entries
    row: Row = {"method": method.name, "spec": one.method, "rule": one.rule, "drafted": one.drafted}
    row |= {"steps": steps, "tokens": one.tokens_per_step, "error": one.error, "tv": one.tv}
    drafting = method.drafting(pair)
    for batch in BATCHES:
        cost = step_cost(drafting, A100, batch, CONTEXT)
        row |= {f"cost_{batch}": cost, f"speed_{batch}": one.tokens_per_step / cost}
    return row


def page(rows: Sequence[Row]) -> str:
    """docs/results/methods.md."""
    drafted = {row["method"]: row["drafted"] for row in rows}
    values = {
        kind: _table([row for row in rows if kind_of(row["spec"], row["tv"]) == kind]) for kind in KINDS
    }
    values |= {"systems": joined(_described(get(name), drafted[name]) for name in names())}
    return written(
        "methods",
        values | {"steps": f"{rows[0]['steps']:,}", "context": f"{CONTEXT:,.0f}", "batch": str(BATCHES[-1])},
    )


def _table(rows: Sequence[Row]) -> str:
    head = ["method", "tokens/step", "TV", *(part for b in BATCHES for part in (f"cost, batch {b}", "speed"))]
    lines = [
        [f"`{row['method']}`", f"{row['tokens']:.3f} ± {row['error']:.3f}", show_tv(row["tv"])]
        + [text for b in BATCHES for text in (f"{row[f'cost_{b}']:.3f}", f"{row[f'speed_{b}']:.2f}")]
        for row in sorted(rows, key=lambda row: -row["speed_1"])
    ]
    return markdown_table(head, lines)


def _described(one: Method, drafted: int) -> str:
    parameters = ", ".join(f"`{each.name}` = {each.default:g} ({each.meaning})" for each in one.parameters)
    return f"""### {one.title}

`specsim simulate ngram --method {one.name}`. {one.citation}.

{one.modelled} It drafts {drafted} tokens a step, which `{one.rule}` verifies. Not modelled: {one.left_out}

Parameters: {parameters}."""
