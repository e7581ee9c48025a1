"""Check that two tokenizers agree: a token id must mean the same piece of text to the target and to the
draft.

Compared are, in this order, the number of tokens, the id of each, the special tokens, and the round trip of
texts. Two vocabularies of one size may still number different pieces, so the size alone is not enough.
"""

from collections.abc import Iterable
from typing import Any

#: Texts on which tokenizers are known to differ: spaces, digits, accents, scripts, emoji, code, control
#: characters.
TEXTS = (
    "Hello, world!",
    "  two spaces,\ttab,\n\nand a blank line  ",
    "1234567890 3.14159 1e-9 0x7f",
    "naïve façade Ærø Straße Ελληνικά русский 中文 日本語 한국어 العربية",
    "e\u0301 and \u00e9, \u2126 and \u03a9",
    "\U0001f600\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "def f(x):\n    return {'a': [x ** 2, ...]}  # comment\n",
    "\x00\x07\ufeff\u200b",
)
SPECIAL = ("bos", "eos", "unk", "sep", "cls", "mask")  # padding takes no part in generation


def check_tokenizers(target: Any, draft: Any, texts: Iterable[str] = ()) -> None:
    """Raise ValueError, naming the check that failed, unless two tokenizers agree, on `texts` as well."""
    if len(target) != len(draft):
        raise _differ("size", f"{len(target)} tokens and {len(draft)}")
    ids, other_ids = target.get_vocab(), draft.get_vocab()
    for token, number in ids.items():
        if other_ids.get(token) != number:
            other = other_ids.get(token)
            raise _differ("ids", f"{token!r} is {number} to the target, and {other} to the draft")
    for name in SPECIAL:
        one, other = (getattr(tokenizer, f"{name}_token_id", None) for tokenizer in (target, draft))
        if one != other:
            raise _differ("special tokens", f"{name} is {one} to the target, and {other} to the draft")
    for text in (*TEXTS, *texts):
        one, other = (tokenizer(text)["input_ids"] for tokenizer in (target, draft))
        if one != other:
            raise _differ("round trip", f"{text[:60]!r} becomes {one[:12]} and {other[:12]}")
        back, other_back = (tokenizer.decode(one) for tokenizer in (target, draft))
        if back != other_back:
            raise _differ("round trip", f"{one[:12]} are decoded as {back[:60]!r} and as {other_back[:60]!r}")


def _differ(check: str, what: str) -> ValueError:
    return ValueError(
        f"tokenizers differ, {check}: {what}; "
        "target and draft must share one tokenizer, as models of one family do"
    )
