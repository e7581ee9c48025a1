"""Known mistakes of verifiers, decoders and serving engines: each has one name, a family and one sentence.

An audit must reject the verifiers and decoders, and compares a wrong one with them. Each is a small function
with the threads that reported the defect and, where one exists, the exact law of a step. Engines make those
of serving around their verification: `specsim serve --mistake` makes them by name, and `specsim audit engine`
names them. The exact controls are correct but accept fewer tokens than the standard rule: an audit that
rejects one raises a false alarm.

`_reference.py` is a correct verifier of arrays whose parts can be replaced, `_decoding.py` a correct decoder
of that kind. `_laws.py` has the parts of exact laws, `_rows.py` laws of arrays of rows."""

from specsim.core._parameters import split_name
from specsim.core._types import check_known
from specsim.mistakes import (
    _acceptance,
    _candidates,
    _exact_controls,
    _indexing,
    _precision,
    _processing,
    _proposal,
    _randomness,
    _residual,
)
from specsim.mistakes._base import CATALOGUE, Mistake, named

__all__ = ["Mistake", "catalogue", "exact_controls", "get", "names"]

__dir__ = __all__.copy  # for completion

_OF_SERVING = tuple(named(name) for members in CATALOGUE["of serving"].values() for name in members)
_FAMILIES = (_proposal, _residual, _randomness, _precision, _acceptance, _indexing, _processing, _candidates)


def catalogue() -> tuple[Mistake, ...]:
    """Return the mistakes of verifiers and decoders, family by family, with their default parameters.

    Returns
    -------
    tuple of Mistake

    Examples
    --------
    >>> len(catalogue()) > 50
    True
    """
    return tuple(mistake for family in _FAMILIES for mistake in family.MISTAKES)


def exact_controls() -> tuple[Mistake, ...]:
    """Return the exact controls: exact but wasteful verifiers and decoders that were reported as biased.

    Returns
    -------
    tuple of Mistake

    Examples
    --------
    >>> [control.name for control in exact_controls()][:2]
    ['one_hot_draft', 'sampler_match']
    """
    return _exact_controls.EXACT_CONTROLS


def names(kind: str | None = None) -> list[str]:
    """Return the names of mistakes or of exact controls.

    Parameters
    ----------
    kind : {"verifier", "decoder", "engine", "exact control"}, optional
        By default verifiers and decoders; "engine": mistakes of a serving engine around its verification.

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
        "verifier": [mistake for mistake in catalogue() if mistake.verify],
        "decoder": [mistake for mistake in catalogue() if mistake.decode],
        "engine": _OF_SERVING,
        "exact control": exact_controls(),
    }
    if kind not in kinds:
        raise ValueError(f"kind: {kind!r} is unknown; give verifier, decoder, engine or exact control")
    return [mistake.name for mistake in kinds[kind]]


def get(name: str) -> Mistake:
    """Return the mistake or exact control called `name`.

    Parameters
    ----------
    name : str
        A name of `names`, with parameters after a colon: "lenience:lenience=0.7".

    Returns
    -------
    Mistake

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
        raise TypeError(f"mistake: expected a name such as 'one_uniform', got {type(name).__name__}")
    known = {mistake.name: mistake for mistake in (*catalogue(), *_OF_SERVING, *exact_controls())}
    name, given = split_name(name, known)
    check_known("mistake", name, list(known))
    return known[name].given(given)
