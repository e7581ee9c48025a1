"""Device code: the same numbers as on the CPU, to the last bit.

It runs in numba's simulator, as Python; NUMBA_ENABLE_CUDASIM=0 runs the same tests on a GPU. What the simulator
cannot tell, whether it compiles and how products are rounded, is read from the machine code, where numba-cuda's
compiler is installed. `test_cuda_rows.py` has rows."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import commands
import numpy as np
import pytest
from refused import refused

import specsim
from specsim.core._streams import Purpose, key_of, uniform
from specsim.core.distributions import synthetic_pair
from specsim.models import chain
from specsim.simulation._counting import StepTally, add_up, run
from specsim.simulation._sources import make_source

pytest.importorskip("numba_cuda", reason="needs the extra cuda")

from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib
from numba.cuda.core.errors import NumbaPerformanceWarning

from specsim.core._cuda import SIMULATED, cuda, explained
from specsim.simulation._cuda import counting, steps

RULES = ["standard", "block", "lenience:lenience=0.5", "greedy_match"]
#: Those of them that draw integers.
INTEGERS = [RULES[0], *RULES[2:]]
KEY = key_of(3)
#: Steps before this have another high word than those after it.
HIGH_WORD = 2**32


@pytest.fixture(autouse=True)
def small_launches(monkeypatch):
    """Several launches in a few hundred steps, of few threads: each costs the simulator a real one."""
    monkeypatch.setattr(counting, "LAUNCH", 32)
    monkeypatch.setattr(counting, "THREADS", 8)


def both(rule, kind, vocab_size, gamma, first, steps):
    """The counts of steps [first, first + steps) on the CPU and on the device."""
    source = make_source(*synthetic_pair(kind, vocab_size, 0.6, rng=0), rule=rule, gamma=gamma)
    tally = StepTally(gamma, vocab_size)
    on_device = counting.DeviceCounter(source).count(KEY, [(first, first + steps)])
    return run(source, tally, KEY, first, steps, threads=1), add_up(on_device, tally, steps)


def assert_same(on_cpu, on_device):
    assert on_device.intervals == on_cpu.intervals
    assert on_device.counts.keys() == on_cpu.counts.keys()
    for name, counts in on_cpu.counts.items():
        found = on_device.counts[name]
        assert found.shape == counts.shape
        by_token = name == "tokens"  # whose two rows are to be added
        np.testing.assert_array_equal(*(x.sum(axis=0) if by_token else x for x in (found, counts)))


@cuda.jit
def fill(k0, k1, purpose, step, out):
    steps.fill_uniforms(k0, k1, purpose, step, out)


@pytest.mark.parametrize("purpose", Purpose)
def test_the_uniforms_of_a_step(purpose):
    for step in (0, 1, HIGH_WORD - 1, HIGH_WORD, 3 * HIGH_WORD + 5, 2**62):
        key, out = (0xFFFFFFFF, 0x9E3779B9), cuda.to_device(np.zeros(9))
        fill[1, 1](*map(np.uint32, key), int(purpose), step, out)
        assert out.copy_to_host().tolist() == [uniform(key, purpose, step, index) for index in range(9)]


@pytest.mark.parametrize(
    ("kind", "vocab_size", "gamma", "rule"),
    [
        *(("near-equal", 50, 4, rule) for rule in RULES),
        ("two-point", 2, 1, "greedy_match"),
        ("zipf", 7, 2, "lenience:lenience=0.5"),
        *(("dirichlet", 1000, 7, rule) for rule in RULES[:2]),
    ],
)
def test_the_counts_are_those_of_the_cpu(kind, vocab_size, gamma, rule):
    assert_same(*both(rule, kind, vocab_size, gamma, HIGH_WORD - 20, 40))


def test_every_rule_with_device_code():
    having = [
        name for name in specsim.rules.names() if specsim.rules.get(name).fixed_pair.kernel in steps.STEPS
    ]
    assert len(having) > 15
    for name in having:
        assert_same(*both(name, "dirichlet", 12, 3, 0, 24))


def test_a_draft_of_the_most_probable_tokens():
    how = {"rule": "greedy_match", "gamma": chain(3, "top"), "steps": 50, "rng": 1}
    assert specsim.simulate([0.3, 0.5, 0.2], [0.2, 0.5, 0.3], **how, device="cuda").lengths[3] == 50


right_words, right_uniforms, right_mass = steps.fill_words, steps.fill_uniforms, steps.residual_mass


def first_twice(k0, k1, purpose, step, out):
    right_uniforms(k0, k1, purpose, step, out)
    out[1] = out[0]


def other_high_word(k0, k1, purpose, step, out):
    right_words(k0, k1, purpose, step + HIGH_WORD, out)


def same_words(k0, k1, purpose, step, out):
    out[:] = 5


def other_coin(table, u):
    """`steps.alias_draw` with the complement of the coin."""
    column, coin = divmod(u * table.size, 1.0)
    threshold, alias = divmod(int(table[int(column)]), 2**32)
    return int(column) if (1.0 - coin) * 2**31 < threshold else alias


def half_mass(pair, b, d):
    return right_mass(pair, b, d) / 2


@pytest.mark.parametrize(
    ("module", "name", "wrong", "rules"),
    [
        (steps, "fill_words", other_high_word, INTEGERS),
        (steps, "fill_words", same_words, INTEGERS),
        (steps, "STEP", steps.REST, INTEGERS),
        (steps, "fill_uniforms", first_twice, ["block"]),
        (steps, "VERIFY", steps.DRAFT, ["block"]),
        (steps, "alias_draw", other_coin, ["block"]),
        (steps, "residual_mass", half_mass, ["block"]),
    ],
    ids=lambda value: getattr(value, "__name__", None) or (value if isinstance(value, str) else ""),
)
def test_a_mistake_in_device_code_changes_the_counts(
    monkeypatch, simulated, full, module, name, wrong, rules
):
    monkeypatch.setattr(module, name, wrong)
    for rule in rules if full else rules[:2]:
        with pytest.raises(AssertionError, match="Mismatched"):
            assert_same(*both(rule, "zipf", 7, 4, 0, 40))


def compiled(*names):
    """What `tests/helpers/machine_code.py` prints: of each step, and of the row kernels of these rules."""
    try:
        for library in ("nvvm", "nvrtc", "nvJitLink"):
            load_nvidia_dynamic_lib(library)
    except DynamicLibNotFoundError:
        pytest.skip("needs numba-cuda's compiler: pip install '.[cuda]'")
    program = Path(__file__).parents[1] / "helpers/machine_code.py"
    variables = os.environ | {"NUMBA_ENABLE_CUDASIM": "0"}
    ran = subprocess.run([sys.executable, program, *names], env=variables, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


@pytest.fixture(scope="module")
def machine_code():
    return compiled("block", "gumbel", "k_seq")


def test_a_step_in_integers_has_no_floats(machine_code):
    assert not any(machine_code["integer_step"].values())


def test_the_compiled_code_rounds_every_product(machine_code):
    counts = machine_code["block_step"]["as it is"]
    assert counts["DMUL"] > 10
    assert counts["DADD"] > 0
    assert "DFMA" not in counts


def test_without_the_option_products_are_fused(machine_code):
    assert machine_code["block_step"]["fused"]["DFMA"] > 0


def test_row_kernels_are_not_fused(machine_code):
    """Those that take logarithms and powers, from specsim.core._elementary, among them."""
    assert not any(machine_code[name] for name in ("block", "gumbel", "k_seq"))


@pytest.mark.slow
def test_no_row_kernel_that_is_taken_is_fused():
    found = {name: fused for name, fused in compiled().items() if not isinstance(fused, dict)}
    assert len(found) > 35
    assert not any(found.values())


P, Q = synthetic_pair("zipf", 20, 0.7, rng=0)
RUN = {"gamma": 3, "rule": "block", "steps": 200, "rng": 5}


@pytest.fixture(scope="module")
def on_cpu():
    return specsim.simulate(P, Q, **RUN)


def test_a_result_is_that_of_the_cpu_and_says_where_it_is_from(on_cpu, tmp_path):
    found = specsim.simulate(P, Q, **RUN, device="cuda")
    assert found == on_cpu
    assert ("simulated GPU" in found.provenance.machine) == SIMULATED
    assert found.provenance.machine.startswith(f"{on_cpu.provenance.machine}, ")
    found.save(tmp_path / "run.json")
    assert specsim.rerun(tmp_path / "run.json", P, Q) == found
    assert specsim.rerun(on_cpu, device="cuda") == found


def interrupt_at(steps):
    def progress(done, total):
        if done >= steps:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize(("first", "then"), [("cuda", "cpu"), ("cuda", "cuda")])
def test_a_run_goes_on_from_its_checkpoint_on_either(on_cpu, tmp_path, first, then):
    how = RUN | {"checkpoint": tmp_path / "run.part"}
    begun = specsim.simulate(P, Q, **how, device=first, progress=interrupt_at(64))
    assert begun.interrupted
    assert begun.steps == 64  # two launches
    assert specsim.simulate(P, Q, **how, device=then) == on_cpu


@pytest.mark.parametrize("devices", [("cuda", "cuda"), ("cpu", "cuda")])
def test_shards_of_both_add_up(on_cpu, tmp_path, devices):
    for i, device in enumerate(devices):
        specsim.simulate(P, Q, **RUN, device=device, shard=(i, 2), checkpoint=tmp_path / f"{i}.part")
    assert specsim.merge([tmp_path / "0.part", tmp_path / "1.part"]) == on_cpu


def test_the_command_line():
    lengths = []
    for more in ([], ["--device", "cuda"]):
        ran = commands.run("simulate", "zipf:vocab_size=20", "--steps", "100", "--seed", "1", "--json", *more)
        lengths.append(json.loads(ran.out)["lengths"])
    assert sum(lengths[0]) == 100
    assert lengths[0] == lengths[1]


@refused(
    ({"device": "tpu"}, "device: 'tpu' is unknown; give 'cpu' or 'cuda'"),
    (
        {"device": "cuda", "rule": "gumbel"},
        "no code for the rule gumbel, but for block, .*, standard, .*leave device out",
    ),
    ({"device": "cuda", "executor": "processes"}, "executor: one GPU counts all steps.*shard"),
    ({"device": "cuda", "threads": 2}, "threads: has no effect"),
)
def test_what_the_device_does_not_do(given):
    specsim.simulate(P, Q, steps=10, rng=1, **given)


def test_too_little_memory_is_noticed_beforehand(monkeypatch):
    monkeypatch.setattr(counting, "current_device", lambda: ("small GPU", 1, 2**10))
    with pytest.raises(
        ValueError, match=r"device: .* MiB for V = 20 and γ = 3, and the small GPU has 0 MiB free.*leave"
    ):
        specsim.simulate(P, Q, **RUN, device="cuda")


def test_a_library_that_is_missing_is_asked_for_and_small_launches_are_fine():
    with (
        pytest.raises(
            ValueError, match=r"not installed \(no libnvvm\): pip install 'specsim-decoding\[cuda\]'"
        ),
        explained(),
    ):
        raise DynamicLibNotFoundError("no\nlibnvvm")
    with explained():
        warnings.warn(NumbaPerformanceWarning("low occupancy"), stacklevel=1)


def test_what_numpy_no_longer_has_is_a_matter_of_versions_and_what_is_not_of_numpy_is_raised():
    with pytest.raises(ValueError, match=r"cannot use NumPy .*\[cuda\]"), explained():
        np.a_name_of_before  # noqa: B018
    with pytest.raises(AttributeError, match="another"), explained():
        warnings.another  # noqa: B018


def fails_with(code, **environment):
    code = f"{code}\nfrom specsim import simulate\nsimulate([0.5, 0.5], [0.5, 0.5], device='cuda')"
    variables = os.environ | {"NUMBA_ENABLE_CUDASIM": "0", **environment}
    return subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True).stderr


def test_without_a_gpu_the_cpu_is_named():
    error = fails_with("", CUDA_VISIBLE_DEVICES="")
    assert "device: 'cuda' cannot be used here (" in error
    assert "leave device out, to count on the CPU" in error


@pytest.mark.slow
def test_without_numba_cuda_the_extra_is_named():
    error = fails_with("import sys; sys.modules['numba_cuda'] = None")
    assert "is missing; pip install 'specsim-decoding[cuda]', in a clone '.[cuda]'" in error
