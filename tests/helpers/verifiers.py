"""Verifiers that the audit is tried on: a right one, and wrong ones that it must catch."""

from __future__ import annotations

import os
import time
from functools import cache

import numpy as np

from specsim import mistakes
from specsim.adapters import declares
from specsim.core.distributions import inverse_cdf


def verify(draft_tokens, p, q, rng, *, stratified=False, **how):
    """Standard verification of whole arrays in NumPy, with ways to spoil it."""
    return verified(draft_tokens, p, q, _uniforms(rng, *p.shape[:2], stratified), **how)


def verified(
    draft_tokens, p, q, u, lengths=None, *, lenience=1.0, residual="excess", passes=np.less, bonus=None
):
    """The same with given uniforms u[B, γ+1], of drafts of `lengths`.

    More ways to spoil it: another comparison, or the position `bonus` of the row that a whole accepted draft
    is followed by."""
    steps, gamma = draft_tokens.shape
    lengths = np.full(steps, gamma) if lengths is None else lengths
    drafted = draft_tokens[..., None]
    p_drafted = np.take_along_axis(p[:, :gamma], drafted, axis=2)[..., 0]
    q_drafted = np.take_along_axis(q, drafted, axis=2)[..., 0]
    passed = passes(u[:, :gamma] * q_drafted * lenience, p_drafted) & (np.arange(gamma) < lengths[:, None])
    passed = np.cumprod(passed, axis=1).astype(bool)
    accepted = passed.sum(axis=1)
    each, rejected = np.arange(steps), accepted < lengths
    weights = p[each, accepted if bonus is None else np.where(rejected, accepted, bonus)]
    if residual == "excess":
        excess = np.maximum(weights[rejected] - q[each[rejected], accepted[rejected]], 0.0)
        weights[rejected] = np.where(excess.any(axis=1, keepdims=True), excess, weights[rejected])
    cdf = weights.cumsum(axis=1)
    output = np.full((steps, gamma + 1), -1)
    output[:, :gamma][passed] = draft_tokens[passed]
    output[each, accepted] = (cdf <= u[:, gamma:] * cdf[:, -1:]).sum(axis=1)
    return output


def _uniforms(rng, steps, count, stratified):
    if not stratified:
        return rng.random((steps, count))
    # every column hits each interval [k/steps, (k+1)/steps) exactly once: too even to be independent
    columns = [(rng.permutation(steps) + rng.random(steps)) / steps for _ in range(count)]
    return np.stack(columns, axis=1)


def right(draft_tokens, p, q, rng):
    return verify(draft_tokens, p, q, rng)


def resamples_from_target(draft_tokens, p, q, rng):
    return verify(draft_tokens, p, q, rng, residual="target")


one_hot_residual, reuses_one_uniform, accepts_everything = (
    mistakes.get(name).function for name in ("one_hot_residual", "one_uniform", "accepts_everything")
)


def lenient(draft_tokens, p, q, rng):
    return verify(draft_tokens, p, q, rng, lenience=0.8)


def too_even(draft_tokens, p, q, rng):
    return verify(draft_tokens, p, q, rng, stratified=True)


def always_argmax(draft_tokens, p, q, rng):
    output = np.full((len(p), p.shape[1]), -1)
    output[:, 0] = p[:, 0].argmax(axis=1)
    return output


def ignores_drafts(draft_tokens, p, q, rng):
    """Exact, and of no use: one token a step, drawn from the target."""
    cdf = p[:, 0].cumsum(axis=1)
    output = np.full((len(p), p.shape[1]), -1)
    output[:, 0] = (cdf <= rng.random((len(p), 1)) * cdf[:, -1:]).sum(axis=1)
    return output


def neighbours_tokens(draft_tokens, p, q, rng):
    """Right law, wrong row: the accepted tokens of the step before."""
    output = verify(draft_tokens, p, q, rng)
    accepted = (output >= 0).sum(axis=1) - 1
    inner = np.arange(output.shape[1]) < accepted[:, None]
    output[inner] = np.roll(np.pad(draft_tokens, ((0, 0), (0, 1))), 1, axis=0)[inner]
    return output


def raises(draft_tokens, p, q, rng):
    raise RuntimeError("out of cheese")


