"""Exact controls: verifiers and decoders that are exact but accept less than they could; an audit must not
reject them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from specsim.auditing.mutants._acceptance import block_chances, last_success, scaled_rows
from specsim.auditing.mutants._base import Mutant
from specsim.auditing.mutants._decoding import Decoder, decoder_mutant
from specsim.auditing.mutants._indexing import whole_draft, without_last_drafted
from specsim.auditing.mutants._reference import (
    StepLaw,
    at,
    first_failure,
    last_token,
    one_hot,
    pack_output,
    verify,
)
from specsim.auditing.mutants._residual import mask_drafted
from specsim.core._types import Row
from specsim.core.distributions import Floats, Ints
from specsim.rules._chain import block
from specsim.rules._chain.one_hot import RULE as ONE_HOT
from specsim.rules._chain.sampler_match import RULE as SAMPLER_MATCH

mutant = partial(Mutant, family="exact but wasteful")
decoder = partial(decoder_mutant, mutant)


def sampler_match(draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator) -> Ints:
    cdf = p.cumsum(axis=2)
    drawn = (cdf <= rng.random((*p.shape[:2], 1)) * cdf[..., -1:]).sum(axis=2)
    accepted = first_failure(drawn[:, :-1] == draft_tokens)
    return pack_output(draft_tokens, accepted, drawn[np.arange(len(p)), accepted])


def block_one_hot(draft_tokens: Ints, p: Floats, q: Floats, rng: np.random.Generator) -> Ints:
    q = np.zeros_like(q)
    np.put_along_axis(q, draft_tokens[..., None], 1.0, axis=2)
    b, h = block_chances(draft_tokens, p, q)
    accepted = last_success(rng.random(draft_tokens.shape) < h[:, 1:])
    rows = scaled_rows(p, b)
    return pack_output(
        draft_tokens, accepted, last_token(draft_tokens, rows, q, accepted, rng.random(len(p)))
    )


def block_one_hot_law(
    parents: Sequence[int], tokens: Sequence[int], p: Sequence[Row], q: Sequence[Row]
) -> StepLaw:
    return block.RULE.law(
        parents, tokens, p, [one_hot(len(row), x) for row, x in zip(q, tokens, strict=False)]
    )


EXACT_CONTROLS = (
    mutant(
        name="one_hot_draft",
        mechanism="A sampled draft is verified as if q were 1: accepted with p(x), else p without x isused.",
        threads=("vllm-project/vllm#40149",),
        verify=partial(verify, passes=lambda u, x, p, q: u < at(p, x), recover=mask_drafted),
        law=ONE_HOT.law,
    ),
    mutant(
        name="sampler_match",
        mechanism="The target is sampled at every position; drafted tokens are accepted while they agree.",
        threads=("z-lab/dflash#74", "z-lab/dflash#77", "mlx-swift-lm#459", "mlxcel#992"),
        verify=sampler_match,
        law=SAMPLER_MATCH.law,
    ),
    mutant(
        name="block_one_hot",
        mechanism="Block verification with q = 1 for the drafted tokens, as for n-gram drafts.",
        threads=("vllm-project/vllm-ascend#7603", "vllm-project/vllm-ascend#7839", "vllm-project/vllm#40819"),
        verify=block_one_hot,
        law=block_one_hot_law,
    ),
    decoder(
        "draft_not_rolled_back",
        "The draft's state keeps rejected tokens, and q is read from it: only acceptance is lower.",
        Decoder(draft_keeps=whole_draft),
    ),
    decoder(
        "draft_one_short",
        "After a fully accepted draft the draft's state lacks the last token, and q is read from it.",
        Decoder(draft_keeps=without_last_drafted),
    ),
)
