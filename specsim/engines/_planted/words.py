"""The text of each token: words of lower-case letters, openers of upper-case ones, a space before each.

Tokenizers split text before such words, and look up each of them whole, so that text and tokens are one to
one. `checkpoints.py` writes the same spelling for engines."""

import re
from collections.abc import Sequence
from itertools import count, islice, product
from string import ascii_lowercase

END = "<|end|>"
_TOKEN = re.compile(r" ([a-z]+|[A-Z]+)|<\|end\|>")


class Spelling:
    """The texts of `words` words, of end-of-text, and of `openers` openers, in the order of their ids.

    >>> Spelling(8, 2).decode([0, 1, 7, 9])
    ' a b h A'
    >>> Spelling(8, 2).encode(" a b h A")
    [0, 1, 7, 9]
    """

    def __init__(self, words: int, openers: int):
        letters = (part for size in count(1) for part in product(ascii_lowercase, repeat=size))
        names = [f" {''.join(part)}" for part in islice(letters, max(words, openers))]
        self.texts = [*names[:words], END, *map(str.upper, names[:openers])]
        self._ids = {text: number for number, text in enumerate(self.texts)}

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, whose first word may lack its space, as engines strip it."""
        padded = text if text[:1] in ("", " ", END[0]) else f" {text}"
        found, place = [], 0
        while place < len(padded):
            match = _TOKEN.match(padded, place)
            token = self._ids.get(match[0]) if match else None
            if match is None or token is None:
                shown = padded[place : place + 12]
                raise ValueError(f"text, character {place}: {shown!r} does not begin with a token")
            found.append(token)
            place = match.end()
        return found

    def decode(self, tokens: Sequence[int]) -> str:
        for place, token in enumerate(tokens):
            if not 0 <= token < len(self.texts):
                raise ValueError(
                    f"tokens, position {place}: {token} is outside the vocabulary [0, {len(self.texts)})"
                )
        return "".join(self.texts[token] for token in tokens)
