"""Speculative decoding from the prompt to the last token, and sampling from the target alone."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from specsim import rules
from specsim.core._files import read_table
from specsim.core._progress import Progress, ShowProgress, shows_progress, told
from specsim.core._provenance import Provenance
from specsim.core._streams import Key, Purpose, RandomSource, key_of, root_of, uniforms
from specsim.core._types import check_choice, check_count, checked
from specsim.core.distributions import check_tokens, cumulative_draw
from specsim.decoding._drafters import Drafter, Side, make_drafter
from specsim.decoding._result import Generation, Step
from specsim.models import DynamicTree, LookaheadDecoding, Model, Pair, PromptLookup, Tree, chain
from specsim.models._base import check_pair
from specsim.models._drafts.dynamic import Draft
from specsim.rules import Rule
from specsim.simulation import methods
from specsim.simulation._rows import Rows, tile_parents
from specsim.simulation._sources import rule_verifier

#: How the tokens of a chain are drafted.
DRAFTINGS: dict[str, str] = read_table("kinds")["draftings"]


@checked
@shows_progress("generate", " tokens")
def generate(
    target: Model,
    draft: Model | PromptLookup | LookaheadDecoding,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    gamma: int | Draft = 5,
    rule: str | Rule = "standard",
    drafting: str = "sample",
    method: str | methods.Method | None = None,
    eos: int | None = None,
    rng: RandomSource = None,
    progress: ShowProgress = None,
) -> Generation:
    """Decode speculatively after `prompt`.

    With a lossless rule the new tokens have the target's own distribution, whatever the draft; with a lossy
    one each has the distribution that the rule declares, given its position in the step.

    Parameters
    ----------
    target, draft : Model
        Two models over one vocabulary; or as draft a `PromptLookup` or `LookaheadDecoding`, which draft from
        the text so far.
    prompt : sequence of int
        Tokens; at least one, and at least as many as the models condition on.
    max_new_tokens : int
        At least 1. The last steps draft less, so that no more tokens are emitted.
    gamma : int or Draft
        Drafted tokens per step, or the tree that is drafted; a `Tree` states how its siblings are drawn, a
        `DynamicTree` is chosen anew in every step.
    rule : str or Rule
        Verifies the drafts.
    drafting : {"sample", "greedy"}
        How a chain is drafted, see `DRAFTINGS`. With "greedy" q is 1 at the drafted token, which is what the
        token was drawn from, so every rule for sampled drafts holds.
    method : str or Method, optional
        A drafting system in place of `gamma`, `rule` and `drafting`, of `specsim.simulation.methods`, such as
        "eagle2:nodes=30".
    eos : int, optional
        A token that ends the text; it is kept.
    rng : int, Generator or None
        The seed. Every random number is a function of it and the step.
    progress : bool or callable, optional
        As in `specsim.simulate`, in tokens.

    Returns
    -------
    Generation
        Tokens, steps and times; the seconds of a first call include compilation.

    Raises
    ------
    ValueError, TypeError
        For models without a common vocabulary, tokens outside it, a short prompt, max_new_tokens < 1, an
        unknown rule or drafting, or drafts that the rule is not claimed for.

    References
    ----------
    Leviathan, Kalman & Matias, arXiv 2211.17192, Algorithm 1.

    Examples
    --------
    >>> from specsim import default_pair
    >>> text = generate(*default_pair(), b"import ", max_new_tokens=20, rng=1)
    >>> len(text.tokens), text.accepted + text.iterations - text.dropped
    (20, 20)
    """
    system = None
    if method is not None:
        system = methods.get(method)
        if gamma != 5 or rules.get(rule).name != "standard" or drafting != "sample":
            raise ValueError(f"method: {system.name} has its own rule and draft; leave those out")
        made = system.drafting(Pair(target, draft))
        (target, draft), rule, gamma = made.pair, system.rule, made.shape
    if isinstance(draft, PromptLookup | LookaheadDecoding):
        _check_model(target)
        check_tokens(draft.text, target.vocab_size, "text")
    else:
        check_pair(target, draft)
    chosen = rules.get(rule)
    shape = _check_shape(chosen, draft, gamma, drafting)
    if isinstance(shape, DynamicTree):
        shape.check_candidates(target.vocab_size)
    elif isinstance(draft, Model):
        shape.check_siblings(target.vocab_size)
    text = _check_prompt(prompt, [one for one in (target, draft) if isinstance(one, Model)])
    root = root_of(rng)
    drafter = make_drafter(target, draft, text, shape, drafting == "greedy", chosen, root)
    about = {"rule": str(chosen), "tree": shape, "drafting": drafting, "method": system and str(system)}
    return _decode(target, text, (drafter, chosen), about, max_new_tokens, eos, root, told(progress))


@checked
@shows_progress("sample", " tokens")
def sample(
    target: Model,
    prompt: Sequence[int],
    *,
    max_new_tokens: int,
    eos: int | None = None,
    rng: RandomSource = None,
    progress: ShowProgress = None,
) -> Generation:
    """Sample from the target alone, one token per pass: the baseline of `generate`.

    Parameters
    ----------
    target : Model
        The model to sample from.
    prompt, max_new_tokens, eos, rng, progress
        As in `generate`.

    Returns
    -------
    Generation

    Raises
    ------
    ValueError, TypeError
        As `generate`.

    Examples
    --------
    >>> from specsim import default_pair
    >>> sample(default_pair()[0], b"import ", max_new_tokens=20, rng=1).tokens_per_iteration
    1.0
    """
    _check_model(target)
    text, about = _check_prompt(prompt, (target,)), {"rule": None, "tree": None, "drafting": "none"}
    return _decode(target, text, None, about, max_new_tokens, eos, rng, told(progress))


def _decode(
    target: Model,
    text: list[int],
    speculation: tuple[Drafter, Rule] | None,
    about: dict[str, Any],
    max_new_tokens: int,
    eos: int | None,
    rng: RandomSource,
    tell: Progress,
) -> Generation:
    limit = check_count("max_new_tokens", max_new_tokens)
    eos = None if eos is None else int(check_tokens([eos], target.vocab_size, "eos")[0])
    root, seconds = root_of(rng), {"draft": 0.0, "target": 0.0, "verify": 0.0}
    key, session = key_of(root), Side(target, text)
    tokens: list[int] = []
    steps: list[Step] = []
    started, interrupted = time.perf_counter(), False
    try:
        while len(tokens) < limit and (eos is None or eos not in tokens):
            given, room = (session, key, len(steps), seconds), limit - len(tokens) - 1
            if speculation is not None and speculation[1].declared is not None:
                room = max(room, 1)  # a lossy rule always drafts: it declares another law than the target's
            if speculation is None or not room:
                emitted, step = _plain_step(*given)
            else:
                emitted, step = _speculative_step(*given, *speculation, room)
            tokens += emitted
            steps.append(step)
            tell(min(len(tokens), limit), limit)
    except KeyboardInterrupt:
        if not steps:
            raise
        interrupted = True
    tokens = tokens[:limit]
    if eos is not None and eos in tokens:
        tokens = tokens[: tokens.index(eos) + 1]
    return Generation(
        tuple(text),
        tuple(tokens),
        **about,
        steps=tuple(steps),
        seconds=seconds,
        provenance=Provenance.record(root, 1, time.perf_counter() - started),
        interrupted=interrupted,
    )


def _speculative_step(
    target: Side, key: Key, number: int, seconds: dict[str, float], drafter: Drafter, rule: Rule, room: int
) -> tuple[list[int], Step]:
    """Draft, score the draft in one pass, verify: the emitted tokens, the accepted ones and one more."""
    with _timed(seconds, "draft"):
        drafted = drafter.draft(room, key, number)
    if drafted is None:
        emitted, step = _plain_step(target, key, number, seconds)
        drafter.settle([], emitted[-1])
        return emitted, step
    tree, tokens, q = drafted
    with _timed(seconds, "target"):
        p = target.rows(tree, tokens)
    with _timed(seconds, "verify"):
        rows = Rows(tokens[None], p[None], q[None], tile_parents(tree, 1))
        columns, accepted = rule_verifier(rule, tree)(rows, key, number)
        emitted = columns[: accepted[0] + 1, 0].tolist()
    for session in (target, drafter):
        session.settle(emitted[:-1], emitted[-1])
    return emitted, Step(tree.size, tree.depth, len(emitted) - 1)


def _plain_step(target: Side, key: Key, number: int, seconds: dict[str, float]) -> tuple[list[int], Step]:
    """A token of the target's own row, drawn with the first uniform of the verification stream."""
    with _timed(seconds, "target"):
        row = target.feed()[0]
    with _timed(seconds, "verify"):
        token = int(cumulative_draw(row, uniforms(key, Purpose.VERIFY, number, 1, 1)[0, 0]))
    target.settle([], token)
    return [token], Step(0, 0, 0)


