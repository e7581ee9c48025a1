"""`specsim prove`."""

from specsim.cli._app import app, ending
from specsim.cli._options import Drawing, GammaOrTree, Overlap, PairName, Rule, VocabSize, Widths
from specsim.cli._pairs import draft_of, pair_of
from specsim.cli._terminal import TEXT, Form, print_result

#: Drafted tokens, where no other number is given: all drafts are enumerated.
GAMMA = 2


@app.command(
    help_epilogue=ending(
        "prove zipf --vocab-size 6 --rule block --gamma 3",
        "prove mine.npz --rule lenience:lenience=0.5",
        codes="0 the rule is as it claims on this pair, 1 it is not, 2 usage or bad input, 3 interrupted",
    )
)
def prove(
    pair: PairName = "zipf:vocab_size=8",
    *,
    vocab_size: VocabSize = None,
    overlap: Overlap = None,
    rule: Rule = "standard",
    gamma: GammaOrTree = None,
    tree: Widths = None,
    drawing: Drawing = None,
    form: Form = TEXT,
) -> int:
    """Prove a rule exact on a small pair, or refute it: every draft is enumerated, in fractions.

    Probabilities are taken as multiples of 2^-24; γ is 2 by default."""
    import specsim

    shape = draft_of(rule, GAMMA if gamma is None and tree is None else gamma, tree, drawing)
    found = specsim.prove(pair_of(pair, vocab_size, overlap), rule=rule, gamma=shape)
    print_result(found, form)
    return int(not found.as_claimed)
