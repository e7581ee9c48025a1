"""The drafting systems of the literature: a table of them, and how each drafts.

To add one, add an entry to `SYSTEMS`. `make` says what it drafts on a pair; write a function for it unless
one here does that already."""

from collections.abc import Sequence

import numpy as np

from specsim import theory
from specsim.core._arguments import checked
from specsim.core._parameters import Parameter, split_name
from specsim.core._registry import check_known
from specsim.core._streams import Purpose, key_of, uniforms
from specsim.core._types import Floats, TokenArray
from specsim.core.distributions import check_rows
from specsim.models import (
    DynamicTree,
    LookaheadDecoding,
    Mixture,
    Model,
    Pair,
    PromptLookup,
    TableModel,
    best_tree,
    branching,
    chain,
    chains,
    tree_of_heads,
)
from specsim.models._base import drawn_text
from specsim.models._multi_token import rows_ahead
from specsim.simulation._grid import context_rows
from specsim.simulation.methods._method import Drafting, Method

#: Dimensions of LLaMA-7B, the target (Touvron et al., arXiv 2302.13971); drafters have shares of its size.
WIDTH, INNER, VOCABULARY, LAYERS = 4096, 11008, 32_000, 32

#: Parameters of a decoder layer (attention, and a gated feed-forward network) and of the output layer.
LAYER = 4 * WIDTH**2 + 3 * WIDTH * INNER
HEAD = WIDTH * VOCABULARY
TARGET = LAYERS * LAYER + 2 * HEAD

#: A separate model of 68 million parameters, which SpecInfer and Sequoia draft with.
SMALL_MODEL = round(68e6 / TARGET, 4)
#: One decoder layer over the target's features and a token, with the output layer.
ONE_LAYER = round((LAYER + 2 * WIDTH**2 + HEAD) / TARGET, 4)
#: A head: a residual block and an output layer.
ONE_HEAD = round((WIDTH**2 + HEAD) / TARGET, 4)


def layers(number: int) -> float:
    """The share of the first `number` decoder layers with the output layer."""
    return round((number * LAYER + HEAD) / TARGET, 4)


#: Tokens of a text of the target's own, and its seed.
LENGTH, SEED = 4096, 0


def own_text(target: Model) -> TokenArray:
    """A text drawn from the target, from the first of its contexts on."""
    u = uniforms(key_of(SEED), Purpose.VERIFY, 0, 1, LENGTH)[:, 0]
    return drawn_text(target, target.contexts[0], u)


def as_models(pair: Pair) -> tuple[Model, Model]:
    """Target and draft of a pair as models; two pmfs as tables without a context."""
    made = [one if isinstance(one, Model) else TableModel(check_rows(one)) for one in pair]
    return made[0], made[1]


def moved(pair: Pair, weight: float) -> Pair:
    """The pair with its draft moved towards its target: (1 - weight)·q + weight·p."""
    if weight == 0:
        return pair
    if isinstance(pair.target, Model):
        return Pair(pair.target, Mixture(pair.draft, pair.target, weight))
    p, q = check_rows(pair.target, "target"), check_rows(pair.draft, "draft")
    return Pair(p, (1.0 - weight) * q + weight * p)


def passes_of(widths: Sequence[int]) -> tuple[int, ...]:
    """The passes of an autoregressive drafter of a tree whose nodes at depth i have widths[i] children: one a
    level, over the nodes above it."""
    return (1, *np.cumprod(widths)[:-1].tolist())


# What systems draft on a pair.


def one_by_one(pair: Pair, gamma: int, size: float, nearer: float = 0.0) -> Drafting:
    """A model that writes γ tokens one after another."""
    return Drafting(moved(pair, nearer), chain(gamma), (1,) * gamma, size)


def heads_at_once(pair: Pair, gamma: int, size: float) -> Drafting:
    """Heads that guess one token each, from the context alone."""
    return Drafting(pair, chain(gamma, "top", block=gamma), (1,), gamma * size)


def block_at_once(pair: Pair, gamma: int, size: float) -> Drafting:
    """A model that writes a block of γ tokens in one pass."""
    return Drafting(pair, chain(gamma, block=gamma), (gamma,), size)


