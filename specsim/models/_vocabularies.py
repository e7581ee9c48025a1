"""Whether two tokenizers number their tokens alike: rules compare p and q token by token, by number.

What must agree is the token of each number that the draft can give. How a tokenizer reads text (normalizer,
merges and so on) need not, since the draft reads the target's tokens; a difference can cost acceptances. Rows
may be longer than the tokenizer, padded to a multiple that suits the hardware; numbers without a token must
have probability 0 on both sides. A head as that of EAGLE-3 drafts only some of the target's tokens:
`draft_vocab_size` in `config.json`, whose number i the tensor `d2t` leads to the target's number d2t[i] + i;
in the GGUF files of llama.cpp to d2t[i].

Read are `tokenizer.json`, of Hugging Face's tokenizers, in folders without it `vocab.json` and `vocab.txt`,
and GGUF files; from `config.json` the length of the rows, and from the files of `NUMBERED` and `NAMED` the
tokens that begin, end and pad texts."""

import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.core._files import check_file, read_table, read_text
from specsim.core._json import parse_json
from specsim.core._tables import NONE, Line, Piece, Shown, Table, as_dict, needed
from specsim.core._tensors import read_tensors
from specsim.core._types import checked

FILES = ("tokenizer.json", "vocab.json", "vocab.txt")
#: Where the numbers of special tokens are looked up, in this order, then their texts.
NUMBERED = ("generation_config.json", "config.json")
NAMED = ("tokenizer_config.json", "special_tokens_map.json")
#: The special tokens, and their names in GGUF files: llama.cpp ends a text at any of three.
ENDS = {"bos": ("bos",), "eos": ("eos", "eot", "eom"), "pad": ("padding",)}
READS = ("merges", "unk", "added tokens")
PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
#: What is said of a comparison.
SAYS: dict[str, str] = read_table("meanings")["vocabularies"]
#: Differences that are shown, and the most characters of a part of a tokenizer.
SHOWN, WIDTH = 8, 40


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a tokenizer by number, as the file writes them.

    From the files beside it come `rows`, the length of the model's rows, or `drafts`, that of a head with
    `d2t`, and `ends`, the numbers of the tokens `bos`, `eos` and `pad`, with the file of each in `origins`.
    `settings` says in short how texts become tokens and tokens texts, and `findings` where files disagree;
    `maps` are the target's numbers that `d2t` of a GGUF file leads to."""

    path: str
    tokens: Mapping[int, str] = field(repr=False)
    rows: int | None = None
    ends: Mapping[str, list[int]] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    drafts: int | None = None
    findings: tuple[str, ...] = ()
    maps: tuple[int, ...] = field(default=(), repr=False)

    def end(self, name: str) -> str:
        """The numbers of a special token, and the file that they are from."""
        numbers = ", ".join(map(str, self.ends.get(name, []))) or NONE
        return f"{numbers} ({self.origins[name]})" if name in self.origins else numbers

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
    token: number, the target's token, the draft's. With `d2t`, `reached` counts the target's tokens that it
    leads to, and `faults` says what is wrong with it."""

    target: Vocabulary
    draft: Vocabulary
    alike: int
    moved: int
    only_target: int
    only_draft: int
    differences: tuple[tuple[int, str | None, str | None], ...]
    reached: int | None = None
    faults: tuple[str, ...] = ()

    columns = ("number", "target", "draft")

    @property
    def same(self) -> bool:
        """Whether every number has the same token in both, or leads to one of the target's."""
        return not self.differences and not self.faults

    @property
    def read_otherwise(self) -> tuple[str, ...]:
        """What differs in how texts become tokens, and tokens texts: "normalizer", "merges" and so on."""
        one, other = self.target.settings, self.draft.settings
        return tuple(name for name in one if name in other and one[name] != other[name])

    @property
    def findings(self) -> tuple[str, ...]:
        """What to know beside the numbers: where files of one model disagree, and what else differs."""
        found = [*self.target.findings, *self.draft.findings]
        if others := ", ".join(name for name in self.read_otherwise if name != "decoder"):
            found.append(SAYS["read otherwise"].format(others))
        if "decoder" in self.read_otherwise:
            found.append(SAYS["decoder"])
        known, reads = self.target.settings.keys() & self.draft.settings.keys(), (*PARTS[:2], *READS)
        if "ggml.pre" not in known and (unknown := [name for name in reads if name not in known]):
            found.append(f"{', '.join(unknown)}: not compared, since they are not in the files of both")
        for name in ("bos", "eos"):
            one, other = (side.ends.get(name, []) for side in (self.target, self.draft))
            if other and not one:
                found.append(f"{name}: the draft's files name it, the target's do not; name it there too")
            elif one != other:
                found.append(f"{name} differs: decode with that of the target")
        return tuple(dict.fromkeys(found))

    @property
    def exit_code(self) -> int:
        """0 if the tokens are the same, else 1."""
        return 0 if self.same else 1

    @property
    def shared(self) -> float:
        """The share of the target's tokens that the draft has, whatever their number."""
        total = len(self.target.tokens)
        return (total - self.only_target if self.reached is None else self.reached) / total

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, without the tokens, for JSON."""
        found = as_dict(self, "same", "shared", "read_otherwise", "findings", without=("target", "draft"))
        for side in ("target", "draft"):
            one: Vocabulary = getattr(self, side)
            found[side] = as_dict(one, "padding", without=("tokens", "maps"), tokens=len(one.tokens))
        return found

    def parts(self) -> Iterator[Piece]:
        sides = self.target, self.draft
        rows = [
            ("tokens", *(f"{len(one.tokens):,}" for one in sides)),
            ("rows of the model", *(NONE if one.rows is None else f"{one.rows:,}" for one in sides)),
            *((("reduced draft vocabulary", NONE, f"{n:,}"),) if (n := self.draft.drafts) else ()),
            ("of them padding", *(NONE if one.padding is None else f"{one.padding:,}" for one in sides)),
            ("of this one alone", f"{self.only_target:,}", f"{self.only_draft:,}"),
        ]
        named = [name for name in ENDS if any(name in one.ends for one in sides)]
        rows += [(name, *(one.end(name) for one in sides)) for name in named]
        rows += [(name, *(one.settings[name] for one in sides)) for name in self.read_otherwise]
        yield self._verdict()
        yield Table(("", "target", "draft"), rows)
        yield SAYS["alike"].format(self)
        if self.differences:
            rows = [
                (number, *(NONE if one is None else repr(one) for one in both))
                for number, *both in self.differences
            ]
            yield Table(self.columns, rows)
        yield from self.findings
        yield from self.faults or self._advice()

    def _verdict(self) -> Line:
        if self.faults:
            return Line("different: d2t does not lead to the target's tokens", "bold red")
        if self.differences:
            return Line("different: numbers mean other tokens, so good drafts are rejected", "bold red")
        compared = "p and q can be compared by number"
        if self.reached is not None:
            own = "" if self.draft.maps else " + i"
            compared += f", the draft's i as d2t[i]{own} ({self.reached:,} tokens of the target, none twice)"
        if self.read_otherwise:
            return Line(f"the same numbers, not the same tokenizer: {compared}", "bold yellow")
        return Line(f"the same: {compared}", "bold green")

    def _advice(self) -> list[str]:
        if self.differences:
            return [SAYS["different"]]
        found: list[str] = []
        lengths = {one.rows for one in (self.target, self.draft)}
        if None not in lengths and len(lengths) > 1:
            found.append(SAYS["lengths"])
        elif any(one.padding for one in (self.target, self.draft)):
            found.append(SAYS["padding"])
        sides = (("target", self.target), ("draft", self.draft))
        return found + [SAYS["without row"].format(side, one) for side, one in sides if one.without_row]

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
        The folder of a model, its `tokenizer.json`, or a GGUF file. The draft may be a head without a
        tokenizer, with `draft_vocab_size` in its `config.json`.

    Returns
    -------
    VocabularyComparison

    Raises
    ------
    ValueError
        For files that are no tokenizer.
    ModuleNotFoundError
        For GGUF files without the package gguf.
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
    first = read_vocabulary(target)
    second = read_vocabulary(draft, first)
    one, other = first.tokens, second.tokens
    numbers = sorted(one.keys() | other.keys())
    different = [number for number in numbers if one.get(number) != other.get(number)]
    ours, theirs = set(one.values()), set(other.values())
    alike = len(numbers) - len(different)
    apart = len(ours & theirs) - alike, len(ours - theirs), len(theirs - ours)
    shown = tuple((number, one.get(number), other.get(number)) for number in different[:SHOWN])
    reached, faults = (None, ()) if second.drafts is None else _check_d2t(second, first, second.drafts)
    return VocabularyComparison(first, second, alike, *apart, shown, reached, faults)


def read_vocabulary(path: str | os.PathLike[str], target: Vocabulary | None = None) -> Vocabulary:
    """The tokens of a tokenizer, from its file or a model's folder; of a head without one, the target's."""
    place = Path(path)
    if place.suffix == ".gguf" and not place.is_dir():
        gguf = needed("gguf", str(check_file(place)), "gguf")
        return _read(place, lambda file: _vocabulary_of_gguf(file, gguf))
    folder = place if place.is_dir() else place.parent
    what = "the configuration of a model"
    said = {name: _read(folder / name, _configuration, what) for name in (*NUMBERED, *NAMED)}
    rows, drafts = (_whole(said["config.json"].get(f"{of}vocab_size")) for of in ("", "draft_"))
    present = [folder / name for name in FILES if (folder / name).is_file()] if place.is_dir() else [place]
    if present:
        tokens, settings = _read(present[0], _tokenizer_of)
    elif target is not None and drafts is not None:
        tokens, settings = target.tokens, target.settings
    else:
        raise ValueError(
            f"{place}: no {', '.join(FILES)}; write one with AutoTokenizer.from_pretrained(…)"
            ".save_pretrained(folder), or give a GGUF file"
        )
    tokens = {**said["tokenizer_config.json"].get("added", {}), **tokens}
    ends, origins, findings = _ends(folder, said, tokens)
    rows, drafts = (rows, None) if drafts in (None, rows) else (None, drafts)
    return Vocabulary(str(path), tokens, rows, ends, origins, settings, drafts, findings)


def _read(file: Path, reader: Callable[[Path], Any], what: str = "a tokenizer") -> Any:
    """What `reader` makes of `file`; whatever is wrong with its content is a ValueError that names it."""
    try:
        return reader(file)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # the package gguf raises anything
        why = str(error).removeprefix(f"{file}: ")
        raise ValueError(f"{file}: not {what} ({why}); save it again") from None


def _tokenizer_of(file: Path) -> tuple[dict[int, str], dict[str, str]]:
    """The tokens in a file, and its settings."""
    if file.suffix == ".txt":
        return _some(dict(enumerate(read_text(file).splitlines()))), {}
    content = parse_json(read_text(file))
    if "model" not in content:  # vocab.json
        return _some(_by_number(content)), {}
    model, settings = content["model"], {name: content.get(name) for name in PARTS}
    vocab, merges = model.pop("vocab"), model.pop("merges", None) or []
    settings["merges"] = [one.split(" ") if isinstance(one, str) else one for one in merges]
    settings["unk"] = model.pop("unk_token", None)
    if isinstance(vocab, list):  # Unigram: pieces with their scores
        tokens = dict(enumerate(piece for piece, _ in vocab))
        settings |= {"scores": [score for _, score in vocab], "unk": tokens.get(model.pop("unk_id", None))}
    else:
        tokens = _by_number(vocab)
    named = {"type": "BPE"} if merges else {}  # older files leave it out
    settings["model"] = named | {key: value for key, value in model.items() if value}
    added = sorted(content.get("added_tokens") or [], key=lambda one: one["id"])
    settings["added tokens"] = [{key: value for key, value in one.items() if value} for one in added]
    tokens |= {_number(one["id"]): str(one["content"]) for one in added}
    return _some(tokens), {name: _in_short(value) for name, value in settings.items()}


def _vocabulary_of_gguf(file: Path, gguf: Any) -> Vocabulary:
    array, string = gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING

    class Reader(gguf.GGUFReader):
        def _get(self, offset: int, dtype: Any, count: int = 1, *more: Any, **named: Any) -> NDArray[Any]:
            found: NDArray[Any] = super()._get(offset, dtype, count, *more, **named)
            if len(found) < count:  # it would go through all of an array that the file says is endless
                raise ValueError(f"it ends at byte {len(self.data):,}, within its values")
            return found

        def _get_field_parts(self, start: int, kind: int) -> Any:
            """Reads arrays in one pass: the package's own way takes half a minute for large vocabularies."""
            item = gguf.GGUFValueType(self._get(start, np.uint32)[0]) if kind == array else array
            if item == array:  # no array, or one of arrays
                return super()._get_field_parts(start, kind)
            count, at, types = int(self._get(start + 4, np.uint64)[0]), start + 12, [array, item]
            if item != string:
                values = self._get(at, self.gguf_scalar_to_np[item], count)
                return 12 + values.nbytes, [values], [0], types
            whole, order = memoryview(self.data), ">" if self.endianess == gguf.GGUFEndian.BIG else "<"
            length, texts = struct.Struct(f"{order}Q"), []
            for _ in range(count):
                end = at + 8 + length.unpack_from(whole, at)[0]
                texts.append(whole[at + 8 : end])
                at = end
            return at - start, texts, [*range(count)], types

    reader, start = Reader(file), "tokenizer.ggml."
    fields, maps = reader.fields, [one.data.tolist() for one in reader.tensors if one.name == "d2t"]
    said = {key.removeprefix(start): one.contents() for key, one in fields.items() if key.startswith(start)}
    texts = said.get("tokens", [])
    if not isinstance(texts, list):
        raise ValueError("tokenizer.ggml.tokens is no list")
    unused = (i for i, kind in enumerate(said.get("token_type", [])) if kind == gguf.TokenType.UNUSED)
    filling = {f"[PAD{i}]" for i in unused}  # so llama.cpp's converter fills the rows
    tokens = {i: text for i, text in enumerate(texts) if text not in filling}
    numbers = {name: [said.get(f"{key}_token_id") for key in keys] for name, keys in ENDS.items()}
    settings = {f"ggml.{key}": said.get(key) for key in ("model", "pre")}
    if "merges" in said:
        settings["merges"] = [one.split(" ") for one in said["merges"]]
    if "unknown_token_id" in said:
        settings["unk"] = tokens.get(said["unknown_token_id"])
    short = {name: _in_short(value) for name, value in settings.items()}
    ends = {name: found for name, some in numbers.items() if (found := _set_of(some))}
    rows, drafts = (None, len(maps[0])) if maps else (len(texts), None)
    return Vocabulary(str(file), _some(tokens), rows, ends, {}, short, drafts, maps=tuple(*maps))


