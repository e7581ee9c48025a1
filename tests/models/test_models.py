"""Models: the Kneser–Ney law against a brute-force one in Fractions, rows against row, files, bad inputs."""

import email
import hashlib
import pickle
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from refused import refuses

import specsim
from specsim.core import distributions
from specsim.models import Mixture, Model, NGramModel, TableModel, build_pair
from specsim.models._ngram import bits_per_byte
from specsim.models._processed import process
from specsim.models._trained_pairs import DEFAULT_FILE, load_pair, standard_library

TEXTS = [
    b"the cat sat on the mat; the cat ate the rat",
    b"a man, a plan, a canal: panama. the end\n" * 2,
    b"\x00\xff\x00\xff\x80",
    b"xy",
    b"",
]


class BruteForceKneserNey:
    """The law as `specsim/models/_ngram.py` states it, in dictionaries and Fractions."""

    def __init__(self, texts: Sequence[bytes], n: int):
        windows = [text[i : i + n] for text in texts for i in range(len(text) - n + 1)]
        self.n = n
        self.counts = {n: Counter(windows)}
        for k in range(1, n):
            preceded = {window[n - k - 1 :] for window in windows}
            self.counts[k] = Counter(gram[1:] for gram in preceded)
        self.successors: dict[bytes, Counter[int]] = {}
        for grams in self.counts.values():
            for gram, count in grams.items():
                self.successors.setdefault(gram[:-1], Counter())[gram[-1]] = count

    def discount(self, k: int) -> Fraction:
        n1 = sum(count == 1 for count in self.counts[k].values())
        n2 = sum(count == 2 for count in self.counts[k].values())
        return Fraction(n1, n1 + 2 * n2) if n1 else Fraction(1, 2)

    def row(self, context: bytes) -> list[Fraction]:
        row = [Fraction(1, 256)] * 256
        for k in range(1, self.n + 1):
            after = self.successors.get(context[len(context) - k + 1 :])
            if after:
                d, total = self.discount(k), sum(after.values())
                discounted = [after[x] - d if x in after else Fraction(0) for x in range(256)]
                row = [(c + d * len(after) * lower) / total for c, lower in zip(discounted, row, strict=True)]
        return row


def contexts_of(texts: Sequence[bytes], order: int, extra: int = 20) -> list[bytes]:
    """Every context of `texts`, then some that begin, wholly or partly, where no text has been."""
    seen = {text[i : i + order] for text in texts for i in range(len(text) - order + 1)}
    rng = np.random.default_rng(5)
    unseen = [rng.bytes(order) for _ in range(extra)]
    mixed = [rng.bytes(1) + context[1:] for context in sorted(seen)[:extra] if order]
    return sorted(seen) + unseen + mixed


def as_histories(contexts: Sequence[bytes]) -> np.ndarray:
    return np.array([list(context) for context in contexts], dtype=np.int32).reshape(len(contexts), -1)


# --- n-grams: the law ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 5)), 8])
def test_kneser_ney_is_the_brute_force_law(n, full):
    model, brute = NGramModel.train(TEXTS, n), BruteForceKneserNey(TEXTS, n)
    contexts = contexts_of(TEXTS, n - 1)[:: 1 if full else 4]
    expected = np.array([[float(p) for p in brute.row(context)] for context in contexts])
    np.testing.assert_allclose(model.rows(as_histories(contexts)), expected, rtol=1e-12, atol=1e-15)
    assert all(sum(brute.row(context)) == 1 for context in contexts[::10])


def test_a_wrong_law_would_be_noticed():
    """Negative control: raw counts below the highest level (plain absolute discounting) are told apart."""
    brute = BruteForceKneserNey(TEXTS, 3)
    brute.successors[b""] = Counter(byte for text in TEXTS for byte in text)
    row = NGramModel.train(TEXTS, 3).row(b"\x01\x02")
    assert np.abs(row - np.array(brute.row(b"\x01\x02"), dtype=float)).max() > 1e-3


