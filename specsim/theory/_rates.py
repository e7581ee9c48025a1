"""The table of rates of simulations, traces and generated texts: tokens per step, and three α."""

import math
from collections.abc import Mapping
from typing import Any

from specsim.core._tables import NONE, Table, span
from specsim.theory._acceptance import expected_tokens

#: How the rates are shown.
LABELS = {
    "tokens_per_step": "tokens per step",
    "alpha_context": "α context",
    "alpha_verified": "α verified",
    "alpha_drafted": "α drafted",
}


def rates(
    found: Any, gamma: int | None, errors: Mapping[str, float] | None = None, closed_form: float | None = None
) -> Table:
    """The table of `found`, which has each rate as a number or as bounds, with standard `errors` by name.

    A third column has what the i.i.d. formula makes of each α for a chain of `gamma` tokens, else the closed
    form of the tokens per step."""
    rows = []
    for name, label in LABELS.items():
        value = getattr(found, name)
        if value is None or isinstance(value, tuple):
            rows.append([label, NONE if value is None else span(value, "{:.5f}".format), ""])
            continue
        iid = "" if gamma is None or name == "tokens_per_step" else f"{expected_tokens(value, gamma):.5f}"
        rows.append([label, with_error(value, (errors or {}).get(name)), iid])
    if gamma is None and closed_form is not None:
        rows = [[label, mean, f"{closed_form:.5f}" * (label == rows[0][0])] for label, mean, _ in rows]
        return Table(("", "mean", "closed form"), rows)
    if gamma is None:
        return Table((), [row[:2] for row in rows])
    return Table(("", "mean", "i.i.d. formula: tokens per step"), rows)


def with_error(value: float, error: float | None) -> str:
    """A mean with its standard error, if it has one: of a single step it is NaN, shown as a dash."""
    if error is None:
        return f"{value:.5f}"
    return f"{value:.5f} ± {NONE if math.isnan(error) else format(error, '.5f')}"
