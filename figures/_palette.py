"""Colours that mean the same in every figure."""

from __future__ import annotations

__all__ = ["COLORS", "GREY", "VERDICTS"]

#: One for each line of a family, as the style's cycle has them, from light work to heavy.
COLORS = ("#2a5c8a", "#d1793b", "#4f8f5b", "#9b5a8c", "#b8a13a")
GREY = "#5a5a5a"

#: The verdicts on published values.
VERDICTS = {"reproduced": COLORS[0], "within rounding": "#8a7a1c", "not reproducible": "#b3262e"}