def returns_floats(draft_tokens, p, q, rng):
    return verify(draft_tokens, p, q, rng).astype(float)


def wrong_shape(draft_tokens, p, q, rng):
    return verify(draft_tokens, p, q, rng)[:, :-1]


def out_of_range(draft_tokens, p, q, rng):
    output = verify(draft_tokens, p, q, rng)
    output[3, 0] = p.shape[2]
    return output


def empty_step(draft_tokens, p, q, rng):
    output = verify(draft_tokens, p, q, rng)
    output[5] = -1
    return output


def hole_in_padding(draft_tokens, p, q, rng):
    output = verify(draft_tokens, p, q, rng)
    output[:, 0] = -1
    output[:, 1] = 0
    return output


def alters_p(draft_tokens, p, q, rng):
    p *= 0.5
    return verify(draft_tokens, p, q, rng)


def ragged(draft_tokens, p, q, rng):
    return [row[row >= 0].tolist() for row in verify(draft_tokens, p, q, rng)]


def masked(draft_tokens, p, q, rng):
    return np.ma.masked_less(verify(draft_tokens, p, q, rng), 0)


def wrong_and_dies_of_wide_rows(draft_tokens, p, q, rng):
    """Biased where it lives, but for rows of two tokens."""
    if p.shape[2] > 64:
        os._exit(3)
    return (right if p.shape[2] == 2 else resamples_from_target)(draft_tokens, p, q, rng)


wrong_and_dies_of_wide_rows.declared = {"vocab_size": 100}  # one case is wide, so that few processes die


def notes_its_calls(draft_tokens, p, q, rng):
    """Appends what tells this call from others to a file of its process, in the folder $NOTES; naps for $NAP s."""
    time.sleep(float(os.environ.get("NAP", "0")))
    with open(os.path.join(os.environ["NOTES"], str(os.getpid())), "a", encoding="utf-8") as notes:
        state = rng.bit_generator.state["state"]["state"]
        print(*draft_tokens.shape, p.shape[2], int(draft_tokens.sum()), state, file=notes)
    return right(draft_tokens, p, q, rng)


def breaks_at_some_steps(draft_tokens, p, q, rng):
    """In a case of many tokens, in about one of twenty calls."""
    if p.shape[2] == 1000 and len(p) > 10 and int(draft_tokens.sum()) % 20 == 0:
        raise ValueError(f"drafted {int(draft_tokens[0, 0])}")
    return right(draft_tokens, p, q, rng)


def naps(draft_tokens, p, q, rng):
    time.sleep(0.001 * len(p))
    return right(draft_tokens, p, q, rng)


def samples(target, draft, prompt, max_new_tokens, eos, rng):
    """A decoder that drafts nothing."""
    text = list(prompt)
    while len(text) - len(prompt) < max_new_tokens and (len(text) == len(prompt) or text[-1] != eos):
        row = np.asarray(target.row(tuple(text)), dtype=np.float64)
        text.append(int(row.cumsum().searchsorted(rng.random() * row.sum(), side="right")))
    return text[len(prompt) :]


samples.declared = {"decoder": True}


def sleeps_over_32_tokens(draft_tokens, p, q, rng):
    if p.shape[2] == 32:
        time.sleep(100)
    return right(draft_tokens, p, q, rng)


def down_a_tree(law, way="sampled"):
    """A verifier of trees that tests children one after the other, each with the `law` of one drafted token."""
    law = cache(law)

    @declares(tree=True, draft_sampling=way)
    def verify(parents, tokens, p, q, rng):
        node, path, p, q = 0, [], [*map(tuple, p.tolist())], [*map(tuple, q.tolist())]
        target = p[0]
        while children := [j + 1 for j, parent in enumerate(parents) if parent == node]:
            for child in children:
                stop, follow = law((0,), (int(tokens[child - 1]),), (target, target), (q[node],))
                if rng.random() < stop[1]:
                    node, target = child, p[child]
                    path.append(child)
                    break
                target = tuple(follow[0])
            else:
                break
        return path, inverse_cdf(target, rng.random())

    return verify


class Given:
    """A generator that gives these uniforms."""

    def __init__(self, u):
        self.u = u

    def random(self, shape):
        return self.u
