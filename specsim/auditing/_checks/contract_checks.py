"""Checks without statistics: batch sizes, reproducibility, extreme uniforms, and a very rare draft.

Each promise is checked with a few small calls. A broken promise gives the verdict `broken`, an impossible
token `biased`."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from specsim.adapters._contract import BrokenVerifier, Declared, NotADraftPath
from specsim.auditing._cases.battery import Case, battery, case_key
from specsim.auditing._results.audit import UNANSWERED, CaseResult, Finding
from specsim.auditing._verifier.calls import VerifierSource
from specsim.auditing._verifier.requests import Callee
from specsim.core._streams import Key
from specsim.core._types import Floats, Ints
from specsim.models import TableModel, chain
from specsim.simulation._counting import Failure, Partial
from specsim.simulation._rows import Rows

PROMISES = "promises"
#: Rows of a call.
SIZES = (1, 2, 3, 7, 64)
ROWS = 64
#: Cases for extreme uniforms.
EDGE_CASES = ("zeros", "disjoint", "last token")
#: The largest uniforms below 1 of 53 and of 24 bits, and one that float32 rounds up to 1.
LAST_UNIFORMS = (1.0 - 2.0**-53, 1.0 - 2.0**-24, 1.0 - 2.0**-26)
#: The mass that p and q do not share; float16 and float32 can represent it.
RARE = 2.0**-24
#: The token that is drafted with that mass, and has none under p.
RARE_TOKEN = 4


def check_promises(callee: Callee, root: int, timeout: float) -> Partial:
    """Check the promises of a verifier; broken promises are the failures of the result."""
    key, failures = case_key(root, PROMISES), list[Failure]()
    alone = partial(_alone, "seeds"), partial(_alone, "uniforms")
    for check in (_sizes, _reproducible, *alone, _edges, _rare_draft):
        try:
            failures += check(callee, key, timeout)
        except BrokenVerifier as error:
            failures.append(Failure("contract", str(error), error.details))
        except NotADraftPath as error:
            failures.append(Failure("path", str(error)))
    return Partial({}, failures=tuple(failures))


def promises_result(found: Partial) -> CaseResult:
    """The result of the promises, a case without tables; its findings are the failures of `found`."""
    purpose = "calls of any size, inputs unchanged, the same tokens from the same randomness"
    failures = dict.fromkeys(Finding(*failure) for failure in found.failures)
    late = [finding.text for finding in failures if finding.kind == UNANSWERED]
    findings = tuple(finding for finding in failures if finding.kind != UNANSWERED)
    return CaseResult(PROMISES, f"; {UNANSWERED}: ".join([purpose, *late]), findings=findings)


def _calls(callee: Callee, timeout: float) -> VerifierSource:
    """Calls of the case "own rows", or of the first case, if the battery lacks that one."""
    cases = battery(callee.declared)
    case = next((case for case in cases if case.name == "own rows"), cases[0])
    return VerifierSource(callee, case, timeout)


def _sizes(callee: Callee, key: Key, timeout: float) -> list[Failure]:
    if callee.declared.tree:
        return []
    calls = _calls(callee, timeout)
    for size in SIZES:
        rows = calls.reader.rows(key, 0, size)
        called = min(size, callee.declared.batch or size)
        where = f"in a call of {called} row{'s' if called > 1 else ''}"
        _once(calls, rows, calls.extras(key, 0, rows), where)
    return []


def _once(calls: VerifierSource, rows: Rows, extras: dict[str, Any], where: str) -> Ints:
    """The tokens [B, γ+1] of one call; if it breaks the contract, the error says `where`."""
    try:
        return calls.once(rows, extras)
    except BrokenVerifier as error:
        raise BrokenVerifier(f"{error}; {where}", error.details) from error


def _reproducible(callee: Callee, key: Key, timeout: float) -> list[Failure]:
    """The same generator, the same rows: the same tokens."""
    if not callee.declared.reproducible:
        return []
    calls = _calls(callee, timeout)
    rows = calls.reader.rows(key, 0, ROWS)
    first, second = (calls.verify(rows, key, 0)[0] for _ in range(2))
    if not np.array_equal(first, second):
        step = int((first != second).any(axis=0).argmax())
        raise BrokenVerifier(
            f"step {step}: the same rng gave other tokens the second time; draw from rng alone, or declare "
            "reproducible=False"
        )
    return []


def _alone(name: str, callee: Callee, key: Key, timeout: float) -> list[Failure]:
    """A row with its own seed, or uniforms, gives the same tokens in any batch and order; others do not."""
    if not getattr(callee.declared, name):
        return []
    calls = _calls(callee, timeout)
    rows = calls.reader.rows(key, 0, ROWS)
    given = calls.extras(key, 0, rows)
    fixed = [s for s in range(ROWS) if name == "uniforms" or given["seeds"][s] is not None]
    together = _tokens(calls, rows, given, np.arange(ROWS))
    order = np.concatenate([np.arange(ROWS)[::-1], fixed])  # these stand twice in one call
    turned, again = _tokens(calls, rows, given, order), np.isin(order, fixed)
    alone = np.concatenate([_tokens(calls, rows, given, np.array([s])) for s in fixed[:8]])
    if (together[order] != turned)[again].any() or (together[fixed[:8]] != alone).any():
        raise BrokenVerifier(
            f"the same {'seed' if name == 'seeds' else name} gave other tokens in another batch or order, or "
            "where the row stands twice"
        )
    free = np.setdiff1d(np.arange(ROWS), fixed)
    if free.size and np.array_equal(together[free], calls.once(rows, given, 1)[free]):
        raise BrokenVerifier("rows without a seed gave the same tokens with another rng; draw them from rng")
    return []


def _tokens(calls: VerifierSource, rows: Rows, extras: dict[str, Any], order: Ints) -> Ints:
    """The tokens [n, γ+1] of the rows `order`, in one call."""
    chosen = {
        name: [value[s] for s in order] if isinstance(value, list) else value[order]
        for name, value in extras.items()
    }
    names = ("draft_tokens", "p", "q", "parents", "places")
    arrays = {name: array[order] for name in names if (array := getattr(rows, name, None)) is not None}
    return calls.once(replace(rows, **arrays), chosen)


def _edges(callee: Callee, key: Key, timeout: float) -> list[Failure]:
    """Uniforms of 0, and the largest below 1: the token must exist, and be possible."""
    if not callee.declared.uniforms:
        return []
    for case in (case for case in battery(callee.declared) if case.name in EDGE_CASES):
        calls = VerifierSource(callee, case, timeout)
        rows = calls.reader.rows(key, 0, ROWS)
        p = np.asarray(case.target.row(()))
        extras = calls.extras(key, 0, rows)
        for u in (0.0, *LAST_UNIFORMS):
            for columns in (slice(None), slice(0, -1), slice(-1, None)):
                edge = extras["uniforms"].copy()
                edge[:, columns] = u
                where = f"case {case.name}, a uniform of {u!r}"
                if found := _impossible(_once(calls, rows, extras | {"uniforms": edge}, where), p, where):
                    return found
    return []


def _rare_draft(callee: Callee, key: Key, timeout: float) -> list[Failure]:
    """A drafted token with p = 0 and a residual of mass `RARE`: the recovered token must be possible."""
    if (case := rare_draft_case(callee.declared)) is None:
        return []
    calls = VerifierSource(callee, case, timeout)
    rows = rare_rows(calls, key, ROWS)
    where = f"a drafted token of p = 0, q = {RARE:.1g}, p and q differ in one other token only"
    try:
        tokens = _once(calls, rows, calls.extras(key, 0, rows), where)
    except BrokenVerifier as error:
        if not str(error).startswith("hung: "):
            raise
        # right, though no server waits for it: one that draws from p until the residual keeps a token
        return [Failure(UNANSWERED, f"{ROWS} rows, {where}")]
    return _impossible(tokens, np.asarray(case.target.row(())), where)


def rare_draft_case(declared: Declared) -> Case | None:
    """p and q that differ by `RARE` in two tokens; None if the verifier does not take them."""
    size = min(64, declared.vocab_size or 64)
    if declared.tree or declared.decoder or size < 6:
        return None
    p, q = np.zeros((2, size))
    p[1:4] = 0.5 - RARE, 0.5, RARE
    q[[1, 2, RARE_TOKEN]] = 0.5 - RARE, 0.5, RARE
    return Case("rare draft", "", TableModel(p), TableModel(q), chain(1), dtype=declared.dtypes[0])


def rare_rows(calls: VerifierSource, key: Key, steps: int) -> Rows:
    """Steps that drafted the token that the target never emits."""
    rows = calls.reader.rows(key, 0, steps)
    return replace(rows, draft_tokens=np.full_like(rows.draft_tokens, RARE_TOKEN))


def _impossible(tokens: Ints, p: Floats, where: str) -> list[Failure]:
    """A failure for the first of `tokens` [B, γ+1] of probability 0 under the row `p`."""
    bad = np.argwhere((tokens >= 0) & (p[tokens] == 0.0))
    if not len(bad):
        return []
    step, position = bad[0]
    token = f"token {tokens[step, position]} at position {position + 1}"
    return [Failure("support", f"{where}: {token} has probability 0 under the target")]
