"""Audits as assertions: what passes, what is raised and why, the pytest fixture, the example of the docs."""

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import verifiers

from specsim.adapters import declares
from specsim.auditing import Verdict
from specsim.testing import assert_exact, assert_same

pytestmark = pytest.mark.usefixtures("few_cases_in_module")
FEW_CASES = {"two-point", "asymmetric", "zeros", "irregular", "Zipf 1 000"}


@declares(vocab_size=4)
def right(draft_tokens, p, q, rng):
    return verifiers.right(draft_tokens, p, q, rng)


@declares(vocab_size=4)
def wrong(draft_tokens, p, q, rng):
    return verifiers.resamples_from_target(draft_tokens, p, q, rng)


@declares(vocab_size=32)
def wasteful(draft_tokens, p, q, rng):
    return verifiers.ignores_drafts(draft_tokens, p, q, rng)


def pytest_in(folder, *arguments):
    """Run pytest in `folder`, with the plugin, and nothing of this repository's configuration."""
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    # where specsim is installed with its entry point, the plugin is there already
    installed = any(one.value == "specsim._pytest_plugin" for one in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "specsim._pytest_plugin"]
    return subprocess.run([*command, *plugin], cwd=folder, capture_output=True, text=True)


def test_an_exact_verifier_passes_and_gives_its_audit():
    found = assert_exact("standard", rng=0)
    assert found.verdict is Verdict.CONSISTENT
    assert (found.level, found.provenance.root) == ("smoke", 0)


@pytest.mark.parametrize(
    ("verifier", "said"),
    [
        (
            verifiers.resamples_from_target,
            r"m_target: biased\n.*\n[\w ]+: e = 10\^\d+( over all tables)?; position \d( after \[.*\])?: TV",
        ),
        (verifiers.raises, r"raises: broken\n.*out of cheese"),
        ("greedy_match", r"greedy_match: lossy as declared"),
    ],
)
def test_any_other_verdict_is_an_assertion_that_tells_the_report(verifier, said, full):
    with pytest.raises(AssertionError) as raised:
        assert_exact(verifier, rng=3, diagnose=full)
    text = str(raised.value)
    assert text.count("\n") < 25
    assert re.search(said, text, re.DOTALL)
    assert re.search(r"\nAgain: specsim audit \S+ --level smoke --seed 3$", text)


def test_a_verdict_against_a_verifier_needs_no_power():
    with pytest.raises(AssertionError, match="wrong: biased") as raised:
        assert_exact(wrong, seconds=10, diagnose=False, rng=0)
    assert "for a verdict" not in str(raised.value)
    with pytest.raises(AssertionError, match="right: inconclusive") as raised:
        assert_exact(right, seconds=10, rng=0)
    assert "for a verdict it must be in half of them" in str(raised.value)


def test_a_wasteful_verifier_passes_unless_that_is_refused():
    assert assert_exact(wasteful, seconds=10, wanted_tv=0.2, rng=0).wasteful
    with pytest.raises(AssertionError, match=r"two-point: 1\.0000 tokens per step, 0\.271 of the standard"):
        assert_exact(wasteful, seconds=10, wanted_tv=0.2, allow_wasteful=False, rng=0)


def test_an_engine_is_audited_with_what_it_serves(tmp_path):
    from specsim import plant

    pair = plant(tmp_path / "pair", vocab_size=4, context=128, rng=1)
    assert assert_exact("specsim", planted=pair, tokens=15_000, rng=0).verdict is Verdict.CONSISTENT
    wrong = {"tokens": 500, "mistake": "logprobs_one_late", "rng": 0}
    with pytest.raises(AssertionError, match="specsim: biased") as raised:
        assert_exact("specsim", planted=pair.folder, **wrong)
    assert "by p/q" not in str(raised.value)  # tests of texts, all of which agree
    (tmp_path / "test_it.py").write_text(
        "def test_of_an_engine(specsim_audit):\n"
        f"    specsim_audit('specsim', planted={str(pair.folder)!r}, tokens=15_000)\n"
    )
    done = pytest_in(tmp_path, "--specsim-seed", "7")
    said = r"test_of_an_engine: specsim\nNo deviation.* A total variation of .* would have .*\n.*, seed 7\. .* 1e-06\."
    assert re.search(said, done.stdout), done.stdout + done.stderr


def test_an_interrupt_is_no_assertion():
    def interrupted(draft_tokens, p, q, rng):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        assert_exact(interrupted, rng=0)


def test_old_against_new():
    assert assert_same(right, "standard", rng=0).verdict == "same"
    with pytest.raises(AssertionError) as raised:
        assert_same(wrong, "standard", rng=2)
    text = str(raised.value)
    assert "test_testing:wrong against standard: changed" in text
    assert re.search(r"two-point: position \d.*: token \d 0\.\d+ new, 0\.\d+ old", text)
    assert text.endswith('In Python: assert_same(new, old, "smoke", rng=2)')


def test_the_plugin_loads_nothing_of_specsim():
    command = [sys.executable, "-c", "import specsim._pytest_plugin, sys; print(*sys.modules)"]
    listing = subprocess.run(command, check=True, capture_output=True, text=True)
    assert not set(listing.stdout.split()) & {"numpy", "scipy", "numba", "matplotlib", "specsim.auditing"}


def test_the_fixture_has_the_level_and_the_seed_of_the_command_line(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "def test_given(specsim_audit):\n"
        '    assert specsim_audit.keywords == {"level": "quick", "rng": 7}\n'
        "def test_wrong(specsim_audit):\n"
        "    def wrong(*_):\n"
        "        1 / 0\n"
        '    wrong.declared = {"vocab_size": 4}\n'
        '    specsim_audit(wrong, cases=["two-point"], diagnose=False)\n'
    )
    (tmp_path / "test_right.py").write_text(
        "import numpy as np\n"
        "def verify(draft_tokens, p, q, rng):\n"
        "    if len(p) > 10**6:\n"
        "        p = 2 * p\n"
        "    out = np.full((len(p), p.shape[1]), -1)\n"
        "    out[:, 0] = (p[:, 0].cumsum(1) <= rng.random((len(p), 1))).sum(1)\n"
        "    return out\n"
        "def test_given(specsim_audit):\n"
        '    specsim_audit(verify, level="smoke", cases=["two-point"])\n'
    )
    page = (Path(__file__).parents[2] / "docs/auditing-your-engine.md").read_text(encoding="utf-8")
    example = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in example] == ["mine.py", "loop.py", "test_mine.py"]
    for name, code in example:
        (tmp_path / name).write_text(code, encoding="utf-8")
    done = pytest_in(tmp_path, "--specsim-level", "quick", "--specsim-seed", "7", "-k", "given or wrong")
    assert "verify, level smoke" in done.stdout
    assert "of the first token was detectable in 1 of 1 case; for a verdict" in done.stdout
    assert "is called biased with probability at most 1e-06." in done.stdout
    assert "Not run: line 4 of test_right.py." in done.stdout
    # the tests of the docs' example are found and not run: `test_docs` calls them
    assert "1 failed, 2 passed, 2 deselected" in done.stdout, done.stdout + done.stderr
    assert "raised ZeroDivisionError" in done.stdout
    assert 'with level "quick" and rng=7' in done.stdout
    assert "specsim/testing.py" not in done.stdout  # the caller's line is shown, not ours


@pytest.mark.slow
def test_pytest_runs_as_before_where_the_fixture_is_not_used(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import sys\ndef test_nothing():\n    assert 'numpy' not in sys.modules\n"
    )
    done = pytest_in(tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