def _some(tokens: dict[int, str]) -> dict[int, str]:
    if not tokens or not all(isinstance(text, str) for text in tokens.values()):
        raise ValueError("it is without tokens, or some are not texts")
    return tokens


def _by_number(vocab: Mapping[str, Any]) -> dict[int, str]:
    tokens = {_number(number): token for token, number in vocab.items()}
    if len(tokens) < len(vocab):
        raise ValueError("two tokens have one number")
    return tokens


def _number(value: Any) -> int:
    if _whole(value) is None:
        raise ValueError(f"{value!r} is not the number of a token")
    return int(value)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _in_short(value: Any) -> str:
    """A part of a tokenizer: itself if it is short, else its kind or length, and a digest."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True)
    if not value or len(text) <= WIDTH:
        return text if value else NONE
    kind = value.get("type") if isinstance(value, dict) else f"{len(value):,}"
    return f"{kind} ({hashlib.sha256(text.encode()).hexdigest()[:12]})"


def _configuration(file: Path) -> dict[str, Any]:
    """What a JSON file of a model says, of its text part too; nothing without the file."""
    if not file.is_file():
        return {}
    content = parse_json(read_text(file))
    text, head = (content.get(name) or {} for name in ("text_config", "transformer_layer_config"))
    added = content.get("added_tokens_decoder") or {}
    added = {_number(int(number)): str(one["content"]) for number, one in added.items()}
    return {**content, **text, **head, "added": added}


def _ends(
    folder: Path, said: Mapping[str, Mapping[str, Any]], tokens: Mapping[int, str]
) -> tuple[dict[str, list[int]], dict[str, str], tuple[str, ...]]:
    """The tokens that begin, end and pad texts, the file of each, and where files disagree on them."""
    numbers = {token: number for number, token in tokens.items()}
    ends, origins, findings = dict[str, list[int]](), dict[str, str](), list[str]()
    for name in ENDS:
        found = {file: _set_of(said[file].get(f"{name}_token_id")) for file in NUMBERED}
        for file in NAMED:
            token = said[file].get(f"{name}_token")
            token = token.get("content") if isinstance(token, dict) else token
            found[file] = _set_of(numbers.get(token) if isinstance(token, str) else None)
            if token and not found[file]:
                findings.append(f"{folder / file}: {name}_token is no token ({token!r}); name one")
        found = {file: some for file, some in found.items() if some}
        if not found:
            continue
        origins[name], chosen = next(iter(found.items()))
        ends[name] = chosen
        if any(
            some != chosen and (file in NUMBERED or some[0] not in chosen) for file, some in found.items()
        ):
            each = ", ".join(f"{some} in {file}" for file, some in found.items())
            findings.append(f"{folder}: {name} is {each}; engines read one or another, so write it into all")
    return ends, origins, tuple(findings)


def _check_d2t(draft: Vocabulary, target: Vocabulary, size: int) -> tuple[int, tuple[str, ...]]:
    """How many tokens of the target the tensor `d2t` leads to, and what is wrong with it."""
    place, tensors = Path(draft.path), dict[str, NDArray[Any]]()
    folder = place if place.is_dir() else place.parent
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    for file in [] if draft.maps else files:
        found, _ = read_tensors(file, ("d2t", "t2d"))
        tensors |= {name.rpartition(".")[2]: tensor for name, tensor in found.items()}
    if draft.maps:
        tensors["d2t"] = np.array(draft.maps) - np.arange(size)
    offsets = tensors.get("d2t", np.zeros(0))
    if offsets.shape != (size,) or offsets.dtype.kind not in "iu":
        what = f"{offsets.dtype} of shape {offsets.shape}" if "d2t" in tensors else "none"
        return 0, (f"d2t: not {size:,} integers in the weights of {place} ({what}); save it with them",)
    numbers = (offsets.astype(np.int64) + np.arange(size)).tolist()
    faults, reached = [], {number for number in numbers if number in target.tokens}
    if lost := [i for i, number in enumerate(numbers) if number not in reached]:
        faults.append(SAYS["lost"].format(len(lost), size, lost[0], numbers[lost[0]]))
    if twice := size - len(lost) - len(reached):
        faults.append(SAYS["twice"].format(twice, size))
    if "t2d" in tensors and np.flatnonzero(tensors["t2d"]).tolist() != sorted(set(numbers)):
        faults.append("t2d: marks other tokens than those that d2t leads to; save both again")
    return len(reached), tuple(faults)


def _set_of(value: Any) -> list[int]:
    return sorted({one for one in (value if isinstance(value, list) else [value]) if _whole(one) is not None})
