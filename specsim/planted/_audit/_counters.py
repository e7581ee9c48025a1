"""Drafted and accepted tokens as an engine reports them, beside what the standard rule would accept."""

from collections.abc import Mapping, Sequence

from specsim.auditing._results.audit import Finding
from specsim.core._types import Floats
from specsim.planted._audit._results import EngineEfficiency
from specsim.planted._engines._requests import Completion
from specsim.theory import expected_tokens


def efficiency(
    texts: Sequence[Completion], server: Mapping[str, int] | None, overlap: Floats, gamma: int | None
) -> EngineEfficiency | None:
    """What speculation gained; None if the engine reports no drafted tokens.

    `server` has the differences of server-wide counters, which count where the texts have none; `overlap` is
    Σ min(p, q) at every place; `gamma` the length of drafts where it is known. Otherwise it is estimated by
    drafted tokens per step, where each step emits its accepted tokens and one more."""
    told = [one for one in texts if one.drafted is not None and one.accepted is not None]
    if told:
        drafted = sum(one.drafted or 0 for one in told)
        accepted = sum(one.accepted or 0 for one in told)
        emitted = sum(len(one.tokens) for one in told)
        steps = emitted - accepted
    elif server and server.get("drafted") is not None and server.get("accepted") is not None:
        drafted, accepted = server["drafted"], server["accepted"]
        emitted = sum(len(one.tokens) for one in texts)
        steps = server.get("steps") or emitted - accepted
    else:
        return None
    if drafted <= 0 or not len(overlap):
        return None
    alpha = float(overlap.mean())
    length = float(gamma) if gamma else (drafted / steps if steps > 0 else None)
    expected = float(expected_tokens(alpha, gamma)) if gamma else None
    if expected is None and length:
        expected = length + 1.0 if alpha == 1.0 else (1.0 - alpha ** (length + 1.0)) / (1.0 - alpha)
    return EngineEfficiency(
        drafted=drafted,
        accepted=accepted,
        alpha=alpha,
        gamma=length,
        accepted_share=accepted / drafted,
        expected_share=(expected - 1.0) / length if expected and length else None,
        tokens_per_step=1.0 + accepted * length / drafted if length else None,
        expected_tokens_per_step=expected,
    )


def impossible(texts: Sequence[Completion], gamma: int | None) -> Finding | None:
    """Counters that no run can have.

    With drafts of at most γ tokens there are at least drafted / γ steps, each of which emits its accepted
    tokens and one more; only the last step of a text may emit fewer."""
    told = [one for one in texts if one.drafted is not None and one.accepted is not None]
    for one in told:
        if not 0 <= (one.accepted or 0) <= (one.drafted or 0):
            return Finding(
                "counters",
                f"request {one.number} reports {one.accepted:,} accepted of {one.drafted:,} drafted tokens",
            )
    if gamma and told:
        drafted, accepted = sum(one.drafted or 0 for one in told), sum(one.accepted or 0 for one in told)
        emitted = sum(len(one.tokens) for one in told)
        least = accepted + drafted // gamma - (gamma + 1) * len(told)
        if least > emitted:
            return Finding(
                "counters",
                f"{accepted:,} accepted of {drafted:,} drafted tokens, {gamma} a step, make at least "
                f"{least:,} tokens; the texts have {emitted:,}",
            )
    return None
