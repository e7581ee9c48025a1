"""The contract of a user's verifier or decoder, and the declarations that extend it.

    verifier(draft_tokens int64[B, γ], p float[B, γ+1, V], q float[B, γ, V], rng) -> int[B, γ+1]

Each row of the result holds the accepted tokens and one more, padded with -1; `rng` is a NumPy Generator, the
only source of randomness. `declares` extends these arguments, and the audit tests the extensions:

    lengths    keyword lengths=int64[B]: row s has lengths[s] ≤ γ drafted tokens; entries after them are noise
    seeds      keyword seeds=list[int | None]: a row with a seed gives the same tokens in every batch
    uniforms   keyword uniforms=float64[B, γ+1]: all randomness, for γ accept tests and the last token
    one_hot    q may be None: the draft emits its tokens with probability 1
    tree       (parents int64[n], tokens int64[n], p[n+1, V], q[m, V], rng) -> (path, token): a step of a
               draft tree; node 0 is the root, node j + 1 is token j, and parents[j] its parent node; row k of
               p and q is the distribution of the token after node k; q has rows up to the last node with
               children; path lists the accepted nodes below the root
    decoder    (target, draft, prompt, max_new_tokens, eos, rng) -> the new tokens: the whole loop; with
               `batch`, for a list of up to that many prompts, and the result is a list of texts

The first four are only for verifiers of chains."""

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from specsim import rules
from specsim.core._types import check_between, check_choice, check_count, checked
from specsim.models._drafts.sampling import SAMPLING_METHODS
from specsim.models._processed import Processing

Verifier = Callable[..., Any]
F = TypeVar("F", bound=Verifier)

ARRAYS = ("numpy", "torch", "jax", "cupy")
DTYPES = ("float64", "float32", "float16", "bfloat16")
_OF_CHAINS = ("lengths", "seeds", "uniforms", "one_hot")


#: The line between a traceback and the code of a call that raises it.
SHOWN_BY = "This call shows it:"


class BrokenVerifier(Exception):
    """The verifier broke its contract: how, in which step, and as `details` the traceback, if any."""

    def __init__(self, text: str, details: str = ""):
        super().__init__(text)
        self.details = details


class LostVerifier(BrokenVerifier):
    """Its process had to be replaced."""


class NotADraftPath(Exception):
    """A step emitted, before its last token, a token that was not drafted."""