@pytest.mark.parametrize("text", [b"abababababab", b"a", b"aaaa", b"abcdefgh", b"aabbccdd" * 5])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_degenerate_counts_of_counts_leave_every_byte_possible(text, n):
    rows = NGramModel.train([text * n], n).rows(as_histories(contexts_of([text * n], n - 1)))
    assert rows.min() > 0
    np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=0, atol=1e-14)


def test_small_models_by_hand():
    grams = {bytes(gram) for gram in NGramModel.train([b"abc", b"def"], 2).ngrams}
    assert grams == {b"ab", b"bc", b"de", b"ef"}
    model = NGramModel.train([b"abab", b"ab"], 2)
    counts = {bytes(g): int(c) for g, c in zip(model.ngrams, model.counts, strict=True)}
    assert counts == {b"ab": 3, b"ba": 1}
    assert NGramModel.train([b"abab"], 3).contexts.tolist() == [[97, 98], [98, 97]]
    assert NGramModel.train([b"abab"], 1).contexts.shape == (1, 0)
    # bigrams ab:3 ba:2 bc:1, so n1 = n2 = 1 and D2 = 1/3; a, b and c each follow one byte: n1 = 3, D1 = 1
    # p1 = 1/256 throughout; p2(c | b) = (1 - 1/3 + 1/3 * 2/256) / 3
    model = NGramModel.train([b"ababa", b"abc"], 2)
    np.testing.assert_allclose(model.discounts, [0, 1, 1 / 3])
    assert model.row(b"b")[ord("c")] == pytest.approx((2 / 3 + 2 / 768) / 3, rel=1e-15)


# --- n-grams: rows and row -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_rows_equal_row_bit_for_bit(n):
    model = NGramModel.train(TEXTS, n)
    contexts = contexts_of(TEXTS, n - 1, extra=100)
    rows = model.rows(as_histories(contexts))
    assert all((row == model.row(context)).all() for row, context in zip(rows, contexts, strict=True))


def test_default_pair_rows():
    rng = np.random.default_rng(11)
    for model in specsim.default_pair():
        seen = model.contexts[:300]
        unseen = rng.integers(0, 256, (100, model.order), dtype=np.int32)
        histories = np.concatenate([seen, unseen])
        rows = model.rows(histories)
        assert rows.min() > 0
        np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=0, atol=1e-14)
        assert all((row == model.row(h)).all() for row, h in zip(rows, histories, strict=True))


def test_rows_read_only_the_last_tokens_in_any_layout():
    model = NGramModel.train(TEXTS, 3)
    short = as_histories(contexts_of(TEXTS, 2))
    long = np.concatenate([np.full((len(short), 3), 9), short], axis=1)
    expected = model.rows(short)
    out = np.full((len(short), 4, 256), np.nan)
    assert (model.rows(long) == expected).all()
    assert (model.rows(np.asfortranarray(long)[:, 1:]) == expected).all()
    assert np.shares_memory(model.rows(short.astype(np.uint8), out[:, 2]), out)
    assert (out[:, 2] == expected).all()
    assert np.isnan(out[:, [0, 1, 3]]).all()
    assert model.rows(short[:0]).shape == (0, 256)


def test_rows_from_several_threads():
    model = load_pair(DEFAULT_FILE)[0]  # a fresh one, so that the threads also race to build its hash table
    parts = np.split(model.contexts, 16)
    with ThreadPoolExecutor(4) as pool:
        together = np.concatenate(list(pool.map(model.rows, parts)))
    assert (together == specsim.default_pair()[0].rows(model.contexts)).all()


def test_models_survive_pickling():
    model = NGramModel.train(TEXTS, 3)
    table = TableModel([[Fraction(1, 3), Fraction(2, 3)]] * 2)
    assert (pickle.loads(pickle.dumps(model)).rows(model.contexts) == model.rows(model.contexts)).all()
    assert pickle.loads(pickle.dumps(table)).row([1]) == table.row([1])


