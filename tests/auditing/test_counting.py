"""What makes counting an audit's steps fast: tables of rows, one pass over the tokens, arrays sent once."""

import ctypes
import socket
from dataclasses import replace

import numpy as np
import pytest
import verifiers

from specsim.adapters._contract import BrokenVerifier, Declared
from specsim.auditing._cases.battery import battery
from specsim.auditing._cases.rows import InverseCDF, TableRows, rows_of
from specsim.auditing._checks.claimed_law import Claim
from specsim.auditing._checks.counts import ENDS, PIT_BINS, TAIL_EDGES, AuditTally, prefix_cells
from specsim.auditing._verifier.calls import VerifierSource
from specsim.auditing._verifier.local import COMPARED_ROWS, Local
from specsim.auditing._verifier.requests import RowsAsked, receive_question, send_question
from specsim.core._streams import Purpose, uniforms
from specsim.simulation._rows import model_rows

CASES = {case.name: case for case in battery(Declared())}
KEY = (1, 2)


@pytest.mark.parametrize("name", ["Markov chain", "n-gram pair"])
def test_rows_from_tables_are_those_of_the_models(name):
    case = CASES[name]
    reader = rows_of(case)
    assert isinstance(reader, TableRows)
    found, expected = (
        one.rows(KEY, 5, 1500) for one in (reader, model_rows(case.target, case.draft, case.tree))
    )
    for field in ("draft_tokens", "p", "q", "parents"):
        assert np.array_equal(getattr(found, field), getattr(expected, field))


@pytest.mark.parametrize("name", ["two-point", "zeros", "one-hot draft", "rounded rows", "Zipf 1 000"])
def test_drafts_of_a_pair_are_those_of_a_search(name):
    q = np.asarray(CASES[name].draft.row(()), dtype=np.float64)
    u = uniforms(KEY, int(Purpose.DRAFT), 7, 3000, 2)
    tokens, last = InverseCDF(q[None]).chains(
        (*KEY, int(Purpose.DRAFT), 7), 3000, 2, np.empty(0, dtype=np.int32)
    )
    assert np.array_equal(tokens, q.cumsum().searchsorted(u.T * q.cumsum()[-1], side="right"))
    assert last.size == 0


def counted(case, batch):
    tally = AuditTally(case, Claim(None, case.tree))
    counts = tally.zeros()
    tally.count(counts, batch, KEY)
    return counts


def batch_of(case, steps):
    return next(iter(VerifierSource(Local(verifiers.right), case).batches(KEY, 0, steps)))


def naive(case, batch):
    """Prefix, PIT and tail counts of all tokens and of those that end a step, token by token."""
    size, positions = case.vocab_size, case.gamma + 1
    found = {
        of + name: np.zeros(shape, dtype=np.int64)
        for of in ("", ENDS)
        for name, shape in (("pit", (positions, PIT_BINS)), ("tail", (positions, len(TAIL_EDGES))))
    }
    found |= {of + "prefixes": np.zeros(prefix_cells(case), dtype=np.int64) for of in ("", ENDS)}
    v = uniforms(KEY, int(Purpose.COUNT), batch.first, len(batch.accepted), positions)
    for s, accepted in enumerate(batch.accepted.tolist()):
        prefix, start = 0, 0
        for i in range(accepted + 1):
            x = int(batch.tokens[i, s])
            p = batch.rows.p[s, i]
            q = batch.rows.q[s, i] if i < case.gamma else np.ones(size)
            with np.errstate(divide="ignore"):
                ratio = np.divide(p, q, out=np.zeros(size), where=p > 0)
            prefix, here = prefix * size + x, [""] + [ENDS] * (i == accepted)
            for of in here:
                if start + size ** (i + 1) <= prefix_cells(case):
                    found[of + "prefixes"][start + prefix] += 1
                for name, score in (("pit", ratio), ("tail", p)):
                    before = (score < score[x]) | ((score == score[x]) & (np.arange(size) < x))
                    image = p[before].sum() + v[i, s] * p[x]
                    b = (
                        int(image * PIT_BINS)
                        if name == "pit"
                        else int(np.searchsorted(TAIL_EDGES, image, "right"))
                    )
                    found[of + name][i, b] += 1
            start += size ** (i + 1)
    return found


@pytest.mark.parametrize("name", ["Markov chain", "n-gram pair"])
def test_one_pass_counts_what_a_plain_loop_counts(name):
    """More steps than a block of the kernel has where rows are short, so that blocks are joined."""
    case = CASES[name]
    batch = batch_of(case, 2500 if name == "Markov chain" else 300)
    counts, expected = counted(case, batch), naive(case, batch)
    for array, found in expected.items():
        assert np.array_equal(counts[array], found), array
    moved = replace(batch, tokens=np.where(batch.tokens >= 0, batch.tokens[:, ::-1], -1))
    assert not np.array_equal(naive(case, moved)["pit"], counts["pit"])  # of other tokens they differ


def test_tables_and_rows_give_the_same_counts():
    case = CASES["Markov chain"]
    batch = batch_of(case, 3000)
    assert batch.rows.last is not None
    by_table, by_rows = (
        counted(case, batch),
        counted(case, replace(batch, rows=replace(batch.rows, last=None))),
    )
    assert by_table.keys() == by_rows.keys()
    for name, found in by_table.items():
        assert np.array_equal(found, by_rows[name]), name


def asked(rows, p):
    arrays = {"draft_tokens": np.zeros((rows, 1), dtype=np.int64), "p": p, "q": p[:, :1]}
    return RowsAsked(arrays, None, rows, 2, (0,), 0, 1.0)


def test_an_array_that_the_child_has_is_not_sent_again():
    p = np.arange(24.0).reshape(4, 2, 3)
    parent, child = socket.socketpair()
    with parent, child:
        sent, kept = {}, {}
        for _ in range(3):
            before = kept.get("p")
            sent = send_question(parent, b"0" * 16, asked(4, p), sent)
            _, found, kept = receive_question(child, kept)
            assert np.array_equal(found.arrays["p"], p)
            assert before is None or found.arrays["p"] is before
        other = p + 1.0  # of another array nothing is known
        send_question(parent, b"0" * 16, asked(4, other), sent)
        assert np.array_equal(receive_question(child, kept)[1].arrays["p"], other)


def test_rows_that_are_altered_in_the_second_call_are_noticed():
    """Rows are compared all over a batch, not only at its start."""
    calls = []

    def verify(draft_tokens, p, q, rng):
        found = verifiers.right(draft_tokens, p, q, rng)
        calls.append(len(p))
        if len(calls) == 2:
            ctypes.memset(p.ctypes.data, 1, p.nbytes)
        return found

    case = CASES["asymmetric"]
    with pytest.raises(BrokenVerifier, match="altered its input"):
        list(VerifierSource(Local(verify), case).batches(KEY, 0, 8 * COMPARED_ROWS))
    assert len(calls) == 2
