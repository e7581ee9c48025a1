"""Policies that a server follows; `_kernel.py` carries them out, iteration by iteration."""

from dataclasses import dataclass, fields

import numpy as np

from specsim.core._numbers import real, whole
from specsim.core._parameters import read_options, split_name, written
from specsim.core._types import Floats, check_known, checked, said_of
from specsim.planning._batch import _kernel as code
from specsim.planning._policies._kinds import AnyPolicy, Constant, Goodput, Heuristic, Oracle


@checked
@dataclass
class Budget(AnyPolicy):
    """At most `tokens` verified in an iteration, given one by one where acceptance is most probable.

    The throughput part of AdaServe (arXiv 2501.12162), on chains: a token of every request is verified
    anyway, and the rest of the budget goes to the request whose next drafted token has the largest
    probability α^k of being reached and accepted, k tokens at most `max_gamma`. α is the request's own,
    accepted over tested tokens, with `alpha` as a prior of 8 tests. Of equal requests the oldest comes first.
    Prompts take nothing of the budget. Objectives of latency are not modelled."""

    max_gamma: int = 8
    tokens: int = 128
    alpha: float = 0.7

    counts, probabilities = ("max_gamma", "tokens"), ("alpha",)


@checked
@dataclass
class Blocks(Budget):
    """As `Budget`, of blocks of `max_gamma` tokens that one pass of the drafter writes for every request.

    DSpark's confidence-scheduled verification (arXiv 2607.05147): what is drafted is settled, and the budget
    decides how much of each block is verified. Its confidence is a head's; here, the request's own α^k."""


@checked
@dataclass
class Bands(AnyPolicy):
    """For each request 6, 4, 3 or 2 tokens, where more than .8, .6, .4 or less of its drafts were accepted.

    The rule of thumb of a guide (see the page of checked claims), which counts accepted over *drafted*
    tokens; `alpha` is a prior of 8 drafted tokens, and no draft is longer than `max_gamma`."""

    max_gamma: int = 6
    alpha: float = 0.7

    counts, probabilities = ("max_gamma",), ("alpha",)


@checked
@dataclass
class Classifier(AnyPolicy):
    """Stop after the first token that a classifier takes for rejected, at the latest after `max_gamma`.

    As DISCO (Mamou et al., arXiv 2405.04304), whose classifier reads the draft's probabilities. This one errs
    at random: it takes a token that will be rejected, or follows one, for accepted with probability `missed`,
    and one that will be accepted for rejected with probability `false_alarm`. Its time is not counted."""

    max_gamma: int = 16
    missed: float = 0.3
    false_alarm: float = 0.1

    counts, probabilities = ("max_gamma",), ("missed", "false_alarm")


#: The policies that a server follows: their codes, and what the compiled loop reads, the longest draft first.
SERVED: dict[type[AnyPolicy], tuple[int, tuple[str, ...]]] = {
    Constant: (code.CONSTANT, ("gamma",)),
    Goodput: (code.GOODPUT, ("max_gamma", "window", "alpha")),
    Budget: (code.BUDGET, ("max_gamma", "tokens", "alpha")),
    Blocks: (code.BLOCKS, ("max_gamma", "tokens", "alpha")),
    Bands: (code.BANDS, ("max_gamma", "alpha")),
    Classifier: (code.CLASSIFIER, ("max_gamma", "missed", "false_alarm")),
    Heuristic: (code.HEURISTIC, ("max_gamma", "gamma")),
    Oracle: (code.ORACLE, ("max_gamma",)),
}
#: The same by their names.
KINDS: dict[str, type[AnyPolicy]] = {kind.__name__.lower(): kind for kind in SERVED}


def for_kernel(policy: AnyPolicy) -> tuple[int, Floats]:
    """The code of a policy, and what the compiled loop reads of it. Raises TypeError or ValueError."""
    if type(policy) not in SERVED:
        names = ", ".join(kind.__name__ for kind in SERVED)
        raise TypeError(f"policy: a server cannot follow {policy!r}; give one of {names}")
    number, sent = SERVED[type(policy)]
    for field in fields(policy):
        if field.name not in sent and getattr(policy, field.name) != field.default:
            raise ValueError(f"policy: {field.name} has no meaning on a server; leave it out")
    return number, np.array([getattr(policy, name) for name in sent], dtype=np.float64)


def spec_of(policy: AnyPolicy) -> str:
    """The policy as `policy_named` reads it."""
    kind = type(policy)
    sent = {name: getattr(policy, name) for name in SERVED[kind][1]}
    return "none" if policy == Constant(0) else written(kind.__name__.lower(), sent)


def policy_named(text: str) -> AnyPolicy:
    """The policy of a text such as "none" or "budget:tokens=256". Raises ValueError for other texts."""
    name, given = split_name(text, KINDS)
    check_known("policy", name, ("none", *KINDS))
    kind = KINDS.get(name, Constant)
    sent = SERVED[kind][1] if name != "none" else ()
    with said_of(f"policy: {text!r}"):
        readers = {one: real if one in kind.probabilities else whole for one in sent}
        values = {} if given is None else read_options(name, given, readers)
        return Constant(0) if name == "none" else kind(**values)
