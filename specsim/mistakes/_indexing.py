"""Rows of the wrong position or of the wrong request, or rows used one token late."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from specsim.core._types import Floats, Ints, Tokens
from specsim.mistakes import _reference as ref
from specsim.mistakes._decoding import Decoder, decoder_mistake
from specsim.mistakes._laws import Rows, StepLaw, chain_law, of_chain, ratios, stop_law
from specsim.mistakes._reference import pack_output, verifier_mistake, verify

FAMILY = "wrong row or position"
mistake = partial(verifier_mistake, FAMILY)
decoder = partial(decoder_mistake, FAMILY)


def next_rows(rows: Floats) -> Floats:
    """At each position the row after it; the last has none, and keeps its own."""
    return np.concatenate([rows[:, 1:], rows[:, -1:]], axis=1)


@of_chain
def one_late_law(tokens: Sequence[int], p: Rows, q: Rows) -> StepLaw:
    *before, rejected, whole = stop_law(ratios(tokens, p, q))
    return [0 * whole, *before, rejected + whole], [list(row) for row in p]


def neighbours(rows: Any) -> Any:
    """Of each step of the batch, the one before."""
    return np.roll(rows, 1, axis=0)


def cartesian_write(draft_tokens: Ints, accepted: Ints, last: Ints) -> Ints:
    """output[:, accepted] = last writes every row's token to all rows: the last row with that count stays."""
    written = np.zeros(draft_tokens.shape[1] + 1, dtype=np.int64)
    written[accepted] = last
    return pack_output(draft_tokens, accepted, written[accepted])


def least_of_call(passed: Any) -> Ints:
    """The least number of accepted tokens of all rows."""
    accepted = ref.first_failure(passed)
    return np.full_like(accepted, accepted.min(initial=passed.shape[1]))


def whole_draft(drafted: Tokens, accepted: int, last: int) -> Tokens:
    """All drafted tokens, the rejected ones included."""
    return (*drafted, last)


def without_last(drafted: Tokens, accepted: int, last: int) -> Tokens:
    """After a draft accepted whole the bonus is missing."""
    return drafted if accepted == len(drafted) > 0 else (*drafted[:accepted], last)


def without_last_drafted(drafted: Tokens, accepted: int, last: int) -> Tokens:
    """After a draft accepted whole its last token, which was never fed to the draft model, is missing."""
    return (*drafted[: min(accepted, max(len(drafted) - 1, 0))], last)


def without_recovered(drafted: Tokens, accepted: int, last: int) -> Tokens:
    """After some, but not all, drafted tokens were accepted the recovered one is dropped."""
    return drafted[:accepted] if 0 < accepted < len(drafted) else (*drafted[:accepted], last)


def overwritten(drafted: Tokens, accepted: int, last: int) -> Tokens:
    """The recovered token takes the place of the last accepted one too."""
    return (
        (*drafted[: accepted - 1], last, last) if 0 < accepted < len(drafted) else (*drafted[:accepted], last)
    )


#: Rows of a block of a call.
BLOCK = 32


