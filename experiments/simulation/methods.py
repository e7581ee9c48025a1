"""Every drafting system on the n-gram pair that comes with specsim: tokens per step, cost, and speed.

Each system of `specsim.simulation.methods` has its default parameters. The cost is that of a roofline: a
target with the dimensions of LLaMA-7B on an A100, at two batch sizes."""

from collections.abc import Sequence

from experiments import Row
from specsim import default_pair
from specsim.models import Pair
from specsim.planning import compare_methods
from specsim.planning._methods import A100, CONTEXT, step_cost
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
    ordered = sorted(rows, key=lambda row: -row["speed_1"])
    head = "".join(f" cost, batch {batch} | speed |" for batch in BATCHES)
    lines = [f"| method | tokens/step | TV |{head}", "|---" * (3 + 2 * len(BATCHES)) + "|"]
    for row in ordered:
        costs = "".join(f" {row[f'cost_{b}']:.3f} | {row[f'speed_{b}']:.2f} |" for b in BATCHES)
        tokens = f"{row['tokens']:.3f} ± {row['error']:.3f}"
        lines.append(f"| `{row['method']}` | {tokens} | {show_tv(row['tv'])} |{costs}")
    table = "\n".join(lines)
    drafted = {row["method"]: row["drafted"] for row in rows}
    systems = "\n".join(_described(get(name), drafted[name]) for name in names())
    return f"""# Drafting systems

Every system that `specsim list methods` lists, on the n-gram pair that comes with specsim, with
{rows[0]["steps"]:,} steps each. *Cost* is the time of a step in passes of the target over one token of each
sequence, by a roofline: a target with the dimensions of LLaMA-7B on an A100 after {CONTEXT:,.0f} tokens of
context, and drafters whose size is a share of the target's. *Speed* is tokens per step divided by cost: the
speed-up over decoding with the target alone. TV is the total variation between the distribution of a token
and the target's, 0 for a lossless rule, and – where that distribution depends on rows ahead.
`specsim compare ngram --methods all` computes the numbers for a batch of one again,
with `--batch {BATCHES[-1]}` the others.

This is no ranking of the published systems: all of them draft from the rows of one 2-gram model here, where
each has a drafter of its own, and how much nearer to the target EAGLE-3, HASS and DistillSpec bring it
(`nearer`) is an assumption. On another pair the order is another.

{table}

![Speed of the drafting systems](../methods.svg)

Open bars: the rule is lossy.

## The systems

{systems}
"""


def _described(one: Method, drafted: int) -> str:
    parameters = ", ".join(f"`{each.name}` = {each.default:g} ({each.meaning})" for each in one.parameters)
    return f"""### {one.title}

`specsim simulate ngram --method {one.name}`. {one.citation}.

{one.modelled} It drafts {drafted} tokens a step, which `{one.rule}` verifies. Not modelled: {one.left_out}

Parameters: {parameters}.
"""
