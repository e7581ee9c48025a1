"""Which requests an audit makes: drawn from the seed alone, so that a run can be continued or repeated."""

from dataclasses import replace

import numpy as np

from specsim.planted._engines._requests import Request, Sampling
from specsim.planted._folder import Planted

#: Lengths of most texts, and of the few that end early: what is done at the end of a text differs in engines.
LONG, SHORT = 64, (1, 2, 3, 5, 8)
#: One text in so many is short.
SHORT_EVERY = 8
#: Tokens of a prompt beyond what the law reads; engines begin a page of their cache at multiples of 16.
BEYOND = (0, 1, 2, 3, 5, 8, 14, 15, 16, 17, 31, 32)
#: The same for every second prompt where they are to be unequal: a batch of them is mostly padding.
FAR = 256
#: So many prompts are asked once, and then again in the order of a stride.
BLOCK, STRIDE = 8, 3
#: Requests that are made again at the end, with the same seed.
REPEATED = 8


def plan_requests(
    planted: Planted,
    seed: int,
    sampling: Sampling,
    tokens: int,
    n: int = 1,
    *,
    request_seeds: bool = True,
    unequal_prompts: bool = False,
) -> list[Request]:
    """Requests of `n` texts for at least `tokens` tokens, each with its own seed; then the first ones again.
    Without `request_seeds` they have none; with `unequal_prompts` every second prompt is longer by `FAR`.

    Each prompt is asked twice, so that equal texts and shared random numbers can be seen, and never by two
    requests in a row, so that mixed up requests can be.

    Raises
    ------
    ValueError
        If the context of the checkpoints is too short for the shortest prompt and one token."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    least = max(1, planted.target.start, planted.draft.start)
    if least + 1 > planted.context:
        raise ValueError(f"context: {planted.context} positions hold no prompt of {least} tokens and a text")
    far = max(0, min(FAR, planted.context - LONG - least))
    found: list[Request] = []
    total = 0
    while total < tokens:
        prompts = []
        for i in range(len(found) // 2, len(found) // 2 + BLOCK):
            beyond = far if unequal_prompts and i % 2 else BEYOND[i % len(BEYOND)]
            length = min(least + beyond, planted.context - 1)
            new = SHORT[i // SHORT_EVERY % len(SHORT)] if i % SHORT_EVERY == SHORT_EVERY - 1 else LONG
            prompt = tuple(planted.prompts(1, length, rng)[0].tolist())
            prompts.append((prompt, min(new, planted.context - length)))
        for prompt, new in [*prompts, *(prompts[(STRIDE * i + 1) % BLOCK] for i in range(BLOCK))]:
            own = int(rng.integers(1, 2**31))
            found.append(Request(len(found), prompt, new, own if request_seeds else None, n, sampling))
            total += n * new
    again = [replace(one, number=len(found) + i) for i, one in enumerate(found[:REPEATED])]
    return [*found, *again]
