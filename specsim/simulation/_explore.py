"""Sliders over what simulated steps give."""

from collections.abc import Sequence
from functools import cache
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from specsim.core._plotting import figure_style
from specsim.core._progress import working
from specsim.core._streams import RandomSource, root_of
from specsim.core._tables import needed
from specsim.core._types import checked
from specsim.models import Model, Pair
from specsim.rules import Rule, get
from specsim.simulation._grid import Sweep, show_tv, sweep
from specsim.simulation._sources import pair_of

RULES = ("standard", "block", "one_hot", "lenience", "scaled_lenience", "greedy_lenience")
GAMMAS = np.arange(1, 13)


@checked
def explore(
    target: ArrayLike | Model | Pair,
    draft: ArrayLike | Model | None = None,
    *,
    rules: Sequence[str | Rule] = RULES,
    steps: int | str = 20_000,
    rng: RandomSource = None,
) -> Any:
    """Show sliders in a notebook, and α, tokens per step, wall time and operations of simulated steps.

    Rule, lenience and temperature simulate γ from 1 to 12 again; γ and c are only drawn.

    Parameters
    ----------
    target, draft : array_like, Model or Pair
        Two pmfs [V] or two models, as for `simulate`.
    rules : sequence of str or Rule
        Rules for one draft to choose from. The lenience is that of rules that have one.
    steps, rng
        Of each γ, as in `simulate`.

    Returns
    -------
    ipywidgets.VBox
        Sliders and, as the last of its `children`, the picture.

    Raises
    ------
    ValueError, TypeError
        As in `simulate`.
    ModuleNotFoundError
        Without ipywidgets.

    Examples
    --------
    >>> shown = explore([0.5, 0.3, 0.2], [0.2, 0.3, 0.5], steps=1000, rng=1)
    >>> [slider.description for slider in shown.children[:-1]]
    ['rule', 'lenience', 'temperature', 'γ', 'c']
    """
    widgets = needed("ipywidgets", "explore", "notebooks")
    root, pair, known = root_of(rng), pair_of(target, draft), {str(rule): get(rule) for rule in rules}
    late = {"continuous_update": False}  # simulates when it is let go
    rule = widgets.Dropdown(options=[*known], description="rule")
    lenience = widgets.FloatSlider(0.5, min=0.05, max=1, step=0.05, description="lenience", **late)
    heat = widgets.FloatSlider(1, min=0, max=2, step=0.1, description="temperature", **late)
    gamma = widgets.IntSlider(5, min=1, max=len(GAMMAS), description="γ")
    c = widgets.FloatLogSlider(0.05, min=-3, max=0, description="c", readout_format=".3f")
    picture = widgets.Image(layout=widgets.Layout(width="100%", max_width="720px"))

    @cache
    def swept(chosen: str, lenient: float | None, temperature: float) -> Sweep:
        of = known[chosen] if lenient is None else known[chosen].with_parameters(lenience=lenient)
        heated: dict[str, Any] = {} if temperature == 1 else {"temperature": [temperature]}
        return sweep(pair, over={"gamma": GAMMAS} | heated, rule=of, steps=steps, rng=root, progress=False)

    def draw(_: object = None) -> None:
        lenience.disabled = "lenience" not in [one.name for one in known[rule.value].parameters]
        found = swept(rule.value, None if lenience.disabled else lenience.value, heat.value)
        picture.value = _png(found, gamma.value, c.value)

    sliders = (rule, lenience, heat, gamma, c)
    with working(None, "compiling", " γ", now=True):  # a line until the first picture is there
        draw()
    for slider in sliders:
        slider.observe(draw, names="value")
    return widgets.VBox([*sliders, picture])


def _png(found: Sweep, gamma: int, c: float) -> bytes:
    """Four panels against γ, with the chosen one marked."""
    from matplotlib.figure import Figure

    run, tv, file = found.runs[gamma - 1], found.tvs[gamma - 1], BytesIO()
    tokens = np.array([one.tokens_per_step for one in found.runs])
    fast, work = tokens / (GAMMAS * c + 1), (GAMMAS * (c + 1) + 1) / tokens
    drawn = {"times as fast": fast, "times the operations (ĉ = c)": work}
    said = ", ".join(f"{values[gamma - 1]:.2f} {name}" for name, values in drawn.items())
    with figure_style():
        figure = Figure(figsize=(7.0, 4.4))
        axes = figure.subplots(2, 2, sharex=True).ravel()
        for axis, y in zip(axes, ("alpha_verified", "tokens_per_step"), strict=False):
            found.plot(axis, y)
        for axis, (name, values) in zip(axes[2:], drawn.items(), strict=True):
            axis.plot(GAMMAS, values, "o-")
            axis.set(ylabel=name)
        for axis in axes:
            axis.axvline(gamma, color="0.5", linewidth=1.0, zorder=0)
            axis.set(xlabel="γ")
        axes[0].set_ylim(0.0, 1.02)
        about = f"{run.rule}, γ = {gamma}, c = {c:.3f}: TV {show_tv(tv)}, {run.tokens_per_step:.2f} tokens"
        figure.suptitle(f"{about} per step,\n{said}", fontsize=9.5)
        figure.savefig(file, format="png", dpi=110)
    return file.getvalue()
