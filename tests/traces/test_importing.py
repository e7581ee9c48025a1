"""Importers: what was logged elsewhere comes out as it went in; what is wrong is named, with its place."""

import gzip
import hashlib
import itertools
import json
import math
import re
import tracemalloc
import zipfile
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from bounds import beta_bounds
from listening import answering
from refused import refused, refuses
from safetensors.numpy import save_file
from served import FORMATS, Served, write_log

from specsim import open_trace
from specsim.core._files import open_file
from specsim.traces import summarise, truncate
from specsim.traces._importing import import_trace, jsonl
from specsim.traces._jsonl.rows import Tokens, WithoutIdError, parse_line, typed

N, GAMMA, V, K = 40, 2, 12, 5


def arrays(seed=1, dtype=np.float32, truncated=False):
    """Steps of the standard rule as arrays: tokens drawn from q, and what was accepted."""
    rng = np.random.default_rng(seed)
    p, q = (rng.gamma(0.5, size=(N, GAMMA + 1, V)) + 1e-3 for _ in range(2))
    p, q = ((rows / rows.sum(-1, keepdims=True)).astype(dtype) for rows in (p, q))
    exact = [rows.astype(float) / rows.astype(float).sum(-1, keepdims=True) for rows in (p, q)]
    tokens = np.array([[rng.choice(V, p=exact[1][n, i]) for i in range(GAMMA)] for n in range(N)])
    chances = np.take_along_axis(exact[0][:, :-1] / exact[1][:, :-1], tokens[..., None], 2)[..., 0]
    accepted = np.cumprod(rng.random((N, GAMMA)) < chances, axis=1).sum(1)
    found = {"draft_tokens": tokens, "accepted": accepted, "context": np.arange(N) // 8, "p": p, "q": q}
    if truncated:
        for name, rows in zip("pq", exact, strict=True):
            cut = [
                [truncate(rows[n, i], K, tokens[n, i] if i < GAMMA else None) for i in range(GAMMA + 1)]
                for n in range(N)
            ]
            found[name] = np.array([[row.probabilities for row in step] for step in cut])
            found[f"{name}_tokens"] = np.array([[row.tokens for row in step] for step in cut])
    return found


def save(tmp_path, kind, columns):
    """`columns` as a file of the `kind`."""
    path = tmp_path / {"compressed": "log.npz", "folder": "log"}.get(kind, f"log.{kind}")
    if kind == "folder":
        path.mkdir()
        for name, values in columns.items():
            np.save(path / f"{name}.npy", values)
    elif kind == "safetensors":
        save_file({name: np.ascontiguousarray(values) for name, values in columns.items()}, path)
    elif kind == "parquet":
        import pyarrow as pa
        from pyarrow import parquet

        lists = {name: x if x.ndim == 1 else x.tolist() for name, x in columns.items()}  # 1-d keeps its type
        parquet.write_table(pa.table(lists), path)
    else:
        (np.savez_compressed if kind == "compressed" else np.savez)(path, **columns)
    return path


KINDS = ("npz", "compressed", "folder", "safetensors", "parquet")


@pytest.mark.parametrize("truncated", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_logged_comes_out(tmp_path, kind, truncated, monkeypatch):
    monkeypatch.setattr("specsim.traces._steps.CHUNK_BYTES", 4000)  # several stretches
    columns = arrays(truncated=truncated)
    source, told = save(tmp_path, kind, columns), []
    trace = import_trace(source, tmp_path / "out", progress=lambda *done: told.append(done))
    assert (trace.num_steps, trace.gamma, trace.vocab_size) == (N, GAMMA, V)
    assert (trace.top, trace.complete, told[-1]) == (K if truncated else None, True, (N, N))
    assert all(shard.ok for shard in trace.verify())
    read = trace.shards[0].columns
    np.testing.assert_array_equal(read.token.reshape(N, -1)[:, :-1], columns["draft_tokens"])
    np.testing.assert_array_equal(read.context.reshape(N, -1)[:, 0], columns["context"])
    np.testing.assert_allclose(read.p.reshape(columns["p"].shape), columns["p"], rtol=1e-6)
    np.testing.assert_array_equal(
        summarise(trace).accepted_lengths, np.bincount(columns["accepted"], minlength=GAMMA + 1)
    )
    facts = trace.provenance
    assert facts["format"] == ("npz" if kind in ("compressed", "folder") else kind)
    if kind != "folder":
        data = source.read_bytes()
        assert facts["files"] == [
            {"file": source.name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        ]
    else:
        assert [entry["file"] for entry in facts["files"]] == sorted(f"{name}.npy" for name in columns)


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("safetensors", np.float16), ("safetensors", ml_dtypes.bfloat16), ("safetensors", np.float64), ("parquet", np.float64)],
)  # fmt: skip
def test_dtypes_without_flags_contexts_or_the_bonus(tmp_path, kind, dtype):
    columns = arrays(dtype=dtype)
    columns = {name: columns[name] for name in ("draft_tokens", "p", "q")} | {"q": columns["q"][:, :-1]}
    trace = import_trace(save(tmp_path, kind, columns), tmp_path / "out", dtype="float16")
    assert (trace.layout.flags, trace.layout.bonus) == (False, False)
    assert trace.shards[0].columns.context.tolist() == [n for n in range(N) for _ in range(GAMMA + 1)]
    betas = np.minimum(columns["p"][:, 0], columns["q"][:, 0]).astype(float).sum(1)
    low, high = summarise(trace).alpha_context
    assert low - 0.01 <= betas.mean() <= high + 0.01


def test_a_table_of_places_in_a_text(tmp_path):
    steps = arrays(truncated=True)
    columns = {name: steps[name][:, 0] for name in ("p", "q", "p_tokens", "q_tokens")}
    columns["token"] = steps["draft_tokens"][:, 0]
    trace = import_trace(save(tmp_path, "parquet", columns), tmp_path / "out")
    assert (trace.gamma, trace.num_steps, trace.vocab_size) == (0, N, V)
    assert trace.shards[0].columns.token.tolist() == columns["token"].tolist()
    assert set(trace.shards[0].columns.context) == {0}


@pytest.mark.parametrize(
    "kind",
    ["compressed", "safetensors", *(pytest.param(one, marks=pytest.mark.slow) for one in ("npz", "folder"))],
)
def test_a_log_is_read_in_pieces(tmp_path, kind, monkeypatch):
    """4 MB of rows, within a quarter of that."""

    def saved(p):
        return save(tmp_path, kind, {"draft_tokens": np.zeros((len(p), 1), int), "p": p, "q": p[:, :1]})

    p = np.full((100, 2, 2500), 1 / 2500)
    if kind != "folder":
        import_trace(saved(p[:1]), tmp_path / "before")  # so that modules and kernels are there
    source = saved(p)
    monkeypatch.setattr("specsim.traces._steps.CHUNK_BYTES", 200_000)
    monkeypatch.setattr("specsim.traces._writer.SHARD_BYTES", 200_000)
    tracemalloc.start()
    assert import_trace(source, tmp_path / "out").num_steps == len(p)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < p.nbytes / 4


# --- what is refused -------------------------------------------------------------------------------------


def altered(name, place, value):
    columns = arrays()
    columns[name] = columns[name].copy()
    columns[name][place] = value
    return columns


def without(*names):
    return {name: values for name, values in arrays().items() if name not in names}


@pytest.mark.parametrize("kind", ["npz", "safetensors", "parquet"])
@pytest.mark.parametrize(
    ("columns", "what"),
    [
        (altered("p", (7, 1, 3), np.nan), "p, row 1, token 3: nan is not a probability"),
        (altered("p", (7, 1, 3), -2.5), "token 3: -2.5 is not a probability.*; if these are logits, give their softmax"),
        (altered("p", (7, 1, 3), 2.5), r"row 1: sums to .*pass normalise\(p\); if these are logits, give their softmax"),
        (altered("q", (7, 2), 0.125), "q, row 2: sums to 1.5"),
        (altered("draft_tokens", (7, 1), V), "position 1: token 12 is outside the vocabulary"),
        (altered("accepted", 7, GAMMA + 1), r"accepted: 3 is not at most 2"),
        (altered("q", (7, 0), np.eye(V)[(arrays()["draft_tokens"][7, 0] + 1) % V]), "has probability 0, but was drafted"),
    ],
)  # fmt: skip
def test_bad_steps_are_named_and_those_before_are_kept(tmp_path, kind, columns, what):
    with pytest.raises(ValueError, match=rf"log\.{kind}, (step|row) 7: .*{what}"):
        import_trace(save(tmp_path, kind, columns), tmp_path / "out")
    trace = open_trace(tmp_path / "out")
    assert (trace.num_steps, trace.complete) == (7, False)
    assert trace.verify()[0].ok


def test_rows_of_a_wrong_sum_are_counted(tmp_path):
    columns = arrays()
    columns["p"][5, 1] *= 0.5
    columns["q"][[9, 11], 0] *= 1.75
    with pytest.raises(ValueError, match=r"step 5: p, row 1: sums to 0.5.*3 rows do not sum to 1, the worst is off by 0.75 \(q, step (9|11), row 0\)"):  # fmt: skip
        import_trace(save(tmp_path, "npz", columns), tmp_path / "out")


@refused(
    (without("q"), "has no array q, but .*give draft_tokens"),
    (without("draft_tokens"), "has no array draft_tokens"),
    (arrays() | {"q": arrays()["q"][..., :-1]}, r"q: shape \(40, 3, 11\) .*; give \(40, 3, 12\).*one vocabulary"),
    (arrays() | {"accepted": np.zeros(3, int)}, r"accepted: shape \(3,\)"),
    (arrays() | {"draft_tokens": np.zeros(N, int)}, r"draft_tokens: shape \(40,\); give \[N, γ\]"),
    (arrays() | {"p_tokens": np.zeros((N, 3, V), int)}, "one of p_tokens and q_tokens; give both"),
    pattern=r"log\.npz.*{}".format,
)  # fmt: skip
def test_arrays_that_do_not_fit(columns, nowhere, tmp_path):
    import_trace(save(tmp_path, "npz", columns), nowhere)


def test_files_that_are_not_what_they_should_be(tmp_path):
    for name in ("log.npz", "log.safetensors", "log.parquet"):
        (tmp_path / name).write_bytes(b"\x10" + b"\0" * 7 + b"not at all, whatever this is")
        refuses(rf"{name}: (cannot be read|is shorter)", import_trace, tmp_path / name, tmp_path / "out")
    (tmp_path / "log.txt").write_text("")
    with pytest.raises(ValueError, match=r"log\.txt: no format has the ending .\.txt.; give format, one of"):
        import_trace(tmp_path / "log.txt", tmp_path / "out")
    with pytest.raises(FileNotFoundError, match=r"nothing\.npz"):
        import_trace(tmp_path / "nothing.npz", tmp_path / "out")
    refuses("did you mean 'npz'", import_trace, tmp_path / "log.npz", tmp_path / "out", format="npy")
    path = save(tmp_path, "npz", arrays())
    fortran = {name: np.asfortranarray(values) for name, values in arrays().items()}
    assert import_trace(save(tmp_path, "npz", fortran), tmp_path / "fortran").num_steps == N
    with pytest.raises(ValueError, match="compressed, in Fortran order"):
        import_trace(save(tmp_path, "compressed", fortran), tmp_path / "out")
    data = save(tmp_path, "compressed", arrays()).read_bytes()
    path.write_bytes(data[: len(data) // 2] + bytes(64) + data[len(data) // 2 + 64 :])
    refuses(r"log\.npz, .\.npy: damaged", import_trace, path, tmp_path / "out2")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_column_that_is_there_twice_is_named(tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    path = save(tmp_path, "npz", arrays())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("q.npy", archive.read("q.npy"))
    refuses(r"log\.npz: .*array 'q' is in it 2 times; keep one", import_trace, path, tmp_path / "out")
    table = parquet.read_table(save(tmp_path, "parquet", arrays()))
    parquet.write_table(table.append_column("q", table["q"]), tmp_path / "log.parquet")
    with pytest.raises(ValueError, match=r"log\.parquet: column 'q' is in it 2 times; keep one"):
        import_trace(tmp_path / "log.parquet", tmp_path / "out")
    table = table.append_column("x", pa.nulls(N)).append_column("x", pa.nulls(N))
    parquet.write_table(table, tmp_path / "log.parquet")
    assert import_trace(tmp_path / "log.parquet", tmp_path / "read").num_steps == N
    path = save(tmp_path, "safetensors", {"p": np.ones(1), "r": np.ones(1)})
    path.write_bytes(path.read_bytes().replace(b'"r"', b'"p"'))
    refuses(r"log\.safetensors: .*the key 'p' is in an object twice", import_trace, path, tmp_path / "out")
    with path.open("r+b") as file:
        file.write((2**39).to_bytes(8, "little"))
        file.truncate(2**40)
    refuses("shorter than its header, or no safetensors", import_trace, path, tmp_path / "out")


@pytest.mark.parametrize("given", [V - 3, V + 87])
@pytest.mark.parametrize("kind", KINDS)
def test_another_vocabulary_than_that_of_whole_rows(tmp_path, kind, given):
    path = save(tmp_path, kind, arrays())
    with pytest.raises(ValueError, match=rf"{path.name}, p: V = 12; leave out vocab_size, which is {given}"):
        import_trace(path, tmp_path / "out", vocab_size=given)
    assert not (tmp_path / "out").exists()
    assert import_trace(path, tmp_path / "out", vocab_size=V).vocab_size == V


def cut(name, change):
    """Truncated rows, of which a column is another."""
    columns = arrays(truncated=True)
    return columns | {name: change(columns[name])}


def first_id(value):
    def changed(ids):
        ids = ids.astype(np.int64)
        ids[0, 0, 0] = value
        return ids

    return changed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("columns", "what"),
    [
        (cut("p_tokens", first_id(2**33)), "p_tokens: token id 8589934592 is too large; give ids below 2147483647"),
        (cut("q_tokens", first_id(2**31 - 1)), "q_tokens: token id 2147483647 is too large"),
        (cut("p_tokens", lambda ids: ids.astype(float)), "p_tokens: (float64|double)(, expected| values; give) integers, token ids"),
        (cut("draft_tokens", lambda ids: ids.astype(np.float32)), "draft_tokens: (float32|double)(, expected| values; give) integers"),
    ],
)  # fmt: skip
def test_token_ids_that_no_trace_can_hold(tmp_path, kind, columns, what):
    path = save(tmp_path, kind, columns)
    refuses(rf"{path.name}, {what}", import_trace, path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["npz", "parquet"])
@pytest.mark.parametrize(
    ("columns", "error", "what"),
    [
        (arrays() | {"context": np.full(N, 2**63, np.uint64)}, ValueError, "context: 9223372036854775808 is not at most"),
        (arrays() | {"accepted": arrays()["accepted"] > 0}, TypeError, "accepted: expected an int, got bool"),
        (arrays() | {"accepted": arrays()["accepted"] + 0.0}, TypeError, "accepted: expected an int, got .*float"),
        (arrays() | {"context": np.zeros(N)}, TypeError, "context: expected an int, got .*float"),
    ],
)  # fmt: skip
def test_columns_of_another_type(tmp_path, kind, columns, error, what):
    with pytest.raises(error, match=rf"log\.{kind}, (step|row) 0: {what}"):
        import_trace(save(tmp_path, kind, columns), tmp_path / "out")


def test_a_table_whose_ids_are_no_lists(tmp_path):
    columns = arrays(truncated=True)
    columns["p_tokens"] = columns["p_tokens"][:, 0, 0]
    with pytest.raises(ValueError, match=r"log\.parquet, row 0: p_tokens has another depth of lists"):
        import_trace(save(tmp_path, "parquet", columns), tmp_path / "out")


# --- log-probabilities -----------------------------------------------------------------------------------


@pytest.fixture(params=["msgspec", "json"])
def parser(request, monkeypatch):
    """With msgspec, and with the standard library alone."""
    if request.param == "json":
        monkeypatch.setattr("specsim.traces._jsonl.rows.typed", None)
    else:
        assert typed is not None


def log_rows(seed=2, positions=12):
    """(p, q, token) of each position of a text, with a token now and then that neither lists first."""
    rng = np.random.default_rng(seed)
    rows = rng.gamma(0.4, size=(positions, 2, V)) + 1e-3
    rows /= rows.sum(-1, keepdims=True)
    return [(p, q, int(rng.choice(V, p=q))) for p, q in rows]


def listed(row, token, k=4):
    """{token: logprob}, the token first, then the k most probable, as vLLM has it."""
    top = np.argsort(-row, kind="stable")[:k]
    return {int(x): math.log(row[x]) for x in [token, *top]}


def prompt_form(rows, side, name=str):
    entries = [
        {str(x): {"logprob": lp, "rank": None, "decoded_token": name(x)} for x, lp in listed(row[side], row[2]).items()}
        for row in rows
    ]  # fmt: skip
    return {"choices": [{"text": "", "prompt_logprobs": [None, *entries], "logprobs": None}]}


def completion_form(rows, side, name=lambda x: f"token_id:{x}"):
    own = [listed(row[side], row[2]) for row in rows]
    logprobs = {
        "tokens": [name(row[2]) for row in rows],
        "token_logprobs": [lps[row[2]] for lps, row in zip(own, rows, strict=True)],
        "top_logprobs": [{name(x): lp for x, lp in lps.items()} for lps in own],
        "text_offset": [0] * len(rows),
    }
    return {"choices": [{"logprobs": logprobs}]}


def element(row, side, name=lambda x: f"token_id:{x}"):
    lps = listed(row[side], row[2])
    top = [{"token": name(x), "logprob": lp, "bytes": None} for x, lp in lps.items()]
    return {"token": name(row[2]), "logprob": lps[row[2]], "bytes": None, "top_logprobs": top}


def with_ids(record):
    """As some servers have it: ids beside strings, which read alike here."""

    def renamed(entry):
        return entry | {"id": int(entry["token"].removeprefix("token_id:")), "token": "?"}

    for element in record["choices"][0]["logprobs"]["content"]:
        element |= renamed(element) | {"top_logprobs": [renamed(entry) for entry in element["top_logprobs"]]}
    return record


def chat_form(rows, side, **how):
    return {"choices": [{"logprobs": {"content": [element(row, side, **how) for row in rows]}}]}


def side_by_side(folder, target, draft, **how):
    """The trace of two files of lines, which `target` and `draft` list."""
    one, other = (write_log(folder / f"{name}.jsonl", lines) for name, lines in (("t", target), ("d", draft)))
    return import_trace(one, folder / "out", draft=other, **how)


def expected_bounds(rows):
    """The mean of the bounds on β of the rows, by hand."""
    bounds = []
    for p, q, token in rows:
        lists = [listed(row, token) for row in (p, q)]
        bounds.append(beta_bounds(*((list(x), [math.exp(lp) for lp in x.values()]) for x in lists), token))
    return np.mean(bounds, axis=0)


ROWS = log_rows()


@pytest.mark.parametrize(
    ("target", "draft", "text"),
    [
        (prompt_form(ROWS[:3] + ROWS, 0), completion_form(ROWS, 1), "the draft's own"),
        (prompt_form(ROWS, 0), chat_form(ROWS, 1), "the draft's own"),
        (completion_form(ROWS, 0), prompt_form(ROWS, 1), "the target's own"),
        (with_ids(chat_form(ROWS, 0)), prompt_form(ROWS, 1), "the target's own"),
        (prompt_form(ROWS, 0), prompt_form(ROWS, 1), "given"),
        (prompt_form(ROWS, 0, "word {}".format), completion_form(ROWS, 1, "word {}".format), "the draft's own"),
        (chat_form(ROWS, 0, name="word {}".format), chat_form(ROWS, 1, name="word {}".format), "given"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("parser")
def test_log_probabilities_of_two_models_side_by_side(tmp_path, target, draft, text):
    trace = side_by_side(tmp_path, [target] * 2, [draft] * 2, dtype="float32")
    assert (trace.gamma, trace.top, trace.num_steps) == (0, 5, 2 * len(ROWS))
    assert trace.provenance["text"].startswith(text)
    assert [entry["file"] for entry in trace.provenance["files"]] == ["t.jsonl", "d.jsonl"]
    read = trace.shards[0].columns
    assert read.context.tolist() == [0] * len(ROWS) + [1] * len(ROWS)
    by_string = "vocabulary" in trace.provenance
    assert by_string == ("word 1" in json.dumps(draft))
    if not by_string:
        assert read.token.tolist() == [row[2] for row in ROWS] * 2
    assert summarise(trace).alpha_context == pytest.approx(expected_bounds(ROWS), abs=1e-5)
    betas = [np.minimum(p, q).sum() for p, q, _ in ROWS]
    low, high = summarise(trace).alpha_context
    assert low < np.mean(betas) < high


@pytest.mark.usefixtures("parser")
def test_a_line_for_each_position(tmp_path):
    lines = ([{"document": i // 5, **element(row, side)} for i, row in enumerate(ROWS)] for side in (0, 1))
    trace = side_by_side(tmp_path, *lines, vocab_size=50)
    assert trace.shards[0].columns.context.tolist() == [i // 5 for i in range(len(ROWS))]
    assert trace.vocab_size == 50
    assert summarise(trace).alpha_context == pytest.approx(expected_bounds(ROWS), abs=1e-5)


@pytest.mark.parametrize("name", ["vllm ids", "sglang", "llama.cpp"])
@pytest.mark.usefixtures("parser")
def test_every_server_gives_the_same_rows(name):
    """Their own forms beside that of a completion; llama.cpp has strings too, which are left out."""

    def rows(form):
        tokens = Tokens(strings=False)
        line = json.dumps(FORMATS[form](*next(iter(Served(texts=1, length=6))), 40)).encode()
        ((*_, found, _),) = parse_line(line, "log, line 1", tokens)
        lists = [
            {tokens.token(n)[0]: lp for n, lp in zip(found.listed(i), found.logprobs[a:b], strict=True)}
            for i, (a, b) in enumerate(itertools.pairwise(found.ends))
        ]
        return [tokens.token(n)[0] for n in found.own], lists

    assert rows(name) == rows("vllm ids")
    assert rows(name)[1][0]


def edited(record, edit):
    record = json.loads(json.dumps(record))
    edit(record["choices"][0])
    return record


def sort_keys(choice):
    for i, entries in enumerate(choice["prompt_logprobs"]):
        if entries:
            choice["prompt_logprobs"][i] = dict(sorted(entries.items()))


def too_much(choice):
    for entry in choice["prompt_logprobs"][4].values():
        entry["logprob"] = -0.2


@refused(
    (prompt_form(ROWS, 0), completion_form(ROWS[::-1], 1), r"t\.jsonl, line 1, position 1: the text continues with"),
    (prompt_form(ROWS[:5], 0), completion_form(ROWS, 1), "shorter than the completion"),
    (prompt_form(ROWS[:5], 0), prompt_form(ROWS, 1), "has 5 positions, .* 12"),
    (edited(prompt_form(ROWS, 0), sort_keys), prompt_form(ROWS, 1), "with its own token in every row"),
    (edited(prompt_form(ROWS, 0), too_much), completion_form(ROWS, 1), r"line 1, position 4: p, row 0: the listed tokens sum to 4.*; give at most 1, up to 1e-05"),
    (edited(prompt_form(ROWS, 0), lambda c: c.pop("prompt_logprobs")), completion_form(ROWS, 1), r"t\.jsonl, line 1: has no prompt_logprobs"),
    (prompt_form(ROWS, 0), edited(completion_form(ROWS, 1), lambda c: c["logprobs"]["token_logprobs"].pop()), r"d\.jsonl, line 1: 12 tokens, 11 token_logprobs"),
    (prompt_form(ROWS, 0), edited(chat_form(ROWS, 1), lambda c: c["logprobs"]["content"][3].update(logprob=None)), r"d\.jsonl, line 1, position 3: .*is None"),
    (prompt_form(ROWS, 0), edited(chat_form(ROWS, 1), lambda c: c["logprobs"]["content"][3].update(logprob=7)), "a probability above 1"),
    (prompt_form(ROWS, 0), edited(chat_form(ROWS, 1), lambda c: c["logprobs"]["content"][3].pop("token")), r"d\.jsonl, line 1: not log-probabilities"),
    (prompt_form(ROWS, 0, lambda x: None), completion_form(ROWS, 1, "word {}".format), "the text continues with|an id alone"),
    (prompt_form(ROWS, 0, lambda x: "?"), completion_form(ROWS, 1, "word {}".format), "the text continues with"),
    (chat_form(ROWS, 0, name=lambda x: "?"), chat_form(ROWS, 1), "two tokens of one row read alike"),
)  # fmt: skip
@pytest.mark.usefixtures("parser")
def test_log_probabilities_that_do_not_fit(target, draft, tmp_path):
    side_by_side(tmp_path, [target], [draft])


@pytest.mark.usefixtures("parser")
def test_files_of_log_probabilities_that_do_not_fit(tmp_path):
    one = write_log(tmp_path / "t.jsonl", [prompt_form(ROWS, 0)] * 2)
    other = write_log(tmp_path / "d.jsonl", [completion_form(ROWS, 1)])
    refuses(r"d\.jsonl: ends after 1 texts", import_trace, one, tmp_path / "out", draft=other)
    refuses("the draft's log is missing", import_trace, one, tmp_path / "out")
    empty = write_log(tmp_path / "e.jsonl", [])
    refuses("has no log-probabilities", import_trace, empty, tmp_path / "out", draft=empty)
    empty.write_text("{\n")
    refuses(r"e\.jsonl, line 1: not JSON at character 3", import_trace, empty, tmp_path / "out", draft=empty)
    assert not (tmp_path / "out").exists()


def chat_logprob(value):
    return edited(chat_form(ROWS, 1), lambda c: c["logprobs"]["content"][3].update(logprob=value))


def chat_name(name):
    renamed = lambda c: c["logprobs"]["content"][3]["top_logprobs"][1].update(token=name)  # noqa: E731
    return edited(chat_form(ROWS, 1), renamed)


def chat_id(value):
    record = with_ids(chat_form(ROWS, 1))
    record["choices"][0]["logprobs"]["content"][3]["top_logprobs"][1]["id"] = value
    return record


@refused(
    (chat_logprob(-(10**400)), r"line 2, position 3: the log-probability of token \d+ is -10+\.\.\.0+$"),
    (chat_logprob(True), "line 2, position 3: the log-probability of token .* is True"),
    (chat_name("token_id:99999999999"), "line 2, position 3: token id 99999999999 is too large; give"),
    (chat_name("token_id:3000000000"), "line 2, position 3: token id 3000000000 is too large"),
    (chat_name("token_id:" + "9" * 5000), "line 2, position 3: 9{18}… is too large"),
    (chat_id(2**31 - 1), "line 2, position 3: token id 2147483647 is too large"),
    (completion_form(ROWS, 1) | {"document": True}, "line 2: document True is not an integer"),
    pattern=r"d\.jsonl, {}".format,
)
@pytest.mark.usefixtures("parser", "nowhere")
def test_numbers_in_log_probabilities_that_are_none(draft, tmp_path):
    side_by_side(tmp_path, [prompt_form(ROWS, 0)] * 2, [completion_form(ROWS, 1), draft])


LINE = json.dumps(completion_form(ROWS, 1)).encode() + b"\n"


@refused(
    (gzip.compress(LINE), "line 1: compressed; unpack the file"),
    (LINE.decode().encode("utf-16"), "line 1: not UTF-8 at byte 1; convert the file"),
    (LINE.decode().encode("utf-16-le"), "line 1: not JSON at character 2"),
    (LINE + '{"text": "é"}\n'.encode("latin-1") + LINE, "line 2: not UTF-8 at byte 11; convert the file"),
    (LINE * 3 + b"[" * 200_000 + b"\n", "line 4: nested too deeply"),
    (LINE + b'{"logprob": ' + b"1" * 5000 + b"}", "line 2: a number of too many digits"),
    pattern=r"d\.jsonl, {}".format, ids=['gzip', 'utf-16', 'utf-16 without a mark', 'latin-1', 'too deep', 'too long'],
)  # fmt: skip
@pytest.mark.usefixtures("parser")
def test_files_of_lines_that_cannot_be_read(data, nowhere, tmp_path):
    one = write_log(tmp_path / "t.jsonl", [prompt_form(ROWS, 0)] * 4)
    (tmp_path / "d.jsonl").write_bytes(data)
    import_trace(one, nowhere, draft=tmp_path / "d.jsonl")


@pytest.mark.parametrize("form", ["lines", "texts"])
def test_documents_are_those_that_either_file_says(tmp_path, form):
    def contexts(mine, theirs):
        """Of two texts, given what each file says of them."""
        files = []
        for side, said in enumerate((mine, theirs)):
            what = [element(row, side) if form == "lines" else chat_form([row], side) for row in ROWS[:2]]
            facts = ({} if document is None else {"document": document} for document in said)
            lines = (record | more for record, more in zip(what, facts, strict=True))
            files.append(write_log(tmp_path / f"{side}.jsonl", lines))
        out = tmp_path / f"{len(list(tmp_path.iterdir()))}-out"
        return import_trace(files[0], out, draft=files[1]).shards[0].columns.context.tolist()

    known, unknown = (3, 4), (None, None)
    assert contexts(known, known) == contexts(known, unknown) == contexts(unknown, known) == [3, 4]
    assert contexts(unknown, unknown) == ([0, 0] if form == "lines" else [0, 1])
    refuses(r"0\.jsonl, line 2: document 4, 5 in .*1\.jsonl, line 2; give one", contexts, (3, 4), (3, 5))
    with pytest.raises(ValueError, match=r"0\.jsonl, line 1, position 0: context: 92233\d+ is not at most"):
        contexts((2**63, 4), (2**63, 4))


STRANGE = (Path(__file__).parent / "strange.jsonl").read_bytes().splitlines()


def said_of_line(line, strings):
    tokens = Tokens(strings)
    try:
        texts = parse_line(line, "log, line 1", tokens)
    except (ValueError, WithoutIdError) as error:
        return repr(error)
    return [
        (text[:3], [[tokens.token(n) for n in row] for row in (text.rows.own, text.rows.numbers)], text.rows.logprobs.tolist())
        for text in texts
    ]  # fmt: skip


@pytest.mark.parametrize("line", STRANGE, ids=range(len(STRANGE)))
def test_both_parsers_say_the_same_of_a_line(line, monkeypatch):
    fast = said_of_line(line, strings=True)
    monkeypatch.setattr("specsim.traces._jsonl.rows.typed", None)
    assert fast == said_of_line(line, strings=True)


#: What is put into lines, or takes the place of some of their bytes.
INSERTED = [
    *(bytes([one]) for one in b'"{}[],:-.eE\\\x00\t\xff '), b"null", b"true", b"NaN", b"[]", b"{}", b"1e999", b"1e-999",
    b"3000000000", b"99999999999999999999", b"-1", b"0.02", b'"7"', b'"id": 5, ', b'"id": "x", ', b'"probs": [], ', b'"top_probs": [], ',
    b'"top_logprobs": {"a": -1}, ', b'"logprob": -3, ', b'"document": 2, ', b'"prompt_token_ids": [7], ', b'"decoded_token": 5, ', b"\\ud800",
    b'"probs": null, ',
]  # fmt: skip


@pytest.mark.parametrize("strings", [False, True])
@pytest.mark.parametrize("form", ["prompt_form", "completion_form", "chat_form"])
def test_lines_with_mistakes_read_the_same_without_types(form, strings, monkeypatch):
    rng, name = np.random.default_rng(len(form)), "word {}".format if strings else str
    names = (
        {} if form == "prompt_form" and not strings else {"name": name if strings else "token_id:{}".format}
    )
    line = json.dumps(globals()[form](ROWS[:3], 0, **names)).encode()
    lines = [line, line.replace(b'{"choices": ', b'{"document": 1, "choices": ')]
    for _ in range(1500):
        place, cut = int(rng.integers(len(line))), int(rng.choice([0, 0, 1, 2, 8]))
        added = INSERTED[rng.integers(len(INSERTED))]
        lines.append(line[:place] + added + line[place + cut :])
    fast = [said_of_line(one, strings) for one in lines]
    assert sum(type(one) is list for one in fast) > 100
    monkeypatch.setattr("specsim.traces._jsonl.rows.typed", None)
    assert fast == [said_of_line(one, strings) for one in lines]


@pytest.mark.parametrize("record", [prompt_form(ROWS, 0), completion_form(ROWS, 0), chat_form(ROWS, 0)])
def test_usual_lines_are_read_as_types(record, monkeypatch):
    decode, _ = typed.FORMS[0]
    monkeypatch.setattr(typed, "FORMS", ((decode, typed.read_logprobs),))
    monkeypatch.setattr("specsim.traces._jsonl.rows.decode_line", None)
    assert parse_line(json.dumps(record).encode(), "log, line 1", Tokens(strings=False))


def test_what_is_strange_is_told_and_what_is_not_is_read(monkeypatch):
    """Of the lines above: those that are read, by number."""
    read = []
    for number, line in enumerate(STRANGE):
        try:
            parse_line(line, "log, line 1", Tokens(strings=True))
        except ValueError:
            continue
        read.append(number)
    assert read == [1, 2, 5, 7, 8, 9, 10, 11, 12, 13, 20, 25, 28, 34, 40, 44]


def many_lines(tmp_path, texts, **how):
    rows = log_rows(positions=40)
    files = tmp_path / "t.jsonl", tmp_path / "d.jsonl"
    for file, record in zip(
        files, (prompt_form(rows, 0, **how), completion_form(rows, 1, **how)), strict=True
    ):
        file.write_text(f"{json.dumps(record)}\n" * texts)
    return files


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("how", [{}, {"name": "word {}".format}], ids=["ids", "strings"])
def test_places_at_once_are_places_one_by_one(tmp_path, monkeypatch, dtype, how):
    target, draft = many_lines(tmp_path, 5, **how)
    monkeypatch.setattr("specsim.traces._writer.SHARD_BYTES", 3000)
    monkeypatch.setattr(jsonl, "BATCH", 300)
    at_once = import_trace(target, tmp_path / "a", draft=draft, dtype=dtype)
    monkeypatch.setattr("specsim.traces._writer.TraceWriter.extend", lambda *_: False)
    one_by_one = import_trace(target, tmp_path / "b", draft=draft, dtype=dtype)
    assert len(at_once.shards) == len(one_by_one.shards) > 3
    for mine, other in zip(at_once.shards, one_by_one.shards, strict=True):
        assert mine.path.read_bytes() == other.path.read_bytes()
    assert at_once.provenance == one_by_one.provenance
    assert at_once.vocab_size == one_by_one.vocab_size


@pytest.mark.parametrize("how", [{}, {"name": "word {}".format}], ids=["ids", "strings"])
def test_lines_are_read_once_and_told_of(tmp_path, monkeypatch, how):
    """With strings, once and the first line."""
    target, draft = many_lines(tmp_path, 9, **how)
    monkeypatch.setattr(jsonl, "TOLD_AT", 1000)
    opened, told = [], []
    where = "specsim.traces._importing.jsonl.open_file"
    monkeypatch.setattr(where, lambda path: opened.append(path) or open_file(path))
    trace = import_trace(target, tmp_path / "a", draft=draft, progress=lambda *two: told.append(two))
    assert opened == [target, draft] * (2 if how else 1)
    size = target.stat().st_size + draft.stat().st_size
    read, written = ([one for one in told if one[1] == total] for total in (size, trace.num_steps))
    assert read + written == told
    assert len(read) > 9
    assert read[-1] == (size, size)
    assert written[-1] == (trace.num_steps, trace.num_steps)
    for entry, file in zip(trace.provenance["files"], (target, draft), strict=True):
        content = file.read_bytes()
        wanted = {"file": file.name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        assert entry == wanted


def test_lines_are_read_in_little_memory(tmp_path, monkeypatch):
    """1.5 MB of lines, with one row that lists twenty times as much, within half of that."""
    target, draft = many_lines(tmp_path, 3)
    import_trace(target, tmp_path / "before", draft=draft)  # so that modules and kernels are there
    target, draft = many_lines(tmp_path, 70)
    rows = log_rows(positions=40)
    rows[7] = (np.full(100, 1 / 100), rows[7][1], rows[7][2])
    wide = prompt_form(rows, 0)
    order = sorted(range(100), key=lambda x: x != rows[7][2])
    wide["choices"][0]["prompt_logprobs"][8] = {str(x): {"logprob": math.log(1 / 100)} for x in order}
    with target.open("a") as one, draft.open("a") as other:
        print(json.dumps(wide), file=one)
        print(json.dumps(completion_form(rows, 1)), file=other)
    monkeypatch.setattr(jsonl, "BATCH", 2**10)
    monkeypatch.setattr(jsonl, "BLOCK", 2**13)
    monkeypatch.setattr("specsim.traces._writer.SHARD_BYTES", 60_000)
    size = target.stat().st_size + draft.stat().st_size
    tracemalloc.start()
    trace = import_trace(target, tmp_path / "a", draft=draft)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (trace.top, trace.num_steps) == (100, 71 * 40)
    assert peak < 750_000 < size / 2


# --- the example of the docs -----------------------------------------------------------------------------


def served(table):
    """A server that answers as vLLM does, for a model that is a table: the row after each token."""

    def answer(asked, *_):
        rng, prompt = np.random.default_rng(5), asked["prompt"]
        tokens = [ord(letter) % V for letter in prompt] if isinstance(prompt, str) else prompt
        if "prompt_logprobs" in asked:
            rows = itertools.pairwise(tokens)
            (choice,) = prompt_form([(table[before], None, x) for before, x in rows], 0)["choices"]
        else:
            written = [tokens[-1]]
            while len(written) <= asked["max_tokens"]:
                written.append(int(rng.choice(V, p=table[written[-1]])))
            steps = itertools.pairwise(written)
            (choice,) = completion_form([(table[a], None, b) for a, b in steps], 0)["choices"]
            choice |= {"prompt_token_ids": tokens, "token_ids": written[1:]}
        return {"object": "text_completion", "choices": [{"index": 0, "text": "…"} | choice]}

    return answering(answer)


def test_the_example_in_the_docs_runs(tmp_path, monkeypatch, capsys):
    tables = np.random.default_rng(4).dirichlet(np.full(V, 0.5), size=(2, V))
    page = (Path(__file__).parents[2] / "docs/importing-logs.md").read_text(encoding="utf-8")
    blocks = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL))
    assert list(blocks) == ["collect.py", "read.py"]
    monkeypatch.chdir(tmp_path)
    assert "http://localhost:8000" in blocks["collect.py"]
    with served(tables[0]) as target, served(tables[1]) as draft:
        for name, code in blocks.items():
            code = code.replace("http://localhost:8000", target).replace("http://localhost:8001", draft)
            exec(compile(code, name, "exec"), {"__name__": "__main__"})
    said = capsys.readouterr().out
    low, high = map(float, re.search(r"α between ([\d.]+) and ([\d.]+)", said).groups())
    assert said.startswith("128 places of the draft's own; nothing was drafted")
    assert "alpha_context" in said
    texts = [json.loads(line)["choices"][0] for line in Path("draft.jsonl").read_text().splitlines()]
    before = [([*text["prompt_token_ids"], *text["token_ids"]])[-65:-1] for text in texts]
    truth = np.mean([np.minimum(tables[0][x], tables[1][x]).sum() for x in np.concatenate(before)])
    assert low <= truth <= high


def test_a_token_with_an_id_is_the_same_whatever_its_string():
    tokens = Tokens(strings=False)
    assert tokens.number((5, "a")) == tokens.number((5, "b")) == 5
    assert tokens.token(5) == (5, None)
    tokens = Tokens(strings=True)
    assert tokens.number((5, "a")) != tokens.number((5, "b"))
