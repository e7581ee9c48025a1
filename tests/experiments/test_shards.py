"""Tables that are computed in shards: the same bytes as at once, and what is missing or doubled is named."""

import json
import sys

import pytest

import experiments
from experiments import _tables as tables
from experiments._parts import shard_cells
from experiments._tables import make_shard, merge_shards, table
from experiments.literature import simulated_speed

NAMES = ["simulated_speed", "leviathan_figure_2"]
SHARDS = 3


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """The files of each of three shards of two experiments, as three machines would have written them."""
    return [
        make_shard(NAMES, tmp_path_factory.mktemp("machine"), (i, SHARDS), fast=True) for i in range(SHARDS)
    ]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """`python -m experiments` or `python -m figures` in an empty folder: (exit code, out, err)."""
    from specsim.cli import run_app

    monkeypatch.chdir(tmp_path)

    def run(program, *arguments):
        app = __import__(f"{program}.__main__", fromlist=["app"]).app
        monkeypatch.setattr(sys, "argv", [program, *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            run_app(app)
        return ended.value.code, *capsys.readouterr()

    return run


def flat(parts):
    return [path for files in parts for path in files]


def test_every_cell_is_in_one_shard():
    for name in ("simulated_speed", "leviathan_figure_2", "rules"):
        for n in (1, 2, 5):
            cells = [k for i in range(n) for k in shard_cells(name, (i, n), fast=True)]
            assert sorted(cells) == [*range(experiments.number_of_cells(name, fast=True))]
    alone = {name for name in experiments.names() if experiments.number_of_cells(name, fast=True) == 1}
    first = {name for name in alone if shard_cells(name, (0, 2), fast=True)}
    assert 0 < len(first) < len(alone)


def test_merged_tables_are_those_of_one_run_byte_for_byte(parts, tmp_path):
    merged = merge_shards(flat(parts)[::-1], lambda _: tmp_path / "merged")
    assert (merged.fast, merged.rng) == (True, 0)
    for name in NAMES:
        table(name, tmp_path / "whole", fast=True)
        files = [tmp_path / folder / f"{name}.parquet" for folder in ("merged", "whole")]
        assert files[0].read_bytes() == files[1].read_bytes()
    assert {path.name for path in (tmp_path / "merged").iterdir()} == {f"{name}.parquet" for name in NAMES}


def test_missing_and_doubled_shards_are_named(parts, tmp_path):
    one = [files[0] for files in parts]
    other = tmp_path / one[1].name
    other.write_bytes(one[1].read_bytes())
    with pytest.raises(ValueError, match="simulated_speed: shard 1/3 is missing; run it with --shard"):
        merge_shards([one[0], one[2]], lambda _: tmp_path)
    with pytest.raises(ValueError, match="simulated_speed: shard 0/3, 2/3 is missing"):
        merge_shards([one[1]], lambda _: tmp_path)
    with pytest.raises(
        ValueError, match=rf"{other}: shard 1/3 of simulated_speed, as {one[1]} is; give each"
    ):
        merge_shards([*one, other], lambda _: tmp_path)
    with pytest.raises(ValueError, match="no part was given"):
        merge_shards([], lambda _: tmp_path)
    assert not list(tmp_path.glob("*.parquet"))


def test_parts_of_other_runs_are_named(parts, tmp_path, monkeypatch):
    one = [files[0] for files in parts]
    for what, options in (("seed is 5 there, and 0", {"rng": 5}), ("number of shards is 4 there, and 3", {})):
        n = 3 if options else 4
        (path, *_) = make_shard(NAMES[:1], tmp_path / str(n), (2, n), fast=True, **options)
        with pytest.raises(ValueError, match=f"{path}: of another run: (the )?{what} in {one[0]}"):
            merge_shards([*one[:2], path], lambda _: tmp_path)
    damaged = tmp_path / "damaged.part"
    head, *lines = one[1].read_text().splitlines(keepends=True)
    for content, what in (
        (head + "".join(lines[:-1]), "shard 1/3 of simulated_speed lacks 1 of its .*run it again"),
        (head + lines[0].replace("1", "2", 1) + "".join(lines[1:]), f"lacks {len(lines)} of its"),
        (head + "".join([*lines[:-1], lines[-1][:-9]]), "lacks 1 of its"),
        (head.replace('"seed": 0', '"seed": 1') + "".join(lines), "seed is 1 there"),
        ("[1]\n", "not a part of a table; give the files that --shard wrote"),
        ("", "not a part of a table"),
        (head.replace("simulated_speed", "nothing"), "not a part of a table"),
    ):
        damaged.write_text(content)
        with pytest.raises(ValueError, match=rf"{damaged}: .*{what}"):
            merge_shards([one[0], damaged, one[2]], lambda _: tmp_path)
    with pytest.raises(FileNotFoundError):
        merge_shards([tmp_path / "nowhere"], lambda _: tmp_path)
    monkeypatch.setattr(tables, "table_digest", lambda *_, **__: "0" * 64)
    with pytest.raises(ValueError, match=r"simulated_speed: code of its parts is .*; merge them with"):
        merge_shards(one, lambda _: tmp_path)


def test_a_shard_goes_on_where_it_was_interrupted(parts, tmp_path, monkeypatch):
    whole = parts[1][0]
    part = tmp_path / whole.name
    part.write_text("".join(whole.read_text().splitlines(keepends=True)[:-2]))
    ran, right = [], simulated_speed.run_cell
    monkeypatch.setattr(
        simulated_speed, "run_cell", lambda cell, **how: ran.append(cell) or right(cell, **how)
    )
    assert make_shard(NAMES[:1], tmp_path, (1, SHARDS), fast=True) == [part]
    assert len(ran) == 2
    assert part.read_bytes() == whole.read_bytes()
    assert json.loads(part.read_text().partition("\n")[0])["shard"] == [1, 3]


def test_shards_at_the_command_line(run, parts, tmp_path):
    code, out, _ = run("experiments", *NAMES, "--fast", "--shard", "2/3", "--out", "there")
    assert code == 0
    assert out.splitlines() == [f"wrote there/{name}.2-of-3.part; --merge makes a table of all shards" for name in NAMES]  # fmt: skip
    files = [*flat(parts[:2]), *(f"there/{name}.2-of-3.part" for name in NAMES)]
    code, out, _ = run("experiments", "--merge", *files)
    assert code == 0
    assert out.startswith("results/tables-fast/simulated_speed.parquet: ")
    table("simulated_speed", tmp_path / "whole", fast=True)
    merged = (tmp_path / "results/tables-fast/simulated_speed.parquet").read_bytes()
    assert merged == (tmp_path / "whole/simulated_speed.parquet").read_bytes()
    for arguments, what in (
        (("rules", "--shard", "3/3"), "3/3 does not exist"),
        (("rules", "--shard", "a"), "'a' is not of the form i/n"),
        (("--shard", "0/3"), "name them"),
        (("rules", "--shard", "0/3", "--keep"), "neither --keep nor --pages"),
        (("rules", "--merge", files[0]), "leave the names out"),
        (("--merge", files[0]), "shard 1/3, 2/3 is missing"),
    ):
        code, _, err = run("experiments", *arguments)
        assert code == 2, arguments
        assert what in err


def test_figures_are_drawn_from_merged_tables(run, tmp_path, monkeypatch):
    for i in range(2):
        code, out, _ = run(
            "figures", "simulated_speed", "--fast", "--shard", f"{i}/2", "--out", f"machine-{i}"
        )
        assert code == 0
        assert f"wrote machine-{i}/tables/simulated_speed.{i}-of-2.part" in out
        assert [path.name for path in (tmp_path / f"machine-{i}").iterdir()] == ["tables"]
    files = [f"machine-{i}/tables/simulated_speed.{i}-of-2.part" for i in range(2)]
    monkeypatch.setattr(simulated_speed, "run_cell", lambda *_, **__: pytest.fail("run again"))
    code, out, _ = run("figures", "--merge", *files, "--out", "merged")
    assert code == 0
    assert out == "merged/simulated_speed (.svg, .png, .pdf)\n"
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    run("figures", "simulated_speed", "--fast", "--out", "whole")
    for name in ("simulated_speed.svg", "tables/simulated_speed.parquet"):
        assert (tmp_path / "merged" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    for arguments, what in (
        (("--merge", files[0], "--out", "m"), "shard 1/2 is missing"),
        (("leviathan_figure_2", "--merge", *files, "--out", "m"), "no part of its table leviathan_figure_2"),
        (("--shard", "0/2", "--merge", *files), "give one of them"),
    ):
        code, _, err = run("figures", *arguments)
        assert code == 2, arguments
        assert what in err