@checked
@dataclass(frozen=True)
class Declared(Processing):
    """The declarations of a verifier; the defaults are those of the plain contract.

    Parameters
    ----------
    arrays : {"numpy", "torch", "jax", "cupy"}
        Library of the arrays; NumPy arrays are read-only.
    device : str
        Where the arrays are: "cpu", "cuda", "cuda:1", or what else the library knows. CuPy has "cuda" alone.
    dtypes : tuple of str
        dtypes of the rows: the first in most cases, each other one in some.
    batch, gamma, vocab_size : int, optional
        Most rows of a call, most drafted tokens of a row, and largest vocabulary; None: no limit. For a
        decoder `batch` is the most requests of a call; None: it takes one prompt, not a list of them.
    lengths, seeds, uniforms, one_hot, tree, decoder : bool
        Other arguments than those of the plain contract, see `specsim.adapters._contract`.
    reproducible : bool
        Whether the same rng gives the same tokens.
    rule : str
        A built-in lossy rule, such as "typical:epsilon=0.09,delta=0.3", whose declared distribution the
        tokens follow instead of the target's. Only the cases of one p and one q are then tested.
    draft_sampling : str
        How siblings are drawn for a verifier of trees, see `specsim.models`.
    repetition_penalty, frequency_penalty, presence_penalty, logit_bias, grammar, min_tokens : optional
        How a decoder processes rows: p to the power of the repetition penalty for tokens of the text so far,
        times exp(bias) for pairs (token, bias), and exp(-penalty) for new tokens, once or each time that they
        occur; p(eos) = 0 before `min_tokens` new ones. Of pairs (token, tokens) in the grammar, p is 0 for
        all but these after that token, unless all of these have p = 0.
    temperature, top_k, top_p, min_p : float, int or None, float, float
        What it does then, in this order: temperature 0 is the argmax; `top_k` None keeps all tokens.
    """

    arrays: str = "numpy"
    device: str = "cpu"
    dtypes: tuple[str, ...] = ("float64",)
    batch: int | None = None
    gamma: int | None = None
    vocab_size: int | None = None
    lengths: bool = False
    seeds: bool = False
    uniforms: bool = False
    one_hot: bool = False
    reproducible: bool = True
    tree: bool = False
    rule: str = ""
    draft_sampling: str = "sampled"
    decoder: bool = False

    def __post_init__(self) -> None:
        given = (self.dtypes,) if isinstance(self.dtypes, str) else self.dtypes
        for dtype in given:
            check_choice("dtypes", dtype, DTYPES)
        dtypes = tuple(dict.fromkeys(given))
        object.__setattr__(self, "dtypes", dtypes)
        try:
            bias = tuple((operator.index(token), float(more)) for token, more in self.logit_bias)
        except (TypeError, ValueError):
            raise ValueError(f"logit_bias: {self.logit_bias!r}; give pairs of a token and a number") from None
        object.__setattr__(self, "logit_bias", bias)
        try:
            follow = tuple((operator.index(a), tuple(map(operator.index, some))) for a, some in self.grammar)
        except (TypeError, ValueError):
            raise ValueError(f"grammar: {self.grammar!r}; give pairs (token, its successors)") from None
        object.__setattr__(self, "grammar", follow)
        check_choice("arrays", self.arrays, ARRAYS)
        if self.arrays == "cupy" and "bfloat16" in dtypes:
            raise ValueError("dtypes: CuPy has no bfloat16; leave it out")
        if self.arrays == "cupy" and self.device == "cpu":
            object.__setattr__(self, "device", "cuda")
        if self.device != "cpu" and self.decoder:
            raise ValueError(
                f"device: {self.device!r} for a decoder, which gets models and no arrays; leave device out"
            )
        if self.device != "cpu" and self.arrays == "numpy":
            raise ValueError(
                f"device: {self.device!r} for a verifier of NumPy arrays, which are on the CPU; declare "
                "arrays='torch', 'jax' or 'cupy', or leave device out"
            )
        if not dtypes:
            raise ValueError(f"dtypes: the tuple is empty; give some of {', '.join(DTYPES)}")
        for name, least in (("batch", 1), ("gamma", 1), ("vocab_size", 2)):
            size = getattr(self, name)
            if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < least):
                raise ValueError(f"{name}: {size!r} is not an integer of at least {least}")
        for name in (*_OF_CHAINS, "reproducible", "tree", "decoder"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name}: {getattr(self, name)!r} is neither True nor False")
        if self.tree and self.decoder:
            raise ValueError("tree, decoder: a function is one or the other; declare only one")
        if (self.tree or self.decoder) and (more := [name for name in _OF_CHAINS if getattr(self, name)]):
            raise ValueError(f"{', '.join(more)}: only a verifier of chains can declare this")
        if self.rule and (self.tree or self.decoder or self.lengths or self.one_hot):
            raise ValueError("rule: only verifiers of chains of one length, with q, can declare lossy rules")
        if self.rule and rules.get(self.rule).declared is None:
            raise ValueError(f"rule: {self.rule!r} is lossless; declare a lossy rule, or none")
        if self.rule:
            check_local(rules.get(self.rule))
        check_choice("draft_sampling", self.draft_sampling, SAMPLING_METHODS)
        check_between("repetition_penalty", self.repetition_penalty, 0.0, math.inf, "positive number", "(]")
        super().__post_init__()
        for name in ("frequency_penalty", "presence_penalty"):
            check_between(name, getattr(self, name), -2.0, 2.0, "number")
        check_count("min_tokens", self.min_tokens, 0)


def on_device(promise: Declared, device: str | None) -> Declared:
    """`promise`, with arrays on `device` if that is given. Raises ValueError if they cannot be there."""
    if device is None:
        return promise
    found = replace(promise, device=device)
    if found.device != device:
        raise ValueError(f"device: {device!r} is not a device of CuPy; leave device out")
    return found


def check_local(rule: rules.Rule) -> None:
    """Raise ValueError if the rows at a position do not determine the distribution of tokens of `rule`."""
    if rule.looks_ahead:
        raise ValueError(
            f"rule: what {rule.name} declares depends on rows after a token, which an audit does not "
            f"have; prove it instead: specsim prove --rule {rule}"
        )


@checked
def declares(**promises: Any) -> Callable[[F], F]:
    """Decorator that declares the arguments of a verifier or decoder.

    Parameters
    ----------
    **promises
        Fields of `Declared`, such as dtypes=("float32",) or batch=1.

    Returns
    -------
    callable
        A decorator that sets the attribute `declared` of the function.

    Raises
    ------
    TypeError
        If a name is not a field of `Declared`.
    ValueError
        If a value is out of range.

    Examples
    --------
    >>> @declares(batch=1, dtypes=("float32",))
    ... def verify(draft_tokens, p, q, rng): ...
    >>> declared(verify).batch
    1
    """
    promise = _promise(promises)

    def attach(function: F) -> F:
        function.declared = promise  # type: ignore[attr-defined]
        return function

    return attach


def declared(function: Verifier) -> Declared:
    """The `Declared` of `function`: its attribute `declared`, which may be a dict. Raises as `declares`."""
    if (found := getattr(function, "declared", None)) is None:
        return Declared()
    if not isinstance(found, Declared | Mapping):
        raise TypeError(f"declared: expected a dict of promises, got {type(found).__name__}")
    return found if isinstance(found, Declared) else _promise(found)


def _promise(promises: Mapping[str, Any]) -> Declared:
    known = {field.name for field in fields(Declared)}
    if unknown := set(promises) - known:
        raise TypeError(f"declared: no such promise {sorted(unknown)}; known are {', '.join(sorted(known))}")
    return Declared(**promises)
