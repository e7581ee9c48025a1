r"""Finds numbers that were typed by hand into the text of a LaTeX source.

A number may stand only

- in the arguments of commands that print none of it as it stands (`QUIET`): keys, names of files, lengths,
  options; the note of a \cite may have one, a number of the source that is cited ("Theorem 3.8");
- in a comment, in #1, and in names of things (`NAMES`), as float16;
- in formulas: 0 and 1; and 2, 3 and 4 as an exponent, an index, an argument of \frac or \sqrt, a base, or a
  factor before a letter, so that `$4n\varepsilon^2$` may be typed and `$\gamma = 3$` may not. A formula of
  digits alone is a number in the text.

Words for numbers may be typed up to four, to count what the sentence itself lists; beyond, they are numbers
too. Plurals that count nothing, as in "thousands of rounds", are words."""

from __future__ import annotations

import re
from collections.abc import Iterator


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Commands all of whose arguments, directly behind them, are skipped.
QUIET = _words(
    "documentclass usepackage input includegraphics begin end cite ref eqref label bibliography bibliographystyle"
)
NAMES = _words("EAGLE-2 Philox4x32-10 TestU01 V2 float16 float16\\_ratio float32 bfloat16")
WORDS = _words(
    "five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty "
    "fifty sixty seventy eighty ninety hundred thousand million billion dozen percent"
)
#: What does not make a factor of the number before it.
RELATIONS = _words("\\le \\ge \\ne \\in \\approx \\times \\cdot \\to \\quad \\qquad \\end")
FRACTIONS = frozenset({"\\frac", "\\tfrac", "\\sqrt"})
#: In text a control word, an escaped sign, a parameter, a name or word, a number, or any other sign; in
#: formulas letters are single, and a comma is not part of a number.
TOKEN = re.compile(
    r"\\[A-Za-z]+|\\.|#\d|[A-Za-z][A-Za-z\d]*(?:(?:-|\\_)[A-Za-z\d]+)*|\d+(?:[.,]\d+)*|\.\d+|\s+|.", re.DOTALL
)
SIGN = re.compile(r"\\[A-Za-z]+|\\.|#\d|[A-Za-z]|\d*\.?\d+|\s+|.", re.DOTALL)
PARAMETERS = re.compile(r"(\\newcommand\{\\[A-Za-z]+\})\[\d\]")
COMMENT = re.compile(r"(?<!\\)%.*")
DISPLAYS = r"\\\[.*?\\\]|\\begin\{(?:equation|align)\*?\}.*?\\end\{(?:equation|align)\*?\}"
FORMULA = re.compile(rf"(?<!\\)\$.*?(?<!\\)\$|{DISPLAYS}", re.DOTALL)


def typed_numbers(source: str) -> list[str]:
    """The numbers typed into `source`, each with what stands around it, in order."""
    source = PARAMETERS.sub(r"\1", COMMENT.sub("", source))
    found, start = [], 0
    for formula in FORMULA.finditer(source):
        found += [*_in_text(source[start : formula.start()]), *_in_formula(formula.group())]
        start = formula.end()
    return [*found, *_in_text(source[start:])]


def _in_text(source: str) -> Iterator[str]:
    tokens = _spoken(TOKEN.findall(source))
    for place, token in enumerate(tokens):
        digits = any(sign.isdigit() for sign in token) and not token.startswith("#")
        if token not in NAMES and (digits or set(token.lower().split("-")) & WORDS):
            yield _around(tokens, place)


def _in_formula(source: str) -> Iterator[str]:
    tokens = [token for token in _spoken(SIGN.findall(source)) if not token.isspace()]
    inner = [token for token in tokens if token not in ("$", "\\[", "\\]")]
    alone = all(not token.isalpha() and not token.startswith("\\") for token in inner)
    owners = _owners(tokens)
    for place, token in enumerate(tokens):
        if not any(sign.isdigit() for sign in token) or token.startswith("#"):
            continue
        before, after = tokens[place - 1], tokens[place + 1]
        attached = before in ("^", "_") or owners[place] in FRACTIONS | {"^", "_"}
        factor = (
            after == "^"
            or after.isalpha()
            or (after[:1] == "\\" and after[1:].isalpha() and after not in RELATIONS)
        )
        if alone or not (token in ("0", "1") or (token in ("2", "3", "4") and (attached or factor))):
            yield _around(tokens, place)


def _owners(tokens: list[str]) -> list[str]:
    """For each token what the innermost braces around it belong to: ^, _ or a command; "" outside."""
    owners, stack, closed = [], [""], ""
    for place, token in enumerate(tokens):
        if token == "{":
            before = tokens[place - 1] if place else ""
            stack.append(closed if before == "}" else before)  # the second argument of \frac
        elif token == "}" and len(stack) > 1:
            closed = stack.pop()
        owners.append(stack[-1])
    return owners


def _spoken(tokens: list[str]) -> list[str]:
    """The tokens without the arguments of quiet commands."""
    kept, place = [], 0
    while place < len(tokens):
        token = tokens[place]
        kept.append(token)
        place += 1
        if token[:1] == "\\" and token[1:] in QUIET:
            while place < len(tokens) and tokens[place] in ("[", "{"):
                place = _behind(tokens, place)
    return kept


def _behind(tokens: list[str], place: int) -> int:
    """The place behind the group that begins at `place`."""
    depth = 0
    for end in range(place, len(tokens)):
        depth += (tokens[end] in "[{") - (tokens[end] in "]}")
        if depth == 0:
            return end + 1
    return len(tokens)


def _around(tokens: list[str], place: int) -> str:
    return " ".join("".join(tokens[max(0, place - 8) : place + 9]).split())
