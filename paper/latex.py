"""Numbers and words as LaTeX reads them; siunitx, by the commands of paper.tex, rounds and groups digits."""

from collections.abc import Sequence

from specsim.core._tables import SIGNS

WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def text(words: str) -> str:
    """Words, with the characters of LaTeX's syntax escaped. Raises ValueError for an unknown character."""
    strange = sorted({sign for sign in words if not sign.isascii()} - SIGNS.keys())
    if strange:
        raise ValueError(
            f"{words!r} has {' '.join(strange)}: add its LaTeX command to specsim/data/latex.toml"
        )
    return "".join(SIGNS.get(sign, sign) for sign in words)


def code(name: str) -> str:
    """A name in the type of code."""
    return rf"\code{{{text(name)}}}"


def listed(items: Sequence[str]) -> str:
    """a, b and c."""
    *most, last = items
    return f"{', '.join(most)} and {last}" if most else last


def whole(number: float) -> str:
    """A count. Raises ValueError for a number that is not whole."""
    if number != int(number):
        raise ValueError(f"{number} is not a whole number")
    return rf"\num{{{int(number)}}}"


def word(number: int) -> str:
    """A count within a sentence: in letters up to ten."""
    return WORDS[number] if 0 <= number < len(WORDS) else whole(number)


def decimal(number: float, places: int) -> str:
    """A number with `decimals` decimals."""
    return rf"\decimal{{{places}}}{{{float(number)!r}}}"


def percent(share: float, places: int = 0) -> str:
    """A share as a percentage."""
    return rf"\share{{{places}}}{{{100.0 * share!r}}}"


def short(number: float) -> str:
    """A number with two significant digits, as a power of ten below 10^-4 and from 10^4 on."""
    mode = "fixed" if number == 0 or 1e-4 <= abs(number) < 1e4 else "scientific"
    return rf"\short{{{mode}}}{{{float(number)!r}}}"
