"""`specsim prove`."""

from typing import Annotated

from cyclopts import Parameter

from specsim.cli import _options as option
from specsim.cli._app import app, command
from specsim.cli._options import draft_of, small_pair_of
from specsim.cli._terminal import TEXT, Form, print_result

#: Tokens of a synthetic pair and drafted tokens, where no other numbers are given: all drafts are enumerated.
VOCAB_SIZE, GAMMA = 8, 2


@command(
    app,
    "prove zipf --vocab-size 6 --rule block --gamma 3",
    "prove ngram",
    "prove mine.npz --rule lenience:lenience=0.5",
    codes="0 the rule does what it claims on this pair, 1 it does not, 2 usage or bad input, 3 interrupted",
)
def prove(
    pair: option.SmallPairName = "zipf",
    *,
    vocab_size: Annotated[
        int | None,
        option.WHOLE,
        Parameter(help=f"Vocabulary size of a synthetic pair. Default: {VOCAB_SIZE}."),
    ] = None,
    overlap: option.Overlap = None,
    rule: option.Rule = "standard",
    gamma: Annotated[
        int | None,
        option.WHOLE,
        Parameter(
            help=f"Drafted tokens of a chain. Default: {GAMMA}, or 1 if there are more than 64 tokens."
        ),
    ] = None,
    tree: str | None = None,
    draft_sampling: option.DraftSampling = None,
    form: Form = TEXT,
) -> int:
    """Prove a rule exact on a small pair, or refute it: every draft is enumerated, in fractions.

    Probabilities are taken as multiples of 2^-24. At most 4096 drafts, V^γ, are enumerated.

    Args:
        tree: Draft a tree: number of children at each depth, such as 2,1. Default: a chain."""
    import specsim
    from specsim.theory._enumeration import MAX_DRAFTS

    synthetic = {"vocab_size": vocab_size, "overlap": overlap, "default_size": VOCAB_SIZE}
    both = small_pair_of(pair, "specsim prove", **synthetic)
    if gamma is None and tree is None:
        size = getattr(both.target, "vocab_size", None) or len(both.target)
        gamma = GAMMA if size**GAMMA <= MAX_DRAFTS else 1
    found = specsim.prove(both, rule=rule, gamma=draft_of(both, rule, gamma, tree, draft_sampling))
    print_result(found, form)
    return int(not found.as_claimed)
