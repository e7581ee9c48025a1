"""Known-wrong verifiers and decoders: what an audit must catch, and what a deviation can be compared with.

The same few mistakes recur in every inference engine. Each is here as a small function, with the threads in which it was
reported and, where there is one, the exact law of its error; one file for each family of mechanisms. The
exact controls beside them are exact and accept less than they could: an audit that rejects one raises a false alarm.

`_reference.py` is a right verifier of whole arrays in which steps can be replaced by wrong ones, `_decoding.py` such a
decoder.
"""

from __future__ import annotations

from specsim.auditing.mutants import (
    _acceptance,
    _candidates,
    _degenerate,
    _exact_controls,
    _indexing,
    _precision,
    _processing,
    _proposal,
    _randomness,
    _residual,
    _truncation,
)
from specsim.auditing.mutants._base import Mutant
from specsim.auditing.mutants._decoding import sequence_law
from specsim.core._registry import nearest
from specsim.rules._common.base import parse_parameters

__all__ = ["Mutant", "catalogue", "exact_controls", "get", "names", "sequence_law"]

_FAMILIES = (
    _proposal,
    _residual,
    _degenerate,
    _randomness,
    _precision,
    _acceptance,
    _indexing,
    _processing,
    _candidates,
    _truncation,
)


def catalogue() -> tuple[Mutant, ...]:
    """All mutants, family by family, with their default parameters."""
    return tuple(mutant for family in _FAMILIES for mutant in family.MUTANTS)


def exact_controls() -> tuple[Mutant, ...]:
    """Verifiers and decoders that are exact but wasteful, and were reported as biased."""
    return _exact_controls.EXACT_CONTROLS


def names(kind: str | None = None) -> list[str]:
    """The names of all mutants; of those that are a "verifier" or a "decoder"; or of the "exact control"s.

    >>> "one_uniform" in names("verifier")
    True
    """
    kinds = {
        None: catalogue(),
        "verifier": [mutant for mutant in catalogue() if mutant.verify],
        "decoder": [mutant for mutant in catalogue() if mutant.decode],
        "exact control": exact_controls(),
    }
    if kind not in kinds:
        raise ValueError(f"unknown kind {kind!r}; one of verifier, decoder, exact control")
    return [mutant.name for mutant in kinds[kind]]


def get(name: str) -> Mutant:
    """The mutant or exact control called `name`, with parameters if they follow a colon: "lenience:lenience=0.7".

    Raises ValueError, with the nearest name, for one that does not exist; naming mutant, parameter and range for a
    parameter that is unknown or out of range.

    >>> get("lenience:lenience=0.7").values
    {'lenience': 0.7}
    """
    if not isinstance(name, str):
        raise TypeError(f"mutant: expected a name such as 'one_uniform', got {type(name).__name__}")
    name, colon, given = name.partition(":")
    known = {mutant.name: mutant for mutant in (*catalogue(), *exact_controls())}
    if name not in known:
        near = nearest(name, known)
        raise ValueError(f"unknown mutant {name!r}; did you mean {near!r}? Mutants: {', '.join(known)}")
    return known[name].with_parameters(**parse_parameters(name, given)) if colon else known[name]
