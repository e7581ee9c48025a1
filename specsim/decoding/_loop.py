"""Speculative decoding from the prompt to the last token, and sampling from the target alone."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from specsim import rules
from specsim.core._arguments import checked
from specsim.core._checks import check_count
from specsim.core._provenance import Provenance
from specsim.core._streams import Key, Purpose, RandomSource, key_of, root_of, uniforms
from specsim.core.distributions import check_tokens, cumulative_draw
from specsim.decoding._result import Generation, Step
from specsim.decoding._sessions import DraftSide, TargetSide
from specsim.drafts import Tree, chain
from specsim.models import Model, check_pair
from specsim.rules import Rule
from specsim.simulation._rows import Rows, tile_parents
from specsim.simulation._sources import rule_verifier

#: How the tokens of a chain are drafted.
DRAFTINGS = {
    "sample": "from the draft's rows",
    "greedy": "the draft's most probable token; the rule is given a q that has all its mass there",
}


@checked
def generate(
    target: Model,
    draft: Model,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    gamma: int | Tree = 5,
    rule: str | Rule = "standard",
    drafting: str = "sample",
    eos: int | None = None,
    rng: RandomSource = None,
) -> Generation:
    """Decode speculatively after `prompt`.

    With a lossless rule the new tokens have the target's own distribution, whatever the draft; with a lossy
    one, every token follows the law that the rule declares, given its position in the step.

    Parameters
    ----------
    target, draft : Model
        Two models over one vocabulary.
    prompt : sequence of int
        Tokens; at least one, and at least as many as the models condition on.
    max_new_tokens : int
        At least 1. The last steps draft less, so that no more tokens are emitted.
    gamma : int or Tree
        Drafted tokens per step, or the tree that is drafted; a `Tree` states how its siblings are drawn.
    rule : str or Rule
        Verifies the drafts.
    drafting : {"sample", "greedy"}
        How a chain is drafted, see `DRAFTINGS`. With "greedy" the rule's q is 1 at the drafted token, which
        is the law that the token was drawn from, so every rule for sampled drafts holds.
    eos : int, optional
        A token that ends the text; it is kept.
    rng : int, Generator or None
        The seed. Every random number is a function of it and the step.

    Returns
    -------
    Generation
        Tokens, steps and times; the seconds of a first call include compilation.

    Raises
    ------
    ValueError, TypeError
        For models without a common vocabulary, tokens outside it, a prompt that is too short, max_new_tokens
        < 1, an unknown rule or drafting, or drafts that the rule is not claimed for.

    References
    ----------
    Leviathan, Kalman & Matias, arXiv 2211.17192, Algorithm 1.

    Examples
    --------
    >>> from specsim.models import default_pair
    >>> text = generate(*default_pair(), b"import ", max_new_tokens=20, rng=1)
    >>> len(text.tokens), text.accepted + text.iterations - text.dropped
    (20, 20)
    """
    check_pair(target, draft)
    chosen = rules.get(rule)
    tree = _check_tree(chosen, gamma, drafting)
    tree.check_siblings(target.vocab_size)
    text = _check_prompt(prompt, (target, draft))
    session = DraftSide(draft, text, drafting == "greedy", chosen.leaf_rows)
    speculation = _Speculation(session, chosen, tree, drafting)
    return _decode(target, text, speculation, max_new_tokens, eos, rng)


@checked
def sample(
    target: Model,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    eos: int | None = None,
    rng: RandomSource = None,
) -> Generation:
    """Sample from the target alone, one token per pass: the baseline of `generate`.

    Parameters
    ----------
    target : Model
        The model to sample from.
    prompt : sequence of int
        Tokens; at least one, and at least as many as the model conditions on.
    max_new_tokens : int
        At least 1.
    eos : int, optional
        A token that ends the text; it is kept.
    rng : int, Generator or None
        The seed. Every random number is a function of it and the step.

    Returns
    -------
    Generation
        Tokens, steps and times.

    Raises
    ------
    ValueError, TypeError
        For anything but a model, tokens outside its vocabulary, a prompt that is too short, or max_new_tokens
        < 1.

    Examples
    --------
    >>> from specsim.models import default_pair
    >>> sample(default_pair()[0], b"import ", max_new_tokens=20, rng=1).tokens_per_iteration
    1.0
    """
    if not isinstance(target, Model):
        kind = type(target).__name__
        raise TypeError(f"target: expected a model, such as TableModel([1/2, 1/2]), got {kind}")
    return _decode(target, _check_prompt(prompt, (target,)), None, max_new_tokens, eos, rng)


@dataclass(frozen=True)
class _Speculation:
    """The draft, and how its tokens are verified."""

    draft: DraftSide
    rule: Rule
    tree: Tree
    drafting: str

    def shape(self, room: int) -> Tree | None:
        """What to draft where `room` tokens may precede the last one; None: sample from the target.

        A lossy rule always drafts, since it declares another law than the target's own."""
        return _truncate(self.tree, room if self.rule.declared is None else max(room, 1))