def test_row_does_not_need_numba():
    code = (
        "import sys; from specsim import default_pair; from specsim.models import TableModel; p, q = default_pair(); "
        "p.row(b'self'); TableModel([1.0]).rows([[]]); assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- n-grams: files --------------------------------------------------------------------------------------


def test_save_and_load(tmp_path):
    model = NGramModel.train([*TEXTS, b" " * 70_000], 4, contexts=[[1, 2, 3]])
    model.provenance = {"source": "a test", "bytes": 3}
    model.save(tmp_path / "model.npz")
    again = NGramModel.load(tmp_path / "model.npz")
    assert (again.ngrams == model.ngrams).all()
    assert (again.counts == model.counts).all()
    assert again.counts.max() > 65_536
    assert again.contexts.tolist() == [[1, 2, 3]]
    assert again.provenance == model.provenance
    assert (again.row(b"the") == model.row(b"the")).all()
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]


def damaged_files(folder: Path) -> dict[str, Path]:
    good = folder / "good.npz"
    model = NGramModel.train(TEXTS, 3)
    model.save(good)
    raw = good.read_bytes()
    middle = len(raw) // 3
    broken = {
        "empty": b"",
        "text": b"not an archive",
        "truncated": raw[: len(raw) // 2],
        "flipped": raw[:middle] + bytes(b ^ 0xFF for b in raw[middle : middle + 40]) + raw[middle + 40 :],
    }
    for name, content in broken.items():
        (folder / name).write_bytes(content)
    arrays = model.to_arrays()
    np.savez(folder / "foreign.npz", a=np.arange(3))
    np.save(folder / "array.npy", np.arange(3))
    np.savez(folder / "pickled.npz", **(arrays | {"ngrams": np.array([object()])}))
    np.savez(folder / "unsorted.npz", **(arrays | {"ngrams": arrays["ngrams"][:, ::-1]}))
    np.savez(folder / "zero.npz", **(arrays | {"counts": arrays["counts"] * 0}))
    np.savez(folder / "flat.npz", **(arrays | {"counts": arrays["counts"][0]}))
    np.savez(folder / "no-contexts.npz", **(arrays | {"contexts": arrays["contexts"][:0]}))
    np.savez(folder / "provenance.npz", **(arrays | {"provenance": np.array("{")}))
    return {path.name: path for path in folder.iterdir() if path != good}


def test_damaged_or_foreign_files_are_named(tmp_path):
    for path in damaged_files(tmp_path).values():
        refuses(f"{path.name}: damaged, or not a file", NGramModel.load, path)
    refuses("damaged, or not a file", load_pair, tmp_path / "good.npz")
    with pytest.raises(FileNotFoundError):
        NGramModel.load(tmp_path / "absent.npz")


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model.npz"
    NGramModel.train(TEXTS, 2).save(path)
    before = path.read_bytes()

    def fail(file, **arrays):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        NGramModel.train(TEXTS, 3).save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


# --- pairs -----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """Thirteen files, each with a letter of its own: A, K are held out. Others are to be left out by name."""
    source = tmp_path / "source"
    (source / "tests").mkdir(parents=True)
    for i in range(13):
        (source / f"{i:02d}.txt").write_bytes(bytes([65 + i]) * 30)
    (source / "tests" / "t.txt").write_bytes(b"z" * 30)
    (source / "other.md").write_bytes(b"y" * 30)
    return source


def test_held_out_text_is_never_trained_on(folder, tmp_path):
    target, draft = build_pair(folder, tmp_path / "pair.npz", pattern="*.txt", exclude=["tests"])
    for model in (target, draft):
        assert set(model.ngrams.ravel()) == set(b"BCDEFGHIJLM")
        assert set(model.contexts.ravel()) == set(b"AK")
    training = b"".join((folder / f"{i:02d}.txt").read_bytes() for i in range(13) if i % 10)
    assert target.provenance == {
        "source": "files *.txt",
        "training_files": 11,
        "training_bytes": 330,
        "training_sha256": hashlib.sha256(training).hexdigest(),
        "held_out_files": 2,
        "held_out_bytes": 60,
        "held_out_bits_per_byte_target": bits_per_byte(target, [b"A" * 30, b"K" * 30]),
        "held_out_bits_per_byte_draft": bits_per_byte(draft, [b"A" * 30, b"K" * 30]),
    }
    assert len(target.contexts) == 2 * 26  # every held-out position with 4 bytes before it


def test_pair_survives_its_file_and_repeats(folder, tmp_path):
    built = build_pair(folder, tmp_path / "a.npz", n_target=4, n_draft=3, pattern="*.txt")
    build_pair(folder, tmp_path / "b.npz", n_target=4, n_draft=3, pattern="*.txt")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    loaded = load_pair(tmp_path / "a.npz")
    assert [model.n for model in loaded] == [4, 3]
    for one, other in zip(built, loaded, strict=True):
        assert (one.contexts == other.contexts).all()
        assert one.provenance == other.provenance
        assert (one.rows(one.contexts) == other.rows(other.contexts)).all()
    assert (loaded[0].contexts[:, -2:] == loaded[1].contexts).all()


def test_bad_folders(folder, tmp_path):
    out = tmp_path / "pair.npz"
    refuses("is not a folder", build_pair, tmp_path / "absent", out)
    refuses(r"0 files matching '\*.py'", build_pair, folder, out)
    refuses("1 files matching", build_pair, folder, out, pattern="*.md")
    text = next(folder.rglob("*.txt"))
    before = text.read_bytes()
    refuses("is a file of the text, and is not replaced", build_pair, folder, text, pattern="*.txt")
    assert text.read_bytes() == before
    (folder / "00.md").write_bytes(b"abc")
    refuses("no byte after 4 others", build_pair, folder, out, pattern="*.md")
    (folder / "00.md").write_bytes(b"long enough")
    (folder / "other.md").write_bytes(b"short")
    refuses("none is as long as n = 8", build_pair, folder, out, pattern="*.md", n_target=8)
    refuses("outside", build_pair, folder, out, pattern="*.txt", n_draft=0)
    assert not out.exists()


def test_more_context_predicts_better(tmp_path):
    """On real text: the source of the standard library's email package."""
    target, _ = build_pair(Path(email.__file__).parent, tmp_path / "pair.npz")
    bits_target = target.provenance["held_out_bits_per_byte_target"]
    bits_draft = target.provenance["held_out_bits_per_byte_draft"]
    assert 1 < bits_target < bits_draft - 0.5 < 7.5


def test_default_pair_is_what_it_says():
    target, draft = specsim.default_pair()
    assert specsim.default_pair() is specsim.default_pair()
    assert DEFAULT_FILE.stat().st_size <= 4e6
    assert (target.n, target.order, draft.n, draft.order) == (5, 4, 2, 1)
    assert target.contexts.shape == (16_384, 4)
    assert target.contexts.dtype == np.int32
    assert (target.contexts[:, -1:] == draft.contexts).all()
    assert str(target.provenance["source"]).startswith("Python 3.")
    bits = [target.provenance[f"held_out_bits_per_byte_{name}"] for name in ("target", "draft")]
    assert 1 < bits[0] < bits[1] < 8
    alpha_context = np.minimum(target.rows(target.contexts), draft.rows(draft.contexts)).sum(axis=1).mean()
    assert 0.2 < alpha_context < 0.8


def test_the_standard_library_is_read_without_what_builds_generate(folder, monkeypatch):
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"stdlib": str(folder)})
    for path in folder.glob("*.txt"):
        path.rename(path.with_suffix(".py"))
    (folder / "tests" / "test_it.py").write_bytes(b"z" * 30)
    (folder / "_sysconfigdata_.py").write_bytes(b"z" * 30)
    assert standard_library().facts()["training_files"] == 11