def block_by_block(pair: Pair, gamma: int, block: int, size: float) -> Drafting:
    """A model that writes `block` tokens in each pass."""
    blocks = -(-gamma // block)
    return Drafting(pair, chain(gamma, block=block), (1, *[block] * (blocks - 1)), size)


def copied(pair: Pair, gamma: int, ngram: int, size: float) -> Drafting:
    """Tokens copied from earlier in the text."""
    target, _ = as_models(pair)
    return Drafting(Pair(target, PromptLookup(own_text(target), ngram)), chain(gamma, "top"), (), size)


def guessed(pair: Pair, window: int, ngram: int, candidates: int, size: float) -> Drafting:
    """The target's own guesses of n-grams ahead of the text, those that fit."""
    target, _ = as_models(pair)
    lookahead = LookaheadDecoding(window, candidates, own_text(target))
    beside = window * (ngram - 1)
    return Drafting(Pair(target, lookahead), lookahead.tree(ngram - 1), (), size, beside)


def side_by_side(pair: Pair, drafts: int, gamma: int, size: float) -> Drafting:
    """Several chains."""
    return Drafting(pair, chains(drafts, gamma), (1, *[drafts] * (gamma - 1)), size)


def branching_once(pair: Pair, depth: int, at: int, width: int, size: float) -> Drafting:
    """A tree of sampled siblings that branches at one level."""
    if at > depth:
        raise ValueError(f"specinfer: at = {at} exceeds depth = {depth}; branch at one of the levels")
    widths = [width if level == at else 1 for level in range(1, depth + 1)]
    return Drafting(pair, branching(*widths), passes_of(widths), size)


def narrowing(pair: Pair, depth: int, top: int, size: float) -> Drafting:
    """The same tree in every step, of half as many children at each further level."""
    widths = widths_of(depth, top)
    return Drafting(pair, branching(*widths, draft_sampling="top"), passes_of(widths), size)


def most_confident(
    pair: Pair, width: int, depth: int, nodes: int, size: float, nearer: float = 0.0
) -> Drafting:
    """A tree of the draft's most confident paths, another in every step."""
    shape = DynamicTree(width, depth, nodes)
    return Drafting(Pair(*as_models(moved(pair, nearer))), shape, (1, *[width] * (depth - 1)), size)


def widths_of(heads: int, top: int) -> list[int]:
    """The children at each depth: `top`, and half as many at each further one."""
    return [max(1, top >> depth) for depth in range(heads)]


#: Sibling ranks that Sequoia's program knows.
SIBLINGS = 16


def best(pair: Pair, nodes: int, depth: int, size: float) -> Drafting:
    """The tree that a dynamic program finds best."""
    alpha = float(np.mean(theory.acceptance_rate(*context_rows(*pair))))
    ranks = [alpha * (1.0 - alpha) ** rank for rank in range(min(SIBLINGS, nodes))]
    tree = best_tree(ranks, nodes, depth)
    levels = np.bincount(tree.depths)
    return Drafting(pair, tree, tuple(levels[:-1].tolist()), size)


#: Ranks of a head that are considered, and how many places of the text lie between two that are counted.
RANKS, PLACES = 10, 4


def heads_tree(pair: Pair, heads: int, top: int, nodes: int, size: float) -> Drafting:
    """The Cartesian tree of the most probable tokens of independent heads."""
    if nodes:
        tree = tree_of_heads(accuracies(pair, heads), nodes)
    else:
        tree = branching(*widths_of(heads, top), draft_sampling="top", block=heads)
    return Drafting(pair, tree, (1,), heads * size)


def accuracies(pair: Pair, heads: int) -> Floats:
    """How often the token of each rank of each head is the target's, [heads, ranks], along a text of its own.

    Of two pmfs the probabilities themselves; no rank is more often right than the one before it."""
    if not isinstance(pair.target, Model):
        p, q = check_rows(pair.target, "target"), check_rows(pair.draft, "draft")
        found = np.tile(p[np.argsort(-q, kind="stable")][:RANKS], (heads, 1))
        return np.minimum.accumulate(found, axis=1)
    text, order = own_text(pair.target), max(pair.target.order, pair.draft.order)
    places = np.arange(order, len(text) - heads, PLACES)
    seen = text[places[:, None] + np.arange(-order, 0)]
    found = np.zeros((heads, min(RANKS, pair.target.vocab_size)))
    for head in range(heads):
        rows = rows_ahead(pair.draft, seen, head)
        ranked = np.argsort(-rows, axis=1, kind="stable")[:, :RANKS]
        found[head] = (ranked == text[places + head][:, None]).mean(axis=0)
    return np.minimum.accumulate(found, axis=1)


DRAFTER = "parameters of the drafter / those of the target"


def size_parameter(default: float, meaning: str = DRAFTER) -> Parameter:
    """The parameter `size`, which the cost of drafting follows from."""
    return Parameter("size", default, 0.0, 1.0, meaning)


def count(name: str, default: int, meaning: str, most: int = 128) -> Parameter:
    return Parameter(name, float(default), 1.0, float(most), meaning, whole=True)


_MEDUSA = (
    count("heads", 4, "heads, the depth of the tree", 16),
    count("top", 4, "tokens of the first head; each further head has half as many"),
    Parameter("nodes", 0.0, 0.0, 256.0, "tokens of the fitted tree; 0: `top` decides", whole=True),
    size_parameter(ONE_HEAD, "parameters of a head / the target's"),
)


def _dynamic(depth: int, nearer: float | None = None) -> tuple[Parameter, ...]:
    """The parameters of EAGLE-2's tree, and of systems that draft it from a better q."""
    better = Parameter("nearer", nearer or 0.0, 0.0, 1.0, "weight of the target in the draft's rows")
    return (
        count("width", 10, "candidates that are expanded in a level"),
        count("depth", depth, "levels of the tree", 32),
        count("nodes", 60, "drafted tokens"),
        *[better] * (nearer is not None),
        size_parameter(ONE_LAYER),
    )


_SYSTEMS = (
    Method(
        "autoregressive", "Speculative decoding with a draft model",
        "Leviathan, Kalman & Matias 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318", "standard",
        modelled="A chain of γ tokens, each sampled from q after those before it.",
        left_out="Prefill of the draft model.",
        make=one_by_one, parameters=(count("gamma", 5, "drafted tokens"), size_parameter(SMALL_MODEL)),
    ),
    Method(
        "distillspec", "DistillSpec", "Zhou et al. 2024, arXiv 2310.08461", "standard",
        modelled="A draft moved towards the target by the weight `nearer`; rejections are 1 - nearer times "
        "as frequent.",
        left_out="The training: it moves some rows more than others.",
        make=one_by_one, parameters=(
            count("gamma", 5, "drafted tokens"),
            Parameter("nearer", 0.2, 0.0, 1.0, "weight of the target in the draft's rows"),
            size_parameter(SMALL_MODEL),
        ),
    ),
    Method(
        "self_speculation", "Self-speculation with layers skipped",
        "Zhang et al. 2023, arXiv 2309.08168; Elhoushi et al. 2024 (LayerSkip), arXiv 2404.16710", "standard",
        modelled="A chain sampled from q, at the cost of half of the target's layers.",
        left_out="That q is the target's own, of fewer layers, and that LayerSkip's verification reuses "
        "them.",
        make=one_by_one, parameters=(
            count("gamma", 4, "drafted tokens"),
            size_parameter(layers(LAYERS // 2), "parameters of the layers that draft / those of the target"),
        ),
    ),
    Method(
        "mlp_speculator", "MLP speculator", "Wertheimer et al. 2024, arXiv 2404.19124", "standard",
        modelled="A chain in which each head's row depends on the tokens drafted before it, as q does.",
        left_out="Heads that grow worse with their distance, and several candidates a head.",
        make=one_by_one, parameters=(
            count("gamma", 3, "heads", 16), size_parameter(ONE_HEAD, "a head's parameters / the target's"),
        ),
    ),
    Method(
        "blockwise", "Blockwise parallel decoding", "Stern, Shazeer & Uszkoreit 2018, arXiv 1811.03115",
        "greedy_match",
        modelled="Head i guesses the i-th token ahead from the context alone; a guess that is the target's "
        "argmax is accepted, so the text is greedy.",
        left_out="Top-k and distance criteria (the rule `blockwise`), and that one pass predicts and "
        "verifies.",
        make=heads_at_once, parameters=(
            count("gamma", 8, "heads, the block size k"),
            size_parameter(ONE_HEAD, "parameters of a head / the target's"),
        ),
    ),
    Method(
        "dflash", "DFlash", "Chen et al. 2026, arXiv 2602.06036", "standard",
        modelled="One pass drafts a whole block: each token is drawn from q without sight of the block's "
        "others.",
        left_out="Denoising steps, and the target's features that the drafter reads.",
        make=block_at_once, parameters=(count("gamma", 15, "tokens of a block"), size_parameter(layers(5))),
    ),
    Method(
        "falcon", "Falcon", "Gao et al. 2024, arXiv 2412.12639", "standard",
        modelled="Blocks of `block` tokens: those of a block are drawn without sight of each other.",
        left_out="Trees, and the loss that makes tokens of a block agree.",
        make=block_by_block, parameters=(
            count("gamma", 6, "drafted tokens"), count("block", 2, "tokens of a pass", 16),
            size_parameter(ONE_LAYER),
        ),
    ),
    Method(
        "prompt_lookup", "Prompt lookup decoding",
        "Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding", "one_hot",
        modelled="The tokens that followed the longest match of the last tokens, in a text of the target's "
        "own, decoded from its beginning; a step without a match emits one token.",
        left_out="Prompts that the answer quotes: the text is drawn from the target, so matches are its "
        "habits. Another text's mean may differ by more than the standard error. Each step is charged for a "
        "whole draft.",
        make=copied, parameters=(
            count("gamma", 10, "drafted tokens"), count("ngram", 3, "the most tokens that are matched", 16),
            size_parameter(0.0),
        ),
    ),
    Method(
        "lookahead", "Lookahead decoding", "Fu et al. 2024, arXiv 2402.02057", "naive_matching",
        modelled="A window of the target's guesses, moved by a token in every step, and a pool of the "
        "n-grams found there; those that begin with the last token are drafted. Window and n-grams are "
        "computed in the target's pass.",
        left_out="The seed of the window is not varied: the steps, with and without a draft, are those of "
        "one text of the target's own, from its beginning. Another text's mean may differ by more than the "
        "standard error. Each step is charged for a whole tree.",
        make=guessed, parameters=(
            count("window", 15, "columns of the window"),
            Parameter("ngram", 5.0, 2.0, 16.0, "tokens of an n-gram", whole=True),
            count("candidates", 15, "n-grams kept for a token"), size_parameter(0.0),
        ),
    ),
    Method(
        "spectr", "SpecTr", "Sun et al. 2023, arXiv 2310.15141", "k_seq",
        modelled="`drafts` chains of γ tokens, i.i.d. from q, selected token by token by K-SEQ.",
        left_out="The optimal transport plan, which K-SEQ approximates.",
        make=side_by_side, parameters=(
            count("drafts", 8, "chains", 16), count("gamma", 4, "tokens of a chain", 16),
            size_parameter(SMALL_MODEL),
        ),
    ),
    Method(
        "specinfer", "SpecInfer", "Miao et al. 2024, arXiv 2305.09781", "recursive_rejection",
        modelled="A tree that branches into `width` i.i.d. samples at one level, by default the third of "
        "eight.",
        left_out="Several draft models, and merging of their trees.",
        make=branching_once, parameters=(
            count("depth", 8, "levels of the tree", 32), count("at", 3, "the level that branches", 32),
            count("width", 3, "siblings there", 16), size_parameter(SMALL_MODEL),
        ),
    ),
    Method(
        "sequoia", "Sequoia", "Chen et al. 2024, arXiv 2402.12374", "without_replacement",
        modelled="The best tree of `nodes` tokens where the k-th sibling is accepted with probability α·(1 -"
        " α)^(k-1), α = E Σ min(p, q).",
        left_out="Acceptance by rank as measured on the models, and the search for the size that suits a "
        "machine.",
        make=best, parameters=(
            count("nodes", 32, "drafted tokens", 256), count("depth", 8, "the largest depth", 32),
            size_parameter(SMALL_MODEL),
        ),
    ),
    Method(
        "medusa", "Medusa", "Cai et al. 2024, arXiv 2401.10774", "deterministic_children",
        modelled="Head i knows the context and no drafted token: its row is that of the draft i tokens "
        "ahead. The most probable `top`, top/2, … tokens of the heads form a tree, verified without loss; "
        "with `nodes` the tree of that many tokens that suits the heads' accuracies along a text of the "
        "target's own.",
        left_out="How the heads were trained; typical acceptance is `medusa_typical`.",
        make=heads_tree, parameters=_MEDUSA,
    ),
    Method(
        "medusa_typical", "Medusa with typical acceptance", "Cai et al. 2024, arXiv 2401.10774",
        "typical_tree",
        modelled="The longest path of typical tokens in the tree of `medusa`; with `nodes` "
        "the tree that suits the heads' accuracies.",
        left_out="The temperature, with which the published threshold is raised or lowered.",
        make=heads_tree, parameters=_MEDUSA,
    ),
    Method(
        "eagle", "EAGLE-1", "Li et al. 2024, arXiv 2401.15077", "deterministic_children",
        modelled="The same tree in every step: the most probable `top`, top/2, … tokens of q after each "
        "path.",
        left_out="The features of the target that q is computed from, and siblings that are sampled.",
        make=narrowing, parameters=(
            count("depth", 5, "levels of the tree", 16),
            count("top", 4, "children of the root; half as many at each further level"),
            size_parameter(ONE_LAYER),
        ),
    ),
    Method(
        "eagle2", "EAGLE-2", "Li et al. 2024, arXiv 2406.16858", "deterministic_children",
        modelled="The draft's confidence chooses the tree anew in every step.",
        left_out="The features of the target that q is computed from.",
        make=most_confident, parameters=_dynamic(depth=6),
    ),
    Method(
        "eagle3", "EAGLE-3", "Li et al. 2025, arXiv 2503.01840", "deterministic_children",
        modelled="EAGLE-2's tree, with a draft moved towards the target by the weight `nearer`.",
        left_out="Features of several layers, and training on the drafter's own outputs: both are taken to "
        "make q better, by one number.",
        make=most_confident, parameters=_dynamic(depth=8, nearer=0.3),
    ),
    Method(
        "hass", "HASS", "Zhang et al. 2024, arXiv 2408.15766", "deterministic_children",
        modelled="EAGLE-2's tree, with a draft moved towards the target by the weight `nearer`.",
        left_out="Harmonised training of objective and context: taken to make q better, by one number.",
        make=most_confident, parameters=_dynamic(depth=6, nearer=0.15),
    ),
)  # fmt: skip

#: Every system by its name.
SYSTEMS = {one.name: one for one in _SYSTEMS}


def names() -> list[str]:
    """Names of the drafting systems, sorted.

    Returns
    -------
    list of str

    Examples
    --------
    >>> "medusa" in names()
    True
    """
    return sorted(SYSTEMS)


@checked
def get(name: str | Method) -> Method:
    """Return a drafting system.

    Parameters
    ----------
    name : str or Method
        A name, with parameters if any, such as "eagle2:nodes=30,depth=5", or a Method.

    Returns
    -------
    Method

    Raises
    ------
    ValueError
        For an unknown name, and for parameters that are unknown or out of range.

    Examples
    --------
    >>> str(get("autoregressive:gamma=3"))
    'autoregressive:gamma=3,size=0.0101'
    """
    if isinstance(name, Method):
        return name
    bare, given = split_name(name, names())
    check_known("method", bare, names())
    return SYSTEMS[bare].given(given)
