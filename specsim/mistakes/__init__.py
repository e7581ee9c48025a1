"""Mutants: verifiers and decoders with a known defect, which an audit must reject and a diagnosis compares
with.

Each mutant is a small function with the threads that reported the defect and, where one exists, the exact law
of a step; there is one file for each family of mechanisms. The exact controls are correct but accept fewer
tokens than the standard rule: an audit that rejects one raises a false alarm.

`_reference.py` is a correct verifier of arrays whose parts can be replaced, `_decoding.py` a correct decoder
of that kind.
"""

from __future__ import annotations

from specsim.core._parameters import split_name
from specsim.core._registry import suggestion
from specsim.mistakes import (
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
    _serving,
    _truncation,
)
from specsim.mistakes._base import Mutant
from specsim.mistakes._decoding import sequence_law

__all__ = ["Mutant", "catalogue", "exact_controls", "get", "names", "sequence_law"]


def __dir__() -> list[str]:
    """The public names, for completion."""
    return __all__


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
    """Return the mutants of verifiers and decoders, family by family, with their default parameters.

    Returns
    -------
    tuple of Mutant

    Examples
    --------
    >>> len(catalogue()) > 50
    True
    """
    return tuple(mutant for family in _FAMILIES for mutant in family.MUTANTS)


def exact_controls() -> tuple[Mutant, ...]:
    """Return the exact controls: exact but wasteful verifiers and decoders that were reported as biased.

    Returns
    -------
    tuple of Mutant

    Examples
    --------
    >>> [control.name for control in exact_controls()][:2]
    ['one_hot_draft', 'sampler_match']
    """
    return _exact_controls.EXACT_CONTROLS


def names(kind: str | None = None) -> list[str]:
    """Return the names of mutants or of exact controls.

    Parameters
    ----------
    kind : {"verifier", "decoder", "engine", "exact control"}, optional
        Which names to return; by default those of verifiers and decoders. "engine" are the mistakes of a
        serving engine around its verification.

    Returns
    -------
    list of str

    Raises
    ------
    ValueError
        If `kind` is unknown.

    Examples
    --------
    >>> "one_uniform" in names("verifier")
    True
    """
    kinds = {
        None: catalogue(),
        "verifier": [mutant for mutant in catalogue() if mutant.verify],
        "decoder": [mutant for mutant in catalogue() if mutant.decode],
        "engine": _serving.MUTANTS,
        "exact control": exact_controls(),
    }
    if kind not in kinds:
        raise ValueError(f"unknown kind {kind!r}; one of verifier, decoder, engine, exact control")
    return [mutant.name for mutant in kinds[kind]]


def get(name: str) -> Mutant:
    """Return the mistake or exact control called `name`.

    Parameters
    ----------
    name : str
        A name of `names`, with parameters after a colon: "lenience:lenience=0.7".

    Returns
    -------
    Mutant

    Raises
    ------
    ValueError
        If the name or a parameter is unknown, or a value is out of range.
    TypeError
        If `name` is not a string.

    Examples
    --------
    >>> get("lenience:lenience=0.7").values
    {'lenience': 0.7}
    """
    if not isinstance(name, str):
        raise TypeError(f"mutant: expected a name such as 'one_uniform', got {type(name).__name__}")
    known = {mutant.name: mutant for mutant in (*catalogue(), *_serving.MUTANTS, *exact_controls())}
    name, given = split_name(name, known)
    if name not in known:
        raise ValueError(f"unknown mutant {name!r}{suggestion(name, known)} Mutants: {', '.join(known)}")
    return known[name].given(given)
