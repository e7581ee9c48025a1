"""Traces: what goes in comes out, and what was damaged is named."""

from __future__ import annotations

import hashlib
import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from cases import cases
from hypothesis import given, settings
from hypothesis import strategies as st
from refused import refused, refuses

from specsim import open_trace
from specsim.core._kernels import interpreted
from specsim.traces import summarise, truncate, writer
from specsim.traces._summary import TraceSummary

VOCAB, GAMMA, STEPS = 11, 3, 20
DTYPES = ["float32", "float16", "bfloat16"]


def random_rows(rng: np.random.Generator, *shape: int) -> np.ndarray:
    weights = rng.gamma(0.5, size=shape) + 1e-3
    return weights / weights.sum(axis=-1, keepdims=True)


def make_steps(seed: int = 0, steps: int = STEPS, vocab_size: int = VOCAB, gamma: int = GAMMA) -> list[tuple]:
    rng = np.random.default_rng(seed)
    return [
        (
            step // 3, rng.integers(0, vocab_size, gamma), int(rng.integers(0, gamma + 1)),
            random_rows(rng, gamma + 1, vocab_size), random_rows(rng, gamma + 1, vocab_size),
        )
        for step in range(steps)
    ]  # fmt: skip


def write(path: Path, steps: list[tuple], *, dtype: str = "float32", steps_per_shard: int = 7) -> Path:
    gamma, vocab_size = len(steps[0][1]), steps[0][3].shape[-1]
    rows = steps_per_shard * (gamma + 1)
    with writer(path, vocab_size=vocab_size, gamma=gamma, dtype=dtype, rows_per_shard=rows) as trace:
        for step in steps:
            trace.append(*step)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A float32 trace of 20 steps in three shards of 7, 7 and 6."""
    return write(tmp_path / "trace", make_steps())


def flip(path: Path, offset: int, mask: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= mask
    path.write_bytes(data)


def column_offset(path: Path, name: str) -> int:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    return 8 + length + json.loads(data[8 : 8 + length])[name]["data_offsets"][0]


def signed(manifest: dict) -> dict:
    """With a SHA-256 to match, as a faulty program would have written it."""
    covered = {name: value for name, value in manifest.items() if name != "sha256"}
    plain = json.dumps(covered, sort_keys=True, separators=(",", ":"))
    return covered | {"sha256": hashlib.sha256(plain.encode("ascii")).hexdigest()}


def edit_manifest(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(signed(json.loads(path.read_text()) | changes)))


# --- round trip ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_goes_in_comes_out(tmp_path: Path, dtype: str) -> None:
    steps = make_steps()
    trace = open_trace(write(tmp_path / "t", steps, dtype=dtype))
    assert (trace.vocab_size, trace.gamma, trace.dtype) == (VOCAB, GAMMA, dtype)
    assert (trace.num_steps, trace.num_rows, trace.complete) == (STEPS, STEPS * (GAMMA + 1), True)
    assert [shard.num_steps for shard in trace.shards] == [7, 7, 6]
    assert all(shard.ok for shard in trace.verify())

    stored = np.float32 if dtype == "float32" else np.float16 if dtype == "float16" else ml_dtypes.bfloat16
    read = [column for shard in trace.shards for column in np.split(shard.columns.p, shard.num_steps)]
    for (_, _, _, p, _), row in zip(steps, read, strict=True):
        assert row.dtype == stored
        np.testing.assert_array_equal(row, p.astype(stored))

    first = trace.shards[0].columns
    assert first.step.tolist() == [s for s in range(7) for _ in range(4)]
    assert first.context.tolist() == [s // 3 for s in range(7) for _ in range(4)]
    assert first.position.tolist() == [0, 1, 2, 3] * 7
    for step, (_, tokens, accepted, _, _) in enumerate(steps[:7]):
        rows = slice(4 * step, 4 * step + 4)
        assert first.token[rows].tolist() == [*tokens, -1]
        assert first.accepted[rows].tolist() == [*([1] * accepted + [0, -1, -1])[:3], -1]


def test_rows_in_the_traces_own_dtype_are_stored_bit_for_bit(tmp_path: Path) -> None:
    context, tokens, accepted, p, q = make_steps(steps=1)[0]
    p, q = p.astype(np.float32) * np.float32(1 + 4e-6), q.astype(np.float32)
    columns = open_trace(write(tmp_path / "t", [(context, tokens, accepted, p, q)])).shards[0].columns
    np.testing.assert_array_equal(columns.p, p)
    np.testing.assert_array_equal(columns.q, q)


def test_the_files_are_safetensors(folder: Path) -> None:
    from safetensors.numpy import load_file

    columns = open_trace(folder).shards[1].columns
    loaded = load_file(folder / "shard-00001.safetensors")
    assert sorted(loaded) == sorted(columns._fields)
    for name, column in columns._asdict().items():
        np.testing.assert_array_equal(loaded[name], column)


def test_columns_are_views_of_the_file(folder: Path) -> None:
    columns = open_trace(folder).shards[0].columns
    assert not columns.p.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        columns.p[0, 0] = 1.0


def test_rounding_does_not_make_a_drafted_token_impossible(tmp_path: Path) -> None:
    q = np.array([[1 - 1e-9, 1e-9]] * 2)
    columns = open_trace(write(tmp_path / "t", [(0, [1], 1, q, q)], dtype="float16")).shards[0].columns
    assert columns.q[0, 1] == 2.0**-24
    assert columns.q[1, 1] == 0


def test_negative_zeros_are_stored_as_zeros(tmp_path: Path) -> None:
    p = np.array([[1.0, -0.0]] * 2, np.float32)
    trace = open_trace(write(tmp_path / "t", [(0, [0], 1, p, p)]))
    assert not np.signbit(trace.shards[0].columns.p).any()
    assert trace.verify()[0].ok


# --- random access ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_steps_in_any_order(tmp_path: Path, dtype: str) -> None:
    steps = make_steps()
    trace = open_trace(write(tmp_path / "t", steps, dtype=dtype))
    wanted = [19, 0, 7, 6, 6, 13]
    tokens, p, q = trace.steps(wanted)
    assert (tokens.dtype, p.dtype, q.shape) == (np.int32, np.float64, (6, GAMMA + 1, VOCAB))
    np.testing.assert_array_equal(tokens, [steps[i][1] for i in wanted])
    unit = float(ml_dtypes.finfo(trace.shards[0].columns.p.dtype).eps)
    np.testing.assert_allclose(p, [steps[i][3] for i in wanted], rtol=2 * unit)
    np.testing.assert_allclose(q, [steps[i][4] for i in wanted], rtol=2 * unit)
    np.testing.assert_allclose(p.sum(axis=-1), 1.0, rtol=1e-14)


def test_steps_are_the_same_from_many_threads(folder: Path) -> None:
    trace = open_trace(folder)
    expected = trace.steps(np.arange(STEPS))
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: trace.steps(np.arange(STEPS)), range(16)):
            for mine, theirs in zip(expected, found, strict=True):
                np.testing.assert_array_equal(mine, theirs)


def test_a_trace_travels_to_another_process_without_its_data(folder: Path) -> None:
    trace = open_trace(folder)
    small = len(pickle.dumps(trace))
    expected = trace.steps([3, 12])
    assert len(pickle.dumps(trace)) == small
    for mine, theirs in zip(expected, pickle.loads(pickle.dumps(trace)).steps([3, 12]), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_no_steps_and_steps_that_are_not_there(folder: Path) -> None:
    trace = open_trace(folder)
    assert trace.steps([])[1].shape == (0, GAMMA + 1, VOCAB)
    for index in (-1, STEPS):
        refuses(rf"step {index} is outside \[0, 20\)", trace.steps, [0, index], error=IndexError)
    refuses("int", trace.steps, [0.5])
    refuses("indices: 1 of 2 entries are masked", trace.steps, np.ma.masked_array([0, 1], [0, 1]))


# --- α ---------------------------------------------------------------------------------------------------


def naive_alphas(steps: list[tuple]) -> dict[str, float]:
    """The three α and their errors, step by step, in plain numpy."""
    reached, tested, lengths = [], [], np.array([step[2] for step in steps])
    for _, tokens, accepted, p, q in steps:
        beta = np.minimum(p, q).sum(axis=-1)
        reached.append(beta[: accepted + 1])
        tested.append(beta[: min(accepted + 1, len(tokens))])
    gamma, n = len(steps[0][1]), len(steps)
    number_tested = np.minimum(lengths + 1, gamma)

    def error(x: np.ndarray, counts: np.ndarray) -> float:
        return float(np.std(x - x.sum() / counts.sum() * counts, ddof=1) * np.sqrt(n) / counts.sum())

    return {
        "alpha_context": np.concatenate(reached).mean(),
        "alpha_verified": lengths.sum() / number_tested.sum(),
        "alpha_drafted": lengths.sum() / (n * gamma),
        "expected_verified": np.concatenate(tested).mean(),
        "tokens_per_step": lengths.mean() + 1,
        "error of alpha_context": error(np.array([b.sum() for b in reached]), lengths + 1),
        "error of alpha_verified": error(lengths, number_tested),
        "error of alpha_drafted": error(lengths, np.full(n, gamma)),
        "error of expected_verified": error(np.array([b.sum() for b in tested]), number_tested),
        "error of tokens_per_step": float(np.std(lengths, ddof=1) / np.sqrt(n)),
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab_size", [64, 3001])
def test_alpha_is_that_of_plain_numpy(tmp_path: Path, dtype: str, vocab_size: int) -> None:
    steps = make_steps(seed=vocab_size, vocab_size=vocab_size)
    summary = summarise(open_trace(write(tmp_path / "t", steps, dtype=dtype)))
    for name, value in naive_alphas(steps).items():
        if name.startswith("error of "):
            assert summary.standard_errors[name.removeprefix("error of ")] == pytest.approx(value, rel=0.05)
        else:
            assert abs(getattr(summary, name) - value) <= summary.rounding + 1e-12


def test_alpha_by_position(folder: Path) -> None:
    steps = make_steps()
    summary = summarise(open_trace(folder))
    lengths = np.array([step[2] for step in steps])
    assert summary.accepted_lengths.tolist() == np.bincount(lengths, minlength=GAMMA + 1).tolist()
    assert summary.tested_by_position.tolist() == [(lengths >= j).sum() for j in range(GAMMA)]
    assert summary.accepted_by_position.tolist() == [(lengths > j).sum() for j in range(GAMMA)]
    for j in range(GAMMA + 1):
        betas = [np.minimum(step[3][j], step[4][j]).sum() for step in steps if step[2] >= j]
        assert summary.beta_by_position[j] == pytest.approx(np.mean(betas), abs=1e-6)
    assert summary.drafted == STEPS * GAMMA
    assert summary.accepted == lengths.sum()
    assert summary.tested == np.minimum(lengths + 1, GAMMA).sum()


def test_a_position_never_reached_has_no_alpha(tmp_path: Path) -> None:
    p = np.full((3, 2), 0.5)
    summary = summarise(open_trace(write(tmp_path / "t", [(0, [0, 0], 0, p, p)])))
    assert summary.alpha_by_position[0] == 0
    assert np.isnan(summary.alpha_by_position[1])
    np.testing.assert_array_equal(summary.beta_by_position, [1.0, np.nan, np.nan])
    as_dict = json.loads(json.dumps(summary.to_dict(), allow_nan=False))
    assert as_dict["alpha_by_position"] == [0, None]
    assert as_dict["standard_errors"]["alpha_context"] is None


def test_a_mean_of_beta_is_at_most_one(tmp_path: Path) -> None:
    """Three times the float32 next to 1/3 is above 1."""
    thirds = np.full((2, 3), 1 / 3, np.float32)
    summary = summarise(open_trace(write(tmp_path / "t", [(0, [0], 1, thirds, thirds)])))
    assert isinstance(summary, TraceSummary)
    assert (summary.beta_sums > 1.0).all()  # as stored
    assert (summary.alpha_context, summary.expected_verified) == (1.0, 1.0)
    assert summary.beta_by_position.tolist() == [1.0, 1.0]


def test_progress_rises_to_the_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    summarise(open_trace(folder), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(28, 80), (56, 80), (80, 80)]
    monkeypatch.setattr("specsim.traces._reader.CHUNK_ROWS", 12)
    open_trace(folder).verify(progress=lambda done, total: seen.append((done, total)))
    assert seen[3:] == sorted({*seen[3:], (80, 80)})


def test_an_empty_trace_has_no_alpha(tmp_path: Path) -> None:
    with writer(tmp_path / "t", vocab_size=2, gamma=1):
        pass
    trace = open_trace(tmp_path / "t")
    assert (trace.num_steps, trace.num_rows, trace.verify()) == (0, 0, ())
    refuses("no step to summarise", summarise, trace)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    vocab_size=st.integers(1, 70),
    gamma=st.integers(1, 5),
    steps=st.integers(2, 6),
    per_shard=st.integers(1, 4),
    dtype=st.sampled_from(DTYPES),
)
def test_any_shape_survives(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int, vocab_size: int, gamma: int, steps: int, per_shard: int, dtype: str,
) -> None:  # fmt: skip
    given_steps = make_steps(seed, steps, vocab_size, gamma)
    folder = write(tmp_path_factory.mktemp("any") / "t", given_steps, dtype=dtype, steps_per_shard=per_shard)
    trace = open_trace(folder)
    summary = summarise(trace)
    assert len(trace.shards) == -(-steps // per_shard)
    assert abs(summary.alpha_context - naive_alphas(given_steps)["alpha_context"]) <= summary.rounding + 1e-12
    np.testing.assert_array_equal(trace.steps(range(steps))[0], [step[1] for step in given_steps])


# --- damage ----------------------------------------------------------------------------------------------


def assert_only_shard_1_is_damaged(folder: Path, row: int) -> None:
    """It is named, with its row; the other two can be read."""
    trace = open_trace(folder)
    where = rf"shard-00001.safetensors, row {row}: "
    refuses(where, summarise, trace)
    found = trace.verify()
    assert [status.ok for status in found] == [True, False, True]
    assert found[1].damage is not None
    assert f"shard-00001.safetensors, row {row}: " in found[1].damage
    left = summarise(trace, skip_damaged=True)
    assert left.num_steps == 13
    assert left.skipped == (found[1].damage,)
    trace.steps([0, 6, 14, 19])
    steps = make_steps()
    expected = naive_alphas(steps[:7] + steps[14:])["alpha_context"]
    assert left.alpha_context == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("mask", [1, pytest.param(128, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["step", "context", "position", "token", "accepted", "p", "q", "checksum"])
def test_a_flipped_bit_is_found_in_every_column(folder: Path, name: str, mask: int) -> None:
    shard = folder / "shard-00001.safetensors"
    row_bytes = getattr(open_trace(folder).shards[1].columns, name)[0].nbytes
    for row in (0, 9, 27):
        offset = column_offset(shard, name) + row * row_bytes + row_bytes // 2
        flip(shard, offset, mask)
        assert_only_shard_1_is_damaged(folder, row)
        refuses(f"row {row}: altered", open_trace(folder).steps, [7 + row // 4])
        flip(shard, offset, mask)
    assert all(status.ok for status in open_trace(folder).verify())


def test_two_equal_flips_do_not_cancel(tmp_path: Path) -> None:
    p = np.full((2, 64), 1 / 64)
    folder = write(tmp_path / "t", [(0, [0], 1, p, p)])
    shard = folder / "shard-00000.safetensors"
    start, data = column_offset(shard, "p"), shard.read_bytes()
    for bit in range(32):
        for other in (1, 2, 8, 32):
            for place in (0, other):
                flip(shard, start + 4 * place + bit // 8, 1 << bit % 8)
            assert "altered" in str(open_trace(folder).verify()[0].damage)
            shard.write_bytes(data)


def test_a_cut_shard_names_the_first_row_lost(folder: Path) -> None:
    shard = folder / "shard-00001.safetensors"
    data = shard.read_bytes()
    last_column = column_offset(shard, "accepted")
    shard.write_bytes(data[: last_column + 17])
    assert_only_shard_1_is_damaged(folder, row=17)
    shard.write_bytes(data[:-1])
    assert_only_shard_1_is_damaged(folder, row=27)
    for length in (0, 5, 100, last_column - 1):
        shard.write_bytes(data[:length])
        assert_only_shard_1_is_damaged(folder, row=0)
    shard.write_bytes(data + b"x")
    assert_only_shard_1_is_damaged(folder, row=28)


def test_a_missing_shard_is_named(folder: Path) -> None:
    (folder / "shard-00001.safetensors").unlink()
    assert_only_shard_1_is_damaged(folder, row=0)
    refuses("the file is missing", open_trace(folder).steps, [7])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"dtype":"F32"', b'"dtype":"I32"'), (b'"shape":[28,11]', b'"shape":[11,28]'),
        (b'"shape":[28]', b'"shape":{28]'), (b'"p":{', b'"r":{'),
        (b'"data_offsets":[0,', b'"data_offsets":[8,'), (b'"data_offsets":[0,', b'"data_offsets":["'),
        (b"}}", b"]]"),
    ],
)  # fmt: skip
def test_an_altered_header_is_named(folder: Path, old: bytes, new: bytes) -> None:
    shard = folder / "shard-00001.safetensors"
    data = shard.read_bytes()
    assert old in data
    shard.write_bytes(data.replace(old, new, 1))
    assert_only_shard_1_is_damaged(folder, row=0)


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("p", np.nan, "not a probability"), ("q", -0.25, "not a probability"),
        ("p", np.inf, "not a probability"), ("q", 0.9, "does not sum to 1"),
        ("token", VOCAB, "do not describe a step"), ("accepted", 5, "do not describe a step"),
        ("step", 3, "do not describe a step"), ("context", 99, "do not describe a step"),
        ("position", 2, "do not describe a step"),
    ],
)  # fmt: skip
def test_rows_that_were_never_right_are_named(folder: Path, name: str, value: float, what: str) -> None:
    """With checksums to match, as a faulty program would have written them."""
    from safetensors.numpy import load_file, save_file

    from specsim.traces._checksums import measure
    from specsim.traces._format import Columns

    shard = folder / "shard-00001.safetensors"
    columns = load_file(shard)
    columns[name][(5, 2) if name in "pq" else 5] = value
    layout = open_trace(folder).layout
    columns["checksum"] = measure(Columns(**columns), np.arange(7, 14), layout).checksum
    save_file(columns, shard)
    data = shard.read_bytes()
    header = data[: 8 + int.from_bytes(data[:8], "little")]
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["shards"][1]["sha256"] = hashlib.sha256(header + columns["checksum"].tobytes()).hexdigest()
    edit_manifest(folder, shards=manifest["shards"])
    assert_only_shard_1_is_damaged(folder, row=5)
    assert what in str(open_trace(folder).verify()[1].damage)


# --- what is not a trace ---------------------------------------------------------------------------------


def test_a_folder_that_is_no_trace(tmp_path: Path) -> None:
    refuses(r"not a trace, it has no manifest\.json", open_trace, tmp_path)
    refuses("nowhere: there is no such file or folder", open_trace, tmp_path / "nowhere")


@pytest.mark.parametrize(*cases(__file__, "manifests"))
def test_a_manifest_that_is_wrong(folder: Path, changes: dict, what: str) -> None:
    edit_manifest(folder, **changes)
    with pytest.raises(ValueError, match=what) as raised:
        open_trace(folder)
    assert "manifest.json" in str(raised.value)


def test_a_shard_has_the_bytes_that_its_manifest_states(folder: Path) -> None:
    shard = json.loads((folder / "manifest.json").read_text())["shards"][0]
    edit_manifest(folder, shards=[shard | {"bytes": 10**18}])
    refuses(f"has {shard['bytes']} bytes; the manifest states 10000000", summarise, open_trace(folder))


@pytest.mark.parametrize("text", ["{", "[]", "\x00\xff", ""])
def test_a_manifest_that_is_no_json_object(folder: Path, text: str) -> None:
    (folder / "manifest.json").write_bytes(text.encode("latin-1"))
    refuses(r"manifest\.json", open_trace, folder)


# --- the manifest's own SHA-256 --------------------------------------------------------------------------


def dense_trace(path: Path) -> Path:
    return write(path, make_steps(steps=4, vocab_size=4, gamma=2), steps_per_shard=2)


def truncated_trace(path: Path) -> Path:
    """With top, an absent q at the bonus, and provenance that is escaped and in powers of ten."""
    facts = {"model": "é", "temperature": 1e-7, "top_p": None}
    with writer(path, vocab_size=9, gamma=1, top=3, bonus=False, rows_per_shard=4, provenance=facts) as trace:
        for context, tokens, accepted, p, q in make_steps(steps=4, vocab_size=9, gamma=1):
            listed = [truncate(p[0], 3), truncate(p[1], 3)]
            trace.append(context, tokens, accepted, listed, [truncate(q[0], 3, tokens[0])])
    return path


def trace_without_bonus(path: Path) -> Path:
    """Dense; that q at the bonus is no more than a copy of p only the manifest says."""
    with writer(path, vocab_size=4, gamma=2, bonus=False, rows_per_shard=6) as trace:
        for context, tokens, accepted, p, q in make_steps(steps=4, vocab_size=4, gamma=2):
            trace.append(context, tokens, accepted, p, q[:2])
    return path


def flips(data: bytes) -> Iterator[bytes]:
    """The data with each of its bits flipped, one at a time."""
    for place in range(len(data)):
        for bit in range(8):
            yield data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def assert_refused(path: Path) -> None:
    refuses(r"manifest\.json: ", open_trace, path)


@pytest.mark.parametrize(
    "make",
    [pytest.param(make, marks=pytest.mark.slow) for make in (dense_trace, truncated_trace)]
    + [trace_without_bonus],
)
def test_every_single_bit_of_a_manifest_counts(tmp_path: Path, make: Callable, full: bool) -> None:
    """The fast tier flips every seventh bit."""
    folder = make(tmp_path / "t")
    file, written = folder / "manifest.json", open_trace(folder)
    content, passed = json.loads(file.read_bytes()), 0
    for data in islice(flips(file.read_bytes()), None, None, 1 if full else 7):
        file.write_bytes(data)
        try:
            same = json.loads(data) == content
        except ValueError:
            same = False
        if same:
            assert open_trace(folder) == written
            passed += 1
        else:
            assert_refused(folder)
    # JSON writes some values in two ways: é as 00e9 and 00E9, 1e-07 and 1E-07
    assert passed == (2 if make is truncated_trace else 0)


def test_without_it_a_flipped_bit_changes_alpha(tmp_path: Path, full: bool) -> None:
    """The negative control: the same flips under a SHA-256 to match, as if there were none."""
    folder = trace_without_bonus(tmp_path / "t")
    file, written = folder / "manifest.json", open_trace(folder)
    alpha, changed = summarise(written).alpha_context, set()
    for data in islice(flips(file.read_bytes()), None, None, 1 if full else 21):
        try:
            file.write_text(json.dumps(signed(json.loads(data))))
            found = open_trace(folder)
        except ValueError:
            continue
        if found != written and all(status.ok for status in found.verify()):
            changed.add(summarise(found).alpha_context)
    assert changed - {alpha}


def test_a_manifest_may_be_laid_out_otherwise(folder: Path) -> None:
    """What it says is protected, not the blanks, line ends and order of it."""
    file, written = folder / "manifest.json", open_trace(folder)
    text = file.read_text()
    content = json.loads(text)
    turned = dict(reversed(content.items()))
    for other in (text.replace("\n", "\r\n"), json.dumps(content), json.dumps(turned, indent=4)):
        assert other != text
        file.write_bytes(other.encode())
        assert open_trace(folder) == written
    file.write_text(json.dumps(content | {"note": "x"}))
    assert_refused(folder)
    file.write_text(json.dumps({name: value for name, value in content.items() if name != "sha256"}))
    assert_refused(folder)


def test_provenance_that_json_changes_is_protected_as_it_is_read(tmp_path: Path) -> None:
    facts = {10: "ten", 9: (1, 2), "é\udc80": 1e-7, None: np.float64(0.1), "9": 2**70}
    with writer(tmp_path / "t", vocab_size=2, gamma=1, provenance=facts):
        pass
    assert open_trace(tmp_path / "t").provenance == {"10": "ten", "9": 2**70, "é\udc80": 1e-7, "null": 0.1}


def test_a_trace_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    """As it is left where the writer is killed: its whole shards, and not called complete."""

    def look(number: int) -> None:
        trace = open_trace(tmp_path / "t")
        assert (trace.num_steps, trace.complete) == (number // 2 * 2, False)
        assert number < 2 or summarise(trace).num_steps == trace.num_steps

    record(tmp_path / "t", look)
    assert (open_trace(tmp_path / "t").num_steps, open_trace(tmp_path / "t").complete) == (STEPS, True)


def test_smaller_chunks_are_of_the_same_rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = open_trace(folder)
    whole = summarise(trace)
    ((columns, beta),) = trace.shards[0].scan()
    monkeypatch.setattr("specsim.traces._reader.CHUNK_ROWS", 2 * (GAMMA + 1))
    parts = list(trace.shards[0].scan())
    assert [beta.shape[1] for _, beta in parts] == [2 * (GAMMA + 1)] * 3 + [GAMMA + 1]
    np.testing.assert_array_equal(np.concatenate([part.p for part, _ in parts]), columns.p)
    np.testing.assert_array_equal(np.concatenate([part for _, part in parts], axis=1), beta)
    assert summarise(trace).to_dict() == whole.to_dict()


def two_steps(dtype: str) -> Callable[[Path], Path]:
    return partial(write, steps=make_steps(steps=2, vocab_size=3, gamma=1), dtype=dtype)


@pytest.mark.parametrize(
    "make",
    [two_steps("float32"), truncated_trace]
    + [pytest.param(two_steps(name), marks=pytest.mark.slow) for name in DTYPES[1:]],
)
def test_every_single_bit_of_a_row_counts(tmp_path: Path, make: Callable, full: bool) -> None:
    """The fast tier flips a bit of every third byte."""
    folder = make(tmp_path / "t")
    shard = folder / "shard-00000.safetensors"
    data = shard.read_bytes()
    with interpreted():  # so that no kernel is compiled for what is two steps long
        for offset in range(0, len(data), 1 if full else 3):
            flip(shard, offset, 1 << offset % 8)
            assert not open_trace(folder).verify()[0].ok, offset
            shard.write_bytes(data)


@pytest.mark.parametrize("make", [pytest.param(dense_trace, marks=pytest.mark.slow), truncated_trace])
def test_every_single_bit_of_a_shards_header_counts(tmp_path: Path, make: Callable, full: bool) -> None:
    """For each way of reading: all rows, and chosen steps. The fast tier flips every 23rd bit."""
    shard = open_trace(make(tmp_path / "t")).shards[0]
    data = shard.path.read_bytes()
    length = 8 + int.from_bytes(data[:8], "little")
    for read in (lambda: list(replace(shard).scan()), lambda: replace(shard).take(np.arange(2))):
        shard.path.write_bytes(data)
        read()
        for header in islice(flips(data[:length]), None, None, 1 if full else 23):
            shard.path.write_bytes(header + data[length:])
            refuses(r"shard-00000\.safetensors, row \d+: ", read)


# --- the writer's own ------------------------------------------------------------------------------------


def bad_row(row: int, token: int, value: float) -> np.ndarray:
    rows = np.full((3, 4), 0.25)
    rows[row, token] = value
    return rows


GOOD = {"context": 0, "tokens": [1, 2], "accepted": 1, "p": np.full((3, 4), 0.25), "q": np.full((3, 4), 0.25)}


HALF = ([0, 1], [0.5, 0.3])
OF_LISTS = {"context": 0, "tokens": [0], "accepted": 1, "p": [HALF, HALF], "q": [HALF, HALF]}


@pytest.mark.parametrize(
    ("change", "error", "what"),
    [
        ({"p": bad_row(1, 2, np.nan)}, ValueError, "p, row 1, token 2: nan is not a probability"),
        ({"q": bad_row(2, 0, -0.25)}, ValueError, r"q, row 2, token 0: -0\.25 is not a probability"),
        ({"q": bad_row(0, 3, 0.5)}, ValueError, r"q, row 0: sums to 1\.25"),
        ({"p": np.full((2, 4), 0.25)}, ValueError, r"p: shape \(2, 4\); give \(3, 4\)"),
        ({"p": np.full((3, 5), 0.2)}, ValueError, r"p: shape \(3, 5\); give \(3, 4\)"),
        ({"p": np.full((3, 4), "x")}, TypeError, "p: expected real probabilities"),
        ({"tokens": [1, 4]}, ValueError, r"position 1: token 4 is outside the vocabulary \[0, 4\)"),
        ({"tokens": [1, -1]}, ValueError, "position 1: token -1 is outside"),
        ({"tokens": [1]}, ValueError, r"tokens: shape \(1,\); give \(2,\)"),
        ({"tokens": [1.0, 2.0]}, TypeError, "integer token ids"),
        ({"accepted": 3}, ValueError, r"accepted: 3 is not at most 2"),
        ({"accepted": -1}, ValueError, r"accepted: -1 is not at least 0"),
        ({"accepted": 0.5}, TypeError, "accepted: expected an int, got float"),
        ({"accepted": np.float64(1)}, TypeError, "accepted: expected an int, got .*float64"),
        ({"accepted": True}, TypeError, "accepted: expected an int, got bool"),
        ({"accepted": np.True_}, TypeError, "accepted: expected an int, got bool"),
        ({"context": 0.5}, TypeError, "context: expected an int, got float"),
        ({"context": True}, TypeError, "context: expected an int, got bool"),
        ({"context": None}, TypeError, "context: expected an int, got NoneType"),
        ({"context": 2**63}, ValueError, "context: 9223372036854775808 is not at most"),
        ({"context": -(2**63) - 1}, ValueError, "context: -9223372036854775809 is not at least"),
        ({"p": np.ma.masked_less(np.eye(3, 4), 1)}, ValueError, "p: 9 of 12 entries are masked"),
        ({"p": [[0.5, 0.5, 0, 0], [1.0]]}, ValueError, r"p: rows differ in length; give shape \(3, 4\)"),
        ({"tokens": [[1], [1, 2]]}, ValueError, "tokens: lists differ in length"),
        ({"q": np.eye(3, 4)[[0] * 3]}, ValueError, "q, row 0, token 1: has probability 0, but was drafted"),
        (OF_LISTS | {"p": [HALF]}, ValueError, "p: 1 rows; give 2"),
        (OF_LISTS | {"p": [HALF, ([0, 0], [0.5, 0.3])]}, ValueError, "p, row 1: token 0 is listed twice"),
        (OF_LISTS | {"p": [HALF, ([0, 1], [0.5, 0.6])]}, ValueError, r"p, row 1: the listed tokens sum to 1\.1"),
        (OF_LISTS | {"q": [([0, 4], [0.5, 0.3]), HALF]}, ValueError, "q, row 0, position 1: token 4 is outside"),
        (OF_LISTS | {"q": [([0, 1], [0.5, np.nan]), HALF]}, ValueError, "q, row 0, token 1: nan is not"),
        (OF_LISTS | {"q": [([0, 1], [0.0, 0.5]), HALF]}, ValueError, "q, row 0, token 0: has probability 0, but"),
        (OF_LISTS | {"q": [([1, 2], [0.5, 0.5]), HALF]}, ValueError, "q, row 0, token 0: has probability 0, but"),
        (OF_LISTS | {"q": [([0, 1], [0.5]), HALF]}, ValueError, r"q, row 0: tokens \(2,\) and probabilities \(1,\)"),
        (OF_LISTS | {"q": [([0, 1, 2], [0.5, 0.1, 0.1]), HALF]}, ValueError, "at most 2"),
        (OF_LISTS | {"q": [([0.5, 1], [0.5, 0.1]), HALF]}, TypeError, "integer token ids"),
        (OF_LISTS | {"accepted": None}, ValueError, "accepted: None in a trace with flags"),
    ],
)  # fmt: skip
def test_a_bad_step_is_refused_and_not_written(tmp_path: Path, change: dict, error: type, what: str) -> None:
    """Of whole rows, and of lists of two tokens."""
    good, top = (OF_LISTS, 2) if len(change) == len(OF_LISTS) else (GOOD, None)
    with writer(tmp_path / "t", vocab_size=4, gamma=len(good["tokens"]), top=top) as trace:
        trace.append(**good)
        refuses(what, trace.append, **good | change, error=error)
        trace.append(**good)
    read = open_trace(tmp_path / "t")
    assert read.num_steps == 2
    assert read.verify()[0].ok


@refused(
    ({"vocab_size": 0}, "vocab_size: 0 is not at least 1"),
    ({"vocab_size": 2**31, "top": 2}, "vocab_size: 2147483648 exceeds 2147483647"),
    ({"gamma": 0}, "gamma: 0 is not at least 1"),
    ({"gamma": 0, "flags": False, "bonus": False}, "leaves no row of q"),
    ({"top": 0}, "top: 0 is not at least 1"),
    ({"top": True}, TypeError, "top: expected an int, got the bool True"),
    ({"gamma": 1.5}, TypeError, "gamma: expected an int, got float"),
    ({"dtype": "float64"}, "'float64' is unknown; give one of float32, float16, bfloat16"),
    ({"rows_per_shard": 2}, "rows_per_shard: 2 is not at least 3"),
    ({"provenance": {"model": object()}}, TypeError, "JSON"),
)
def test_bad_arguments_leave_no_folder(change: dict, nowhere: Path) -> None:
    with writer(nowhere, **{"vocab_size": 4, "gamma": 2} | change):
        pass


PAIRS = [([0, 1], [0.5, 0.25])] * 3


@pytest.mark.parametrize("bonus", [True, False])
@pytest.mark.parametrize(
    ("rows", "what"),
    [
        (np.full((3, 4), 0.25), r"is not a pair \(token ids, probabilities\) for each row"),
        ([[0.5, 0.25, 0.25], [1.0]], r"is not a pair \(token ids, probabilities\) for each row"),
        (None, r"is not a pair \(token ids, probabilities\) for each row"),
        ([([0, 1], [[0.5], [0.25, 0.25]])] * 3, "row 0: rows differ in length; give a probability for each token"),
        ([([[0], [1, 2]], [0.5, 0.25])] * 3, "row 0: lists differ in length"),
        (PAIRS[:1], "1 rows; give 3"),
    ],
)  # fmt: skip
def test_rows_of_another_kind_in_a_truncated_trace(tmp_path: Path, rows: object, what: str, bonus: bool) -> None:  # fmt: skip
    with writer(tmp_path / "t", vocab_size=4, gamma=2, top=2, bonus=bonus) as trace:
        good = {"context": 0, "tokens": [1, 1], "accepted": 1, "p": PAIRS, "q": PAIRS if bonus else PAIRS[:2]}
        trace.append(**good)
        for name in "pq" if bonus else "p":
            refuses(f"^{name}[,:] {what}", trace.append, **good | {name: rows})
        trace.append(**good)
    assert open_trace(tmp_path / "t").num_steps == 2


def test_the_largest_vocabulary_and_numbers_of_documents(tmp_path: Path) -> None:
    """What just fits comes out as it went in."""
    most = 2**31 - 2
    with writer(tmp_path / "t", vocab_size=most + 1, gamma=1, top=2) as trace:
        for context in (2**63 - 1, -(2**63), np.int64(7)):
            pair = ([3, most], [0.5, 0.25])
            trace.append(context=context, tokens=[most], accepted=np.int8(1), p=[pair] * 2, q=[pair] * 2)
    read = open_trace(tmp_path / "t").shards[0].columns
    assert read.context[::2].tolist() == [2**63 - 1, -(2**63), 7]
    assert read.token[::2].tolist() == [most] * 3
    assert read.p_tokens.tolist() == [[3, most]] * 6


def test_what_is_there_is_not_overwritten(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FileExistsError, match="already holds a trace"), writer(folder, vocab_size=4, gamma=2):
        pass
    assert open_trace(folder).num_steps == STEPS
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    for path, what in ((tmp_path / "other", "is not empty"), (tmp_path / "other" / "notes.txt", "a file")):
        with pytest.raises(FileExistsError, match=what), writer(path, vocab_size=4, gamma=2):
            pass


def record(path: Path, before_step: Callable[[int], None]) -> None:
    """Write the 20 steps, two to a shard, calling `before_step` with the number of each."""
    with writer(path, vocab_size=VOCAB, gamma=GAMMA, rows_per_shard=8) as trace:
        for number, step in enumerate(make_steps()):
            before_step(number)
            trace.append(*step)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_exception_leaves_a_readable_trace(tmp_path: Path, error: type[BaseException]) -> None:
    def stop(number: int) -> None:
        if number == 5:
            raise error("stop")

    refuses("stop", record, tmp_path / "t", stop, error=error)
    read = open_trace(tmp_path / "t")
    assert (read.num_steps, len(read.shards), read.complete) == (5, 3, False)
    assert all(status.ok for status in read.verify())
    assert not list((tmp_path / "t").glob("*.tmp"))


@pytest.mark.parametrize("interrupted", ["shard-00001.safetensors", "manifest.json"])
def test_an_interrupt_while_a_shard_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: str
) -> None:
    """Nothing half written, nothing lost, nothing twice."""
    from specsim.core import _files as files

    replace, armed = files.os.replace, [False]

    def interrupt(source: Path, target: Path) -> None:
        if armed[0] and Path(target).name == interrupted:
            armed[0] = False
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        record(tmp_path / "t", lambda number: armed.__setitem__(0, number == 3))
    read = open_trace(tmp_path / "t")
    assert read.num_steps == 4
    assert all(status.ok for status in read.verify())
    assert not list((tmp_path / "t").glob("*.tmp"))


def test_listing_a_trace_does_not_import_numba(folder: Path) -> None:
    program = (
        f"import sys; from specsim import open_trace; t = open_trace({str(folder)!r});"
        "assert t.shards[0].columns.p.shape == (28, 11); sys.exit('numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
