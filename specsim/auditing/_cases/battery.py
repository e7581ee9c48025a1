"""The battery: cases of a target and a draft, each designed to expose one kind of defect."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import ArrayLike, NDArray

from specsim.adapters._contract import Declared
from specsim.core._files import read_table
from specsim.core._streams import Key, key_of
from specsim.core._types import Floats, Tokens
from specsim.core.distributions import dyadic, normalise, synthetic_pair
from specsim.models import Mixture, Model, TableModel, Tree, branching, chain, chains
from specsim.models._base import OfTarget, last_tokens, recent_tokens, row_ahead, shared_contexts
from specsim.models._trained_pairs import default_pair
from specsim.rules import Rule


@dataclass(frozen=True)
class Level:
    """Steps of each case: of a rule, of a verifier (at most `verifier_bytes` of rows), of a decoder."""

    rule: int
    verifier: int
    verifier_bytes: int
    decoder: int


LEVELS = {
    "smoke": Level(2**17, 2**14, 2**29, 2**10),
    "quick": Level(2**21, 2**19, 2**33, 2**14),
    "standard": Level(2**25, 2**24, 2**38, 2**19),
    "deep": Level(2**30, 2**29, 2**43, 2**24),
}

#: Limits for rules with a declared law, computed row by row in Python: steps with rows, tokens of a pair.
DECLARED_STEPS, DECLARED_VOCABULARY = 2**10, 1000
#: Bits of the fractions of a row, so that it is exact in a dtype and sums to exactly 1.
BITS = {"float64": 24, "float32": 24, "float16": 11, "bfloat16": 8}


@dataclass(frozen=True)
class Case(OfTarget):
    """A target, a draft model, a draft shape, and a purpose. Steps start at contexts that the models share.

    `rotated`: each row of a step relabels the vocabulary by its own shift, so that all rows of a call differ.
    `uneven`: steps have 0 to γ drafted tokens. `certain`: q is None. A user's verifier gets rows of `dtype`,
    and `weight` times the bytes that `Level` allows; where it is below 1 times the steps too, above smoke."""

    name: str
    purpose: str
    target: Model
    draft: Model
    tree: Tree
    rotated: bool = False
    uneven: bool = False
    certain: bool = False
    dtype: str = "float64"
    weight: float = 1.0

    @property
    def gamma(self) -> int:
        """The most tokens that a step can accept."""
        return self.tree.depth

    @property
    def positions(self) -> int:
        """The most tokens that a step can emit."""
        return self.tree.depth + 1

    @property
    def is_pair(self) -> bool:
        """Whether p and q are the same at every position."""
        return self.target.order == 0 and self.draft.order == 0

    @property
    def pmfs(self) -> tuple[Floats, Floats]:
        """p and q [V] of a pair."""
        p, q = (np.asarray(model.row(()), dtype=np.float64) for model in (self.target, self.draft))
        return p, q

    @property
    def contexts(self) -> NDArray[np.int32]:
        return shared_contexts(self.target, self.draft)

    @cached_property
    def start(self) -> Tokens:
        """The first context."""
        return tuple(self.contexts[0].tolist())

    def drafts(self) -> Iterator[tuple[Tokens, float]]:
        """The drafts after the first context, with their probabilities, from rows of floats."""

        def row(seen: Tokens, ahead: int) -> list[float]:
            return [float(weight) for weight in row_ahead(self.draft, self.start + seen, ahead)]

        return ((tokens, float(chance)) for tokens, chance in self.tree.drafts(row))

    @property
    def step_bytes(self) -> int:
        """Bytes of p and q rows in one step, as float64."""
        return 8 * self.target.vocab_size * (2 * self.tree.size + 1)

    def rule_steps(self, level: str, rule: Rule) -> int:
        """How many steps `level` gives this case for a built-in rule; a multiple of 8."""
        steps = LEVELS[level].rule
        if self.is_pair:
            return steps
        if rule.declared is not None and len(self.contexts) > 1:
            return min(DECLARED_STEPS, steps // 2)
        return steps // 2 * self.tree.depth // self.tree.size // 8 * 8


def case_key(root: int, case: str) -> Key:
    return key_of(root, (crc32(b"audit"), crc32(case.encode())))


def battery(subject: Rule | Declared) -> list[Case]:
    """The cases of a built-in rule, or of a user's verifier with these declarations."""
    if isinstance(subject, Declared):
        return _for_verifier(subject)
    cases = [fixed_case(name, BITS["float64"]) for name in _PAIRS] + [_markov(24), _ngrams()]
    if subject.declared is not None:
        cases = [case for case in cases if case.target.vocab_size <= DECLARED_VOCABULARY]
    shape = partial(chains, 2) if subject.claimed_on_trees else chain
    return [replace(case, tree=shape(case.tree.size, subject.draft_sampling[0])) for case in cases]


