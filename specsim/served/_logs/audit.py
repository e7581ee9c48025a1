"""Tests whether the tokens of served responses follow the log-probabilities that were logged with them.

At every place, given the text before it, the emitted token must follow the logged row, whatever speculation
did. `places.py` maps it to a uniform, which is counted in equal bins: for the whole text, by place in the
text, and, where the log has the accepted tokens of each step, by position in the step. (Not by whether a
token was accepted: accepted tokens alone follow another law than p.) Rare tokens are counted besides, with
exact binomial tests.

**Tolerance.** Logged log-probabilities are rounded, by up to τ. The law of a bin is then within exp(±17 τ) of
uniform: a listed cell is within exp(±τ), and the cell of all other tokens has the rest, which is off by at
most τ, or 16 τ of a bin. `specsim.core.stats.log_e_value` with that tolerance allows for all such laws.

**Unseen tokens.** Many servers do not log the token that ends a text. The tokens that are logged are then
those that did not end it, which follow another law. As nobody knows the missing token's bin, it is put into
the bin with the fewest: that makes the evidence at most what it would be with the true bin.

The errors of all tests add up to at most `BUDGET`.
"""

import math
from pathlib import Path

from specsim.core._arguments import checked
from specsim.core._lines import log_files, read_lines
from specsim.core._progress import ShowProgress, shows_progress, told
from specsim.core._streams import RandomSource, root_of
from specsim.served._logs.conditions import Conditions
from specsim.served._logs.counting import Counts
from specsim.served._logs.result import Contradiction, ServedAudit


@checked
@shows_progress("audit", "B")
def audit_served(
    path: str | Path,
    *,
    logprobs: str = "raw",
    temperature: float | None = None,
    tolerance: float = 1e-5,
    rng: RandomSource = 0,
    progress: ShowProgress = None,
) -> ServedAudit:
    """Test the tokens of logged responses of a server against their own logged log-probabilities.

    A log of JSON Lines is read in one pass, whatever its size: responses of the OpenAI interface, vLLM,
    SGLang or llama.cpp, with lists of the most probable tokens. Tokens that follow their rows are called
    biased with probability at most 1e-6, if texts are drawn independently.

    Parameters
    ----------
    path : path
        A file, or a folder with files that end in .jsonl or .ndjson.
    logprobs : {"raw", "processed"}
        Whether log-probabilities are those before or after temperature, truncation and penalties. Raw ones
        are tested where the request changes nothing: at temperature 1, or 0.
    temperature : float, optional
        The temperature of requests that do not have one in the log.
    tolerance : float
        By how much logged log-probabilities may be off, in nats, from 0 to 0.1.
    rng : int, Generator or None
        The seed of the places of tokens within their cells.
    progress : bool or callable, optional
        A bar by default, as in `specsim.simulate`. A function is called with the bytes read and
        their total.

    Returns
    -------
    ServedAudit

    Raises
    ------
    ValueError
        For arguments out of range, a path that is no log, or a log without any response.
    OSError
        If the file is missing or cannot be read.

    Examples
    --------
    >>> import json, tempfile
    >>> top = {"a": -0.6931472, "b": -0.6931472}
    >>> logprobs = {"tokens": ["a"], "token_logprobs": [-0.6931472], "top_logprobs": [top]}
    >>> choice = {"logprobs": logprobs, "finish_reason": "length"}
    >>> line = json.dumps({"request": {"temperature": 1, "logprobs": 2}, "choices": [choice]})
    >>> with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
    ...     print(line, file=file, flush=True)
    ...     found = audit_served(file.name)
    >>> found.places, str(found.verdict)
    (1, 'inconclusive')
    """
    if logprobs not in ("raw", "processed"):
        raise ValueError(f"logprobs: {logprobs!r} is neither 'raw' nor 'processed'")
    if not 0 <= tolerance <= 0.1:
        raise ValueError(f"tolerance: {tolerance} is outside [0, 0.1]")
    if temperature is not None and not (temperature >= 0 and math.isfinite(temperature)):
        raise ValueError(f"temperature: {temperature} is not a number ≥ 0")
    root = root_of(rng)
    counts = Counts(Conditions(logprobs == "processed", temperature), tolerance, root)
    for line in read_lines(log_files(Path(path)), told(progress)):
        counts.read(line.place, line.record, line.problem)
    if not counts.responses:
        first = f"; the first: {counts.named[0]}" if counts.named else ""
        raise ValueError(f"{path}: none of its {counts.unreadable:,} lines is a response with choices{first}")
    return ServedAudit(
        texts=counts.texts,
        places=int(counts.bins.sum()),
        logprobs=logprobs,
        tolerance=tolerance,
        tables=tuple(counts.tables()),
        rare=tuple(counts.rare_tokens()),
        impossible=counts.impossible,
        greedy=counts.greedy,
        not_greedy=counts.not_greedy,
        wrong=tuple(Contradiction(what, *found) for what, found in counts.wrong.items()),
        untested={why: (counts.left_out[why], counts.left_places[why]) for why in counts.left_places},
        unreadable=counts.unreadable,
        named=tuple(counts.named),
        root=root,
    )
