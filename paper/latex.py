"""Numbers and names as LaTeX prints them."""

from __future__ import annotations

from collections.abc import Sequence

SIGNS = {
    "α": r"$\alpha$", "β": r"$\beta$", "γ": r"$\gamma$", "Σ": r"$\Sigma$", "ĉ": r"$\hat c$", "₊": "$_+$", "∫": r"$\int$",
    "·": r"$\cdot$", "×": r"$\times$", "∝": r"$\propto$", "≈": r"$\approx$", "≠": r"$\ne$", "≤": r"$\le$", "≥": r"$\ge$",
    "∈": r"$\in$", "→": r"$\to$", "–": "--", "…": r"\ldots{}", "“": "``", "”": "''",
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"$<$", ">": r"$>$", "|": r"$|$",
    "*": r"$*$", '"': "''",
} | {mark: f"\\{mark}" for mark in "{}#$%&_"}  # fmt: skip
WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def text(words: str) -> str:
    """Words with all signs that LaTeX would misread spelled out. Raises ValueError for one that is not known."""
    strange = sorted({sign for sign in words if not sign.isascii()} - SIGNS.keys())
    if strange:
        raise ValueError(f"{words!r} has {' '.join(strange)}: say in paper/latex.py how LaTeX prints that")
    return "".join(SIGNS.get(sign, sign) for sign in words)


def code(name: str) -> str:
    return rf"\code{{{text(name)}}}"


def listed(items: Sequence[str]) -> str:
    """a, b and c."""
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last


def whole(number: float) -> str:
    """A count, with commas. Raises ValueError for what is none."""
    if number != int(number):
        raise ValueError(f"{number} is not a whole number")
    return f"{int(number):,}".replace(",", "{,}")


def word(number: int) -> str:
    """A count within a sentence: in letters up to ten."""
    return WORDS[number] if 0 <= number < len(WORDS) else whole(number)


def decimal(number: float, places: int) -> str:
    """A number with so many decimals."""
    return rf"\ensuremath{{{number:.{places}f}}}"


def percent(share: float, places: int = 0) -> str:
    return rf"\ensuremath{{{100.0 * share:.{places}f}}}\,\%"


def short(number: float) -> str:
    r"""Two digits; as a power of ten where the number is very small or very large.

    >>> print(short(0.0031), short(8149), short(1e-6), short(8.15e8))
    \ensuremath{0.0031} 8{,}100 \ensuremath{10^{-6}} \ensuremath{8.2\times 10^{8}}
    """
    rounded = float(f"{number:.2g}")
    if rounded == 0 or 1e-4 <= abs(rounded) < 1e2:
        return rf"\ensuremath{{{rounded:g}}}"
    if 1e2 <= abs(rounded) < 1e4:
        return whole(rounded)
    digits, power = f"{number:.1e}".split("e")
    factor = "" if digits == "1.0" else rf"{digits}\times "
    return rf"\ensuremath{{{factor}10^{{{int(power)}}}}}"


def tabular(columns: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with rules above, below the head and below; a row of one cell stands by itself, as a heading."""
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", " & ".join(head) + r" \\", r"\midrule"]
    lines += [line(row, len(head)) for row in rows]
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"]) + "\n"


def line(row: Sequence[str], width: int) -> str:
    cells = row if len(row) > 1 else [rf"\multicolumn{{{width}}}{{l}}{{\emph{{{row[0]}}}}}"]
    return " & ".join(cells) + r" \\"