def _for_verifier(declared: Declared) -> list[Case]:
    (first, *others), most = declared.dtypes, declared.gamma
    cases = _on_trees(declared, first) if declared.tree else _on_chains(declared, first)
    for dtype in others:
        for name in ("two-point", "asymmetric", "zeros"):
            case = replace(fixed_case(name, BITS[dtype]), name=f"{name}, {dtype}", purpose=f"rows of {dtype}")
            tree = chains(2, 2, declared.draft_sampling) if declared.tree else case.tree
            cases.append(replace(case, tree=tree, dtype=dtype))
    return [
        replace(case, tree=chain(most, case.tree.draft_sampling)) if most and case.gamma > most else case
        for case in cases
        if declared.vocab_size is None or case.target.vocab_size <= declared.vocab_size
    ]


def _on_chains(declared: Declared, dtype: str) -> list[Case]:
    bits = BITS[dtype]
    # calls in the shapes of a server have as many ids
    cases = [fixed_case(name, bits) for name in _PAIRS if name != "Zipf 32 000"]
    cases += [fixed_case(name, bits) for name in ("own rows", "last token", "nearly certain")]
    # as in a test of vLLM: a draft in the opposite order shows shared noise
    p, text = normalise(np.exp(np.linspace(1.5, -1.5, 16))), "a draft that ranks tokens the other way round"
    cases.append(pair_case("opposite", text, (p, p[::-1]), 2, bits, weight=0.5))
    cases += [_markov(bits), fixed_case("crossed rows", bits)]
    if bits == 24:  # coarser rows cannot hold these
        # rows of a softmax, which sum to 1 only to the dtype's rounding: no deviation that can be detected
        target, draft = map(TableModel, normalise(np.random.default_rng(5).gamma(0.5, size=(2, 24))))
        cases.append(Case("rounded rows", "rows that sum to 1 only to rounding", target, draft, chain(3)))
        cases += [_flat_tail(), _ngrams()]
    if declared.lengths:
        cases.append(fixed_case("uneven lengths", bits))
    if declared.one_hot:
        cases.append(fixed_case("no q", bits))
    return [replace(case, dtype=dtype) for case in cases]


def _on_trees(declared: Declared, dtype: str) -> list[Case]:
    """Two chains, and a tree that branches twice."""
    bits, way = BITS[dtype], declared.draft_sampling
    cases, branches = [], branching(2, 2, draft_sampling=way)
    for name in ("two-point", "asymmetric", "zeros", "identical", "irregular"):
        case = fixed_case(name, bits)
        for shape in (chains(2, 2, way), branches):
            text = "two chains" if shape.children(1) == (3,) else "branches"
            cases.append(replace(case, name=f"{name}, {text}", tree=shape, dtype=dtype))
    return [*cases, replace(_markov(bits), tree=branches, dtype=dtype)]


@cache
def fixed_case(name: str, bits: int) -> Case:
    given = dict((_PAIRS | _FOR_VERIFIERS)[name])
    rows = given.pop("rows", None) or synthetic_pair(*given.pop("synthetic"), rng=0)
    return pair_case(name, rows=rows, bits=bits, **given)


def pair_case(
    name: str, purpose: str, rows: Iterable[Any], gamma: int, bits: int, start: Any = None, **more: Any
) -> Case:
    """Rows that sum to exactly 1 in a dtype with these `bits`; steps start at `start`, or at any context."""
    target, draft = (TableModel(dyadic(row, bits), start) for row in rows)
    return Case(name, purpose, target, draft, chain(gamma), **more)