def _check_shape(rule: Rule, draft: Any, gamma: int | Draft, drafting: str) -> Draft:
    """What a step drafts; ValueError if the rule's claim does not cover it."""
    check_choice("drafting", drafting, DRAFTINGS)
    if isinstance(draft, PromptLookup | LookaheadDecoding):
        if isinstance(gamma, DynamicTree) or drafting == "greedy":
            raise ValueError("gamma: no model chooses drafts from the text; give the number of tokens")
        draft.check_rule(rule)
        from_text = draft.tree(gamma)
        rule.check(from_text)
        return from_text
    tree: Draft
    if not isinstance(gamma, Tree | DynamicTree):  # of a single child all ways of sampling are the same
        tree = chain(gamma, "sampled" if "sampled" in rule.draft_sampling else rule.draft_sampling[0])
    elif drafting == "greedy":
        raise ValueError("drafting: a Tree states how its siblings are drawn; leave 'greedy' out")
    else:
        tree = gamma
    rule.check(tree)
    if tree.draft_sampling not in rule.draft_sampling:
        drawn = " or ".join(map(repr, rule.draft_sampling))
        raise ValueError(
            f"gamma: {rule.name} holds for drafts drawn {drawn}, not {tree.draft_sampling!r}; for 'top' give "
            "the rule 'deterministic_children'"
        )
    return tree


def _check_model(target: Any) -> None:
    if not isinstance(target, Model):
        kind = type(target).__name__
        raise TypeError(f"target: expected a model, got {kind}; give such as TableModel([1/2, 1/2])")


def _check_prompt(prompt: Sequence[int], models: Sequence[Model]) -> list[int]:
    if not isinstance(prompt, Iterable):  # what is gone through by its items may have no end
        raise TypeError(f"prompt: expected a sequence of token ids, got {type(prompt).__name__}")
    text: list[int] = check_tokens(list(prompt), models[0].vocab_size, "prompt").tolist()
    least = max(1, *(model.order for model in models))
    if len(text) < least:
        raise ValueError(f"prompt: {len(text)} tokens are too few; give at least {least} for the models")
    return text


@contextmanager
def _timed(seconds: dict[str, float], part: str) -> Iterator[None]:
    """Add the time of a block to the `seconds` of its part."""
    started = time.perf_counter()
    yield
    seconds[part] += time.perf_counter() - started