def _decode(
    target: Model,
    text: list[int],
    speculation: _Speculation | None,
    max_new_tokens: int,
    eos: int | None,
    rng: RandomSource,
) -> Generation:
    limit = check_count("max_new_tokens", max_new_tokens)
    eos = None if eos is None else int(check_tokens([eos], target.vocab_size, "eos")[0])
    root, clock = root_of(rng), _Clock()
    key, session = key_of(root), TargetSide(target, text)
    tokens: list[int] = []
    steps: list[Step] = []
    started, interrupted = time.perf_counter(), False
    try:
        while len(tokens) < limit and (eos is None or eos not in tokens):
            shape = None if speculation is None else speculation.shape(limit - len(tokens) - 1)
            if speculation is None or shape is None:
                emitted, step = _plain_step(session, key, len(steps), clock), Step(0, 0, 0)
            else:
                emitted = _speculative_step(session, speculation, shape, key, len(steps), clock)
                step = Step(shape.size, shape.depth, len(emitted) - 1)
            tokens += emitted
            steps.append(step)
    except KeyboardInterrupt:
        if not steps:
            raise
        interrupted = True
    tokens = tokens[:limit]
    if eos is not None and eos in tokens:
        tokens = tokens[: tokens.index(eos) + 1]
    how = (None, None, "none")
    if speculation is not None:
        how = str(speculation.rule), speculation.tree, speculation.drafting  # type: ignore[assignment]
    provenance = Provenance.record(root, 1, time.perf_counter() - started)
    return Generation(
        tuple(text), tuple(tokens), *how, tuple(steps), dict(clock.seconds), provenance, interrupted
    )


def _speculative_step(
    target: TargetSide, speculation: _Speculation, shape: Tree, key: Key, number: int, clock: _Clock
) -> list[int]:
    """Draft `shape`, score it in one pass, verify: the emitted tokens, the accepted ones and one more."""
    draft, rule = speculation.draft, speculation.rule
    with clock.measure("draft"):
        drafted, q = draft.draft(shape, uniforms(key, Purpose.DRAFT, number, 1, shape.size))
    with clock.measure("target"):
        p = target.rows(shape, drafted)
    with clock.measure("verify"):
        rows = Rows(drafted[None], p[None], q[None], tile_parents(shape, 1))
        columns, accepted = rule_verifier(rule, shape)(rows, key, number)
        emitted: list[int] = columns[: accepted[0] + 1, 0].tolist()
    for session in (target, draft):
        session.settle(emitted[:-1], emitted[-1])
    return emitted


def _plain_step(target: TargetSide, key: Key, number: int, clock: _Clock) -> list[int]:
    """A token from the target's own row, drawn with the first uniform of the verification stream."""
    with clock.measure("target"):
        row = target.feed()[0]
    with clock.measure("verify"):
        u = uniforms(key, Purpose.VERIFY, number, 1, 1)
        token = int(cumulative_draw(row, u[0, 0]))
    target.settle([], token)
    return [token]


def _check_tree(rule: Rule, gamma: int | Tree, drafting: str) -> Tree:
    """What a step drafts; ValueError if the rule's claim does not cover it."""
    if drafting not in DRAFTINGS:
        raise ValueError(f"drafting: {drafting!r} is not one of {', '.join(DRAFTINGS)}")
    if not isinstance(gamma, Tree):  # of a single child all ways of sampling are the same
        tree = chain(gamma, "sampled" if "sampled" in rule.draft_sampling else rule.draft_sampling[0])
    elif drafting == "greedy":
        raise ValueError(
            "drafting: a Tree states how its siblings are drawn, as in chain(5, 'top'); leave 'greedy' out, "
            "or give the number of drafted tokens as gamma"
        )
    else:
        tree = gamma
    rule.check(tree)
    if tree.sampling not in rule.draft_sampling:
        raise ValueError(
            f"gamma: {rule.name} holds for drafts drawn {' or '.join(map(repr, rule.draft_sampling))}, not "
            f"{tree.sampling!r}; for the most probable tokens use a rule for 'top': 'deterministic_children'"
        )
    return tree


def _truncate(tree: Tree, depth: int) -> Tree | None:
    """`tree` without the nodes below `depth`; None if none are left."""
    if tree.depth <= depth:
        return tree
    if depth == 0:
        return None
    kept = [node for node in range(tree.size + 1) if tree.depths[node] <= depth]
    number = {node: i for i, node in enumerate(kept)}
    return Tree(tuple(number[tree.parents[node - 1]] for node in kept[1:]), tree.sampling, tree.block)


def _check_prompt(prompt: Sequence[int], models: Sequence[Model]) -> list[int]:
    text: list[int] = check_tokens(list(prompt), models[0].vocab_size, "prompt").tolist()
    least = max(1, *(model.order for model in models))
    if len(text) < least:
        raise ValueError(f"prompt: {len(text)} tokens; at least {least} are needed by the models")
    return text


class _Clock:
    """Seconds spent, by part."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float, {"draft": 0.0, "target": 0.0, "verify": 0.0})

    @contextmanager
    def measure(self, part: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[part] += time.perf_counter() - started