MISTAKES = (
    mistake(
        "bonus_row_before",
        "The bonus is drawn from the target's row of the last drafted token, one too early.",
        threads=("NVIDIA/TensorRT-LLM#15098",),
        rows=lambda x, p, q: (p[:, [*range(x.shape[1]), -2]], q),
    ),
    mistake(
        "recovers_from_next_row",
        "The recovered token is drawn from the rows after the rejected position.",
        threads=("NVIDIA/TensorRT-LLM#15098",),
        rows=lambda x, p, q: (next_rows(p), next_rows(q)),
    ),
    mistake(
        "residual_next_draft_row",
        "The residual subtracts the draft's row of the next position.",
        rows=lambda x, p, q: (p, next_rows(q)),
    ),
    mistake(
        "residual_first_target_row",
        "The residual is computed from the target's row at the first position.",
        rows=lambda x, p, q: (p[:, [0] * x.shape[1] + [-1]], q),
    ),
    mistake(
        "tests_next_row",
        "Drafted tokens are tested against the target's row of the next position.",
        threads=("NVIDIA/TensorRT-LLM#15098",),
        verify=lambda x, p, q, rng: verify(x, p[:, 1:], q, rng, rows=lambda *_: (p, q)),
        law=chain_law(lambda tokens, p, q: ratios(tokens, p[1:], q)),
    ),
    mistake(
        "rejects_one_late",
        "A rejection takes effect one token late: the rejected token is emitted too.",
        threads=("openvinotoolkit/openvino.genai#4190",),
        count=lambda passed: np.minimum(ref.first_failure(passed) + 1, passed.shape[1]),
        recover=ref.target,
        law=one_late_law,
    ),
    mistake(
        "neighbours_target_rows",
        "The last token is drawn from the target's rows of another request.",
        threads=("vllm-project/vllm#35398",),
        verify=lambda x, p, q, rng: verify(x, p, q, rng, rows=lambda *_: (neighbours(p), q)),
    ),
    mistake(
        "neighbours_draft_rows",
        "The residual subtracts the draft's rows of another request.",
        verify=lambda x, p, q, rng: verify(x, p, q, rng, rows=lambda *_: (p, neighbours(q))),
    ),
    mistake(
        "neighbours_token",
        "The last token is that of another request.",
        threads=("vllm-project/vllm#14645", "1CatAI/1Cat-vLLM#656"),
        pack=lambda x, accepted, last: pack_output(x, accepted, neighbours(last)),
    ),
    mistake(
        "neighbours_draft",
        "The accepted tokens are those of another request.",
        threads=("vllm-project/vllm#14645",),
        pack=lambda x, accepted, last: pack_output(neighbours(x), accepted, last),
    ),
    mistake(
        "cartesian_write",
        "An indexed write assigns one last token to all rows with the same accepted length.",
        threads=("Dao-AILab/flash-attention#2779",),
        pack=cartesian_write,
    ),
    mistake(
        "unverified_rest",
        "The rows of a call after its last whole block of 32 are accepted without a test.",
        passes=lambda u, x, p, q: (
            ref.ratio_test(u, x, p, q) | (np.arange(len(x)) >= max(len(x) // BLOCK * BLOCK, 1))[:, None]
        ),
    ),
    mistake(
        "rows_by_rank",
        "Drafts are verified against the target's rows in the order of the drafted tokens, as after a sort.",
        verify=lambda x, p, q, rng: verify(x, p[x[:, 0].argsort(kind="stable")], q, rng),
    ),
    mistake(
        "shortest_of_call",
        "All rows of a call stop where the first of them is rejected, and draw from the residual there.",
        count=least_of_call,
    ),
    decoder(
        "keeps_rejected",
        "Rejected tokens stay in the output, before the recovered token.",
        Decoder(emits=whole_draft, draft_keeps=whole_draft, target_keeps=whole_draft),
        threads=("lucidrains/speculative-decoding#3",),
    ),
    decoder(
        "drops_recovered",
        "The recovered token is dropped if some drafted tokens were accepted.",
        Decoder(emits=without_recovered, draft_keeps=without_recovered, target_keeps=without_recovered),
        threads=("openvinotoolkit/openvino.genai#4190",),
    ),
    decoder(
        "late_rejection",
        "A rejection takes effect one token late: the rejected token is emitted too.",
        Decoder(late=True),
        threads=("openvinotoolkit/openvino.genai#4190",),
    ),
    decoder(
        "target_not_rolled_back",
        "Rejected tokens stay in the target's state.",
        Decoder(target_keeps=whole_draft),
    ),
    decoder(
        "bonus_not_processed",
        "The bonus is never added to the target's state.",
        Decoder(target_keeps=without_last),
        threads=("vllm-project/vllm#9730", "vllm-project/vllm#7508"),
    ),
    decoder(
        "target_one_short",
        "After a fully accepted draft the target's state lacks the last drafted token.",
        Decoder(target_keeps=without_last_drafted),
    ),
    decoder(
        "draft_not_rolled_back_rescored",
        "The draft's state keeps rejected tokens, but q of verification is read after the clean text.",
        Decoder(draft_keeps=whole_draft, rescored=True),
    ),
    decoder(
        "draft_one_short_rescored",
        "The draft's state lacks the last drafted token, but q of verification is read after the whole text.",
        Decoder(draft_keeps=without_last_drafted, rescored=True),
    ),
    decoder(
        "text_overwritten",
        "The recovered token overwrites the accepted one before it in the text, but not in the caches.",
        Decoder(emits=overwritten),
        threads=("Infini-AI-Lab/Sequoia SpecTree.verify",),
    ),
    decoder(
        "repeats_last",
        "The last token of a step is emitted again as the first one of the next.",
        Decoder(emits=lambda drafted, accepted, last: (*drafted[:accepted], last, last)),
    ),
    decoder("decoder_bonus_from_draft", "The bonus is drawn from the draft.", Decoder(bonus_of_draft=True)),
    decoder(
        "token_after_eos",
        "The token after a drafted end-of-sequence token is emitted too.",
        Decoder(ends=lambda step, eos: (step[: step.index(eos) + 2], True) if eos in step else (step, False)),
    ),
    decoder(
        "eos_in_draft_unseen",
        "Only the last token of a step is compared with the end-of-sequence token.",
        Decoder(ends=lambda step, eos: (step, step[-1] == eos)),
    ),
)
