"""Whether two tokenizers number their tokens alike: rules compare p and q token by token, by number.

What must agree is the token of each number that the draft can give. How a tokenizer splits text (its merges)
need not, since the draft reads the target's tokens. Rows may be longer than the tokenizer, padded to a
multiple that suits the hardware; numbers without a token must have probability 0 on both sides.

Read are `tokenizer.json`, of Hugging Face's tokenizers, and in folders without it `vocab.json` and
`vocab.txt`; from `config.json` the length of the rows and the tokens that end and pad texts."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specsim.core._arguments import checked
from specsim.core._files import read_text
from specsim.core._json import parse_json
from specsim.core._tables import NONE, Line, Piece, Shown, Table, as_dict

FILES = ("tokenizer.json", "vocab.json", "vocab.txt")
#: Differences that are shown.
SHOWN = 8


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a tokenizer by number, as the file writes them.

    From a `config.json` beside it come `rows`, the length of the model's rows, and `ends`, the numbers of the
    tokens `bos`, `eos` and `pad`."""

    path: str
    tokens: Mapping[int, str] = field(repr=False)
    rows: int | None = None
    ends: Mapping[str, list[int]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """One more than the highest number."""
        return max(self.tokens) + 1

    @property
    def padding(self) -> int | None:
        """How many places of a row no token has; None if its length is not known."""
        return None if self.rows is None else self.rows - sum(number < self.rows for number in self.tokens)

    @property
    def without_row(self) -> int:
        """Tokens whose number is beyond the model's rows; 0 if their length is not known."""
        return 0 if self.rows is None else sum(number >= self.rows for number in self.tokens)


@dataclass(frozen=True, eq=False)
class VocabularyComparison(Shown):
    """Whether the tokens of a target and of a draft have the same numbers.

    `alike` counts the numbers with the same token in both, `moved` the tokens of both with another number in
    each, `only_target` and `only_draft` those of one alone. `differences` are the first numbers with another
    token: number, the target's token, the draft's."""

    target: Vocabulary
    draft: Vocabulary
    alike: int
    moved: int
    only_target: int
    only_draft: int
    differences: tuple[tuple[int, str | None, str | None], ...]

    columns = ("number", "target", "draft")

    @property
    def same(self) -> bool:
        """Whether every number has the same token in both."""
        return not self.differences

    @property
    def exit_code(self) -> int:
        """0 if the tokens are the same, else 1."""
        return 0 if self.same else 1

    @property
    def shared(self) -> float:
        """The share of the target's tokens that the draft has, whatever their number."""
        return (len(self.target.tokens) - self.only_target) / len(self.target.tokens)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, without the tokens, for JSON."""
        found = as_dict(self, "same", "shared", without=("target", "draft"))
        for side in ("target", "draft"):
            one: Vocabulary = getattr(self, side)
            found[side] = as_dict(one, "padding", without=("tokens",), tokens=len(one.tokens))
        return found

    def parts(self) -> list[Piece]:
        sides = self.target, self.draft
        rows = [
            ("tokens", *(f"{len(one.tokens):,}" for one in sides)),
            ("rows of the model", *(NONE if one.rows is None else f"{one.rows:,}" for one in sides)),
            ("of them padding", *(NONE if one.padding is None else f"{one.padding:,}" for one in sides)),
            ("of this one alone", f"{self.only_target:,}", f"{self.only_draft:,}"),
        ]
        for name in ("bos", "eos", "pad"):
            if any(name in one.ends for one in sides):
                rows.append((name, *(", ".join(map(str, one.ends.get(name, []))) or NONE for one in sides)))
        parts: list[Piece] = [
            Table(("", "target", "draft"), rows),
            f"{self.alike:,} numbers have the same token in both, {self.moved:,} tokens another number; the "
            f"draft has {self.shared:.1%} of the target's tokens",
        ]
        if self.differences:
            parts.append(Table(self.columns, [_shown(one) for one in self.differences]))
        return [*parts, *self._advice()]

    def _advice(self) -> list[Piece]:
        if not self.same:
            return [
                Line("different: rules that compare p and q by number do not hold", "bold red"),
                "restrict the draft to the tokens that both have, renumber and renormalise its rows (the "
                "rule token_level_intersection), or decode its tokens to text and encode that again",
            ]
        found: list[Piece] = []
        lengths = {one.rows for one in (self.target, self.draft)}
        if None not in lengths and len(lengths) > 1:
            found.append(
                "the rows have different lengths: cut both to the tokens, and give the padding probability 0"
            )
        elif any(one.padding for one in (self.target, self.draft)):
            found.append("numbers without a token need probability 0 in the rows of both")
        found += [
            f"{one.without_row:,} tokens of the {side} have numbers beyond its rows, which end before "
            f"{one.rows:,}: it never emits them, and they need probability 0 in the other's rows"
            for side, one in (("target", self.target), ("draft", self.draft))
            if one.without_row
        ]
        ends = self.target.ends
        others = [name for name in ("bos", "eos") if name in ends and ends[name] != self.draft.ends.get(name)]
        if others:
            found.append(f"{' and '.join(others)} differ: decode with those of the target")
        return [*found, Line("the same: p and q can be compared by number", "bold green")]

    def records(self) -> list[dict[str, Any]]:
        """A row for each difference that is shown."""
        return [dict(zip(self.columns, one, strict=True)) for one in self.differences]


@checked
def compare_vocabularies(
    target: str | os.PathLike[str], draft: str | os.PathLike[str]
) -> VocabularyComparison:
    """Compare the tokens of a target's tokenizer with those of a draft's.

    Parameters
    ----------
    target, draft : path
        The folder of a model, or its `tokenizer.json`.

    Returns
    -------
    VocabularyComparison

    Raises
    ------
    ValueError
        For files that are no tokenizer.
    OSError
        For paths that cannot be read.

    Examples
    --------
    >>> import json, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name, tokens in {"large": ["a", "b", "c"], "small": ["a", "c", "b"]}.items():
    ...     (folder / name).mkdir()
    ...     model = {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}}
    ...     _ = (folder / name / "tokenizer.json").write_text(json.dumps({"model": model}))
    >>> found = compare_vocabularies(folder / "large", folder / "small")
    >>> found.same, found.alike, found.moved
    (False, 1, 2)
    """
    first, second = read_vocabulary(target), read_vocabulary(draft)
    one, other = first.tokens, second.tokens
    numbers = sorted(one.keys() | other.keys())
    different = [number for number in numbers if one.get(number) != other.get(number)]
    ours, theirs = set(one.values()), set(other.values())
    alike = len(numbers) - len(different)
    return VocabularyComparison(
        first,
        second,
        alike,
        len(ours & theirs) - alike,
        len(ours - theirs),
        len(theirs - ours),
        tuple((number, one.get(number), other.get(number)) for number in different[:SHOWN]),
    )


def read_vocabulary(path: str | os.PathLike[str]) -> Vocabulary:
    """The tokens of a tokenizer, from the folder of a model or its file. Raises as `compare_vocabularies`."""
    place = Path(path)
    if place.is_dir():
        present = [place / name for name in FILES if (place / name).is_file()]
        if not present:
            raise ValueError(
                f"{place}: no {', '.join(FILES)}; write one with AutoTokenizer.from_pretrained(…)"
                ".save_pretrained(folder)"
            )
        place = present[0]
    try:
        tokens = _tokens_of(place)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        why = str(error).removeprefix(f"{place}: ")
        raise ValueError(f"{place}: not a tokenizer ({why}); save it again") from None
    if not tokens:
        raise ValueError(f"{place}: a tokenizer without tokens; save it again")
    return Vocabulary(str(path), tokens, *_configured(place.parent))


def _tokens_of(file: Path) -> dict[int, str]:
    if file.suffix == ".txt":
        return dict(enumerate(read_text(file).splitlines()))
    content = parse_json(read_text(file))
    if "model" not in content:  # vocab.json
        return _by_number(content)
    vocab = content["model"]["vocab"]
    if isinstance(vocab, list):  # Unigram: pieces with their scores
        tokens = dict(enumerate(piece for piece, _ in vocab))
    else:
        tokens = _by_number(vocab)
    return tokens | {_number(one["id"]): str(one["content"]) for one in content.get("added_tokens") or []}


def _by_number(vocab: Mapping[str, Any]) -> dict[int, str]:
    tokens = {_number(number): token for token, number in vocab.items()}
    if len(tokens) < len(vocab):
        raise ValueError("two tokens have one number")
    return tokens


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not the number of a token")
    return value


def _configured(folder: Path) -> tuple[int | None, dict[str, list[int]]]:
    """The length of the rows, and the tokens that begin, end and pad texts; from `config.json`, if any."""
    file = folder / "config.json"
    if not file.is_file():
        return None, {}
    try:
        content = parse_json(read_text(file))
        content = {**content, **(content.get("text_config") or {})}
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{file}: not the configuration of a model ({error}); save it again") from None
    ends = {}
    for name in ("bos", "eos", "pad"):
        value = content.get(f"{name}_token_id")
        numbers = [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, int)]
        if numbers:
            ends[name] = numbers
    rows = content.get("vocab_size")
    return rows if isinstance(rows, int) else None, ends


def _shown(one: tuple[int, str | None, str | None]) -> tuple[str, str, str]:
    number, *tokens = one
    return str(number), *(NONE if token is None else repr(token) for token in tokens)  # type: ignore[return-value]
