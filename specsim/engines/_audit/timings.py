"""Check the times that a server reports of its requests: to the first token, between tokens, to the last."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specsim.engines._planted.requests import Completion
from specsim.served._checking import check_metrics


def about_times(texts: Sequence[Completion], server: Mapping[str, int] | None) -> Iterator[str]:
    """What is wrong with the times of a server, in sentences, if it has them and served `texts` alone.

    Of each kind of time `server` has the number and the sum in microseconds. Engines have one name for the
    time between two tokens and for that between two answers, which may have several tokens."""
    server = server or {}
    counts = {of: n for of in ("ttft", "latency", "itl", "tpot") if (n := server.get(f"{of} count"))}
    between = "itl" if "itl" in counts else "tpot"
    if not {"ttft", "latency", between} <= counts.keys():
        return
    each = {of: server[f"{of} µs"] / count / 1e3 for of, count in counts.items()}
    requests, emitted = len(texts), sum(len(one.tokens) for one in texts)
    intervals, later = counts[between], emitted - requests
    if requests != counts["ttft"] or intervals > later or min(each.values()) <= 0.0:
        others = f"they count {counts['ttft']:,} texts and {intervals:,} intervals between tokens"
        yield f"The server's times are not used: {others}, not {requests:,} and at most {later:,}."
        return
    known: dict[str, Any] = {"engine": "other", "requests": requests, "emitted": emitted}
    known |= {name: f"{each[name]:.5g}" for name in ("ttft", "latency")}
    found = check_metrics(**known, tpot=f"{each[between]:.5g}")
    if not found.possible and intervals < later:
        token = f"{each[between] * intervals / later:.5g}"
        said = f"{intervals:,} intervals of {each[between]:.5g} ms, and {later:,} tokens of {token} ms"
        yield f"The server's latency between tokens is that between answers: {said}."
        found = check_metrics(**known, tpot=token)
    if not found.possible:
        yield f"The server's times contradict each other: {found.verdict.partition(': ')[2]}."
