"""The case of a user's own pair."""

import numpy as np

from specsim.auditing._cases.battery import BITS, Case, battery
from specsim.auditing._verifier.contract import Declared
from specsim.core.distributions import check_rows, dyadic
from specsim.models import Model, Pair, TableModel
from specsim.rules import Rule

#: How the name of the case begins.
PREFIX = "pair"


def case_of_pair(pair: Pair, subject: Rule | Declared) -> Case:
    """A case with the rows of `pair`, and a draft like that of the battery's first case.

    Pmfs are rounded to fractions that the verifier's dtype holds exactly. Raises ValueError for what is not a
    pair of pmfs or of models with one vocabulary, and for a vocabulary that the verifier does not take."""
    dtype = subject.dtypes[0] if isinstance(subject, Declared) else "float64"
    name = f"{PREFIX} {pair.name}" if pair.name else PREFIX
    target, draft = pair
    if draft is None:
        raise ValueError("pair: a pair without a draft, as a trace is; give two pmfs [V] or two models")
    if isinstance(target, Model) and isinstance(draft, Model):
        if BITS[dtype] < BITS["float32"]:
            raise ValueError(
                f"pair: models have rows of float64, the verifier takes {dtype}; give pmfs p and q"
            )
    else:
        target, draft = _as_table(target, dtype), _as_table(draft, dtype)
    size = target.vocab_size
    if draft.vocab_size != size:
        raise ValueError(
            f"pair: target has {size} tokens, draft {draft.vocab_size}: they must share one vocabulary"
        )
    if isinstance(subject, Declared) and subject.vocab_size is not None and size > subject.vocab_size:
        raise ValueError(f"pair: {size} tokens, and the verifier declares vocab_size={subject.vocab_size}")
    first, *_ = battery(subject)
    return Case(name, "a pair of the user's", target, draft, first.tree, dtype=dtype)


def _as_table(row: object, dtype: str) -> TableModel:
    try:
        pmf = check_rows(np.asarray(row, dtype=np.float64), "pair")
    except TypeError:
        raise ValueError(f"pair: expected two pmfs or two models, got {type(row).__name__}") from None
    if pmf.ndim != 1:
        raise ValueError(f"pair: shape {pmf.shape}; expected pmfs of shape [V]")
    return TableModel(dyadic(pmf, BITS[dtype]))