# --- tables ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("exact", [False, True])
def test_table_orders(order, exact):
    v = 3
    weights = np.random.default_rng(order).integers(0, 9, (v,) * (order + 1)) + 1
    table = np.empty(weights.shape, dtype=object)
    for place in np.ndindex(weights.shape):
        table[place] = Fraction(int(weights[place]), int(weights[place[:-1]].sum()))
    model = TableModel(table.tolist() if exact else table.astype(float))
    assert (model.vocab_size, model.order) == (v, order)
    assert model.contexts.shape == (v**order, order)
    assert len(np.unique(model.contexts, axis=0)) == v**order
    rows = model.rows(np.concatenate([np.full((v**order, 2), 2), model.contexts], axis=1))
    for context, row in zip(model.contexts, rows, strict=True):
        by_hand = model.row(context)
        assert ([float(x) for x in by_hand] == row).all()
        assert np.allclose(row, table[tuple(context)].astype(float), rtol=1e-15)
        if exact:
            assert by_hand == tuple(table[tuple(context)])


def test_table_rows_write_to_out_and_integers_may_stand_among_fractions():
    model = TableModel([[0.25, 0.75], [1, 0]])
    out = np.full((2, 3, 2), np.nan)
    assert np.shares_memory(model.rows([[1], [0]], out[:, 1]), out)
    assert out[:, 1].tolist() == [[1, 0], [0.25, 0.75]]
    assert np.isnan(out[:, [0, 2]]).all()
    assert TableModel([[Fraction(1, 2), Fraction(1, 2)], [1, 0]]).row([1]) == (Fraction(1), Fraction(0))