#: The fixed pairs by name: those of rules too, and those of verifiers alone.
_PAIRS, _FOR_VERIFIERS = read_table("pairs").values()


@cache
def _flat_tail() -> Case:
    """A tail of 2^17 tokens, each just rarer than float32's smallest exponential, 2^-24. At level quick 41
    are expected; with half the steps there would be none with probability 10^-9."""
    size, tail = 2**17, 2.0**-7.05
    p, q = np.full((2, size), tail / size)
    p[:3] += (1.0 - tail) * np.array([0.5, 0.25, 0.25])
    q[:3] += (1.0 - tail) * np.array([0.25, 0.5, 0.25])
    purpose = "a tail of tokens each below 2^-24, likely only together"
    return pair_case("flat tail 131 072", purpose, (p, q), 1, 40, weight=2)


def _markov(bits: int) -> Case:
    """A Markov chain whose rows differ in every context, some entries zero; steps start after token 0."""
    rng = np.random.default_rng(2)
    kept = [rng.gamma(0.7, size=(4, 4)) * (rng.uniform(size=(4, 4)) < 0.85) for _ in range(2)]
    rows = normalise(np.array(kept) + np.eye(4) * 0.05)
    return pair_case("Markov chain", "rows that change with every token", rows, 3, bits, [[0]])


def _ngrams() -> Case:
    """Its rows, which no table holds, take longer to make and to send than those of others."""
    target, draft = default_pair()
    purpose = "bytes of real text, 5-gram target, 2-gram draft"
    return Case("n-gram pair", purpose, target, draft, chain(5), weight=0.25)


# The battery of decoders: small models whose sequences can be counted, each to expose one defect. Rows are
# 24-bit dyadic fractions, which sum to exactly 1. V^max_new_tokens is at most 512, so that the next token is
# counted after every prefix; sequences are long enough for several steps of two or three drafted tokens.

#: How far back the models read that read the whole text.
BACK = 17


@dataclass(frozen=True)
class DecoderCase(OfTarget):
    """Requests to a decoder, the `prompts` in turn: emit `max_new_tokens` tokens, or up to and with `eos`."""

    name: str
    purpose: str
    target: Model
    draft: Model
    prompts: tuple[tuple[int, ...], ...]
    max_new_tokens: int
    eos: int | None = None
    tree = None
    is_pair = False

    def prompt_of(self, number: int) -> tuple[int, ...]:
        return self.prompts[number % len(self.prompts)]

    @property
    def reads_all(self) -> bool:
        """Whether a row depends on more of the text than its last tokens."""
        return getattr(self.target, "reads_all", False)

    @property
    def positions(self) -> int:
        """The most tokens of a sequence."""
        return self.max_new_tokens


def decoder_battery() -> list[DecoderCase]:
    return [_case(**case) for case in _CASES]


def _case(*, models: list[Any], prompts: list[list[int]], mixed: float = 0.0, **more: Any) -> DecoderCase:
    rows = _made(models) if isinstance(models[0], str) else map(_made, models)
    target, draft = (one if isinstance(one, WholeText) else ContextTable(dyadic(one)) for one in rows)
    if mixed:
        given = Mixture(draft, target, mixed).rows(target.contexts)
        draft = ContextTable(dyadic(given.reshape((target.vocab_size,) * (target.order + 1))))
    return DecoderCase(target=target, draft=draft, prompts=tuple(map(tuple, prompts)), **more)


def _made(given: list[Any]) -> Any:
    """Rows that a function here makes, or that are given."""
    return globals()[f"_{given[0]}"](*given[1:]) if isinstance(given[0], str) else np.array(given)