def test_table_contexts():
    big = np.eye(65)[np.zeros((65, 65), dtype=int)]
    assert TableModel(big, contexts=[[64, 0]]).contexts.tolist() == [[64, 0]]


P, Q = [0.5, 0.3, 0.2], [0.2, 0.3, 0.5]
SETTINGS = [{"temperature": 0.7}, {"temperature": 0.0}, {"top_k": 2}, {"top_p": 0.6}, {"min_p": 0.5}]
SETTINGS += [{"temperature": 1.5, "top_k": 2, "top_p": 0.9, "min_p": 0.1}]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_one_row_is_bit_for_bit_that_of_many(setting):
    target, draft = specsim.default_pair()
    some = target.contexts[:60]
    for model in (target.processed(**setting), Mixture(draft, target, 0.3).processed(**setting)):
        rows = model.rows(some)
        assert all(np.array_equal(model.row(context), row) for context, row in zip(some, rows, strict=True))
        out = np.empty_like(rows)
        assert model.rows(some, out) is out
        assert np.array_equal(out, rows)
        assert isinstance(model, Model)


def test_the_steps_are_those_of_distributions_in_the_order_of_transformers():
    expected = distributions.temperature(P, 0.5)
    expected = distributions.top_p(distributions.top_k(expected, 2), 0.8)
    assert np.array_equal(process(P, temperature=0.5, top_k=2, top_p=0.8), expected)
    assert np.array_equal(process(P), P)
    # another order gives another law, so the order is one
    other = distributions.temperature(distributions.top_p(P, 0.6), 0.5)
    assert not np.allclose(process(P, temperature=0.5, top_p=0.6), other)


def test_the_text_of_a_processed_model_has_its_law():
    """A simulated run emits tokens of p at that temperature."""
    run = specsim.simulate(TableModel(P).processed(temperature=0.5), TableModel(Q), steps=50_000, rng=1)
    law = distributions.temperature(P, 0.5)
    right, wrong = (specsim.stats.chi_square(run.tokens, np.asarray(one)).p_value for one in (law, P))
    assert right > 1e-6
    assert wrong < 1e-6, "the law at temperature 1 is rejected"


def test_a_processed_model_can_be_processed_and_nothing_but_a_model():
    exact = TableModel([Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)])
    twice = exact.processed(temperature=0.5).processed(top_k=1)
    assert twice.row([]).tolist() == [1.0, 0.0, 0.0]
    assert (twice.vocab_size, twice.order, twice.reads_all) == (3, 0, False)
    assert np.array_equal(twice.contexts, exact.contexts)