@dataclass(frozen=True, eq=False)
class WholeText:
    """A model of a whole text: `table` [2, V, V, V, V] by the parity of its length, its first token, the
    one 17 back, the last (0 if missing)."""

    table: Floats
    order = 1
    reads_all = True

    @property
    def vocab_size(self) -> int:
        return self.table.shape[-1]

    @property
    def contexts(self) -> NDArray[np.int32]:
        return np.zeros((1, 1), dtype=np.int32)

    def rows(self, histories: ArrayLike, out: Floats | None = None) -> Floats:
        length = np.asarray(histories).shape[1]
        texts = recent_tokens(histories, length, self.vocab_size)
        if length == 0:
            texts = np.zeros((len(texts), 1), dtype=np.int32)
        back = texts[:, -BACK] if length >= BACK else np.zeros_like(texts[:, 0])
        return np.positive(self.table[length % 2, texts[:, 0], back, texts[:, -1]], out=out)

    def row(self, context: Sequence[int]) -> Floats:
        text = last_tokens(context, len(context), self.vocab_size)
        first, last = (text[0], text[-1]) if text else (0, 0)
        return self.table[len(text) % 2, first, text[-BACK] if len(text) >= BACK else 0, last].copy()


class ContextTable(TableModel):
    """A table whose row for a text shorter than it reads is the mean over the tokens that are missing."""

    def __init__(self, table: Floats):
        super().__init__(table)
        #: For 0, 1, … tokens n the rows [V]*n + [V].
        self.shorter = [dyadic(table.mean(axis=tuple(range(self.order - n)))) for n in range(self.order)]
        for rows in self.shorter:
            rows.flags.writeable = False

    def rows(self, histories: ArrayLike, out: Floats | None = None) -> Floats:
        length = np.asarray(histories).shape[1]
        if length >= self.order:
            return super().rows(histories, out)
        texts = recent_tokens(histories, length, self.vocab_size)
        rows = self.shorter[length][tuple(texts.T)]
        return np.positive(np.broadcast_to(rows, (len(texts), self.vocab_size)), out=out)

    def row(self, context: Sequence[int]) -> Any:
        if len(context) >= self.order:
            return super().row(context)
        text = last_tokens(context, len(context), self.vocab_size)
        return self.shorter[len(text)][tuple(text)]


def _whole_text() -> tuple[WholeText, WholeText]:
    target, other = (_irregular(seed, 3, 3)[None] for seed in (12, 13))
    p = np.concatenate([target, target[..., ::-1]])
    return WholeText(dyadic(p)), WholeText(dyadic(0.6 * p + 0.4 * np.concatenate([other, other])))


def _irregular(seed: int, vocab_size: int, order: int, zeros: float = 0.0) -> Floats:
    """Rows [V, …, V] that differ in every context; a share `zeros` of the entries is 0."""
    rng = np.random.default_rng(seed)
    weights = rng.gamma(1.5, size=(vocab_size,) * (order + 1)) + 0.1
    weights[rng.uniform(size=weights.shape) < zeros] = 0.0
    weights[..., -1] += weights.sum(axis=-1) == 0.0
    return normalise(weights)


def _peaked(vocab_size: int, order: int, *masses: float) -> Floats:
    """Rows [V, …, V], each a rotation of `masses` [V] that depends on all tokens of the context."""
    turns = np.indices((vocab_size,) * order).sum(axis=0)
    return np.array(masses)[(np.arange(vocab_size) - turns[..., None]) % vocab_size]


def _end(vocab_size: int, *seeds: int) -> tuple[Floats, Floats]:
    """Target and draft of a text that token 0 ends; the draft draws it more often."""
    p, q = (_irregular(seed, vocab_size, order) for seed, order in zip(seeds, (2, 1), strict=True))
    p[..., 0], q[..., 0] = 0.25 * p[..., 1:].sum(axis=-1), 0.6 * q[..., 1:].sum(axis=-1)
    return normalise(p), normalise(q)


def _far() -> tuple[Floats, Floats]:
    """The target favours two tokens that the draft seldom proposes, chosen by both tokens before."""
    p, q = np.full((4, 4, 4), 0.02), _irregular(10, 4, 1)
    for a, b in np.ndindex(4, 4):
        p[a, b, (a + b) % 2], p[a, b, (a + b + 1) % 2] = 0.72, 0.24
    q[:, :2] *= 0.05
    return p, normalise(q)


_CASES = read_table("decoder_cases")["case"]
