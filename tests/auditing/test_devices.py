"""Verifiers of arrays on another device than the CPU, with a stand-in for CuPy, whose GPUs are simulated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import on_devices
import pytest
from commands import run
from refused import refused, refuses

from specsim import audit
from specsim.adapters import declares
from specsim.adapters._contract import Declared, declared
from specsim.auditing._cases import shapes
from specsim.auditing._cases.battery import LEVELS
from specsim.auditing._checks.subjects import VerifierSubject
from specsim.auditing._report.text import replay
from specsim.auditing._results.audit import Verdict
from specsim.auditing._runner import replay_step
from specsim.auditing._schedule import CaseRun, run_case
from specsim.auditing._verifier.arrays import library_of
from specsim.auditing._verifier.local import Local
from specsim.cli import _audit as command

ON_DEVICE = shapes._ON_DEVICE.name
#: Of one pair, of a bank of shifts, of a bank by token, of whole rows, of banks of changing shape.
CASES = ["asymmetric", "own rows", "Markov chain", "n-gram pair", "shapes, few ids"]
FEW_CASES = [*CASES, "two-point", ON_DEVICE]

pytestmark = pytest.mark.usefixtures("few_cases_in_module")


@pytest.fixture(autouse=True)
def simulated(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "helpers/simulated"))


@pytest.fixture
def small(monkeypatch):
    """The case of large calls, with fewer rows and tokens."""
    small = replace(shapes._ON_DEVICE, vocab_sizes=(300,), sizes=((64, 2), (63, 1), (65, 1)))
    monkeypatch.setattr(shapes, "_ON_DEVICE", small)


def counts(result):
    """All that was counted and computed."""
    return [case.to_dict() for case in result.cases]


@pytest.fixture(scope="module")
def on_the_cpu(few_cases_in_module):
    return audit(on_devices.numpy, "smoke", rng=1, cases=CASES, diagnose=False)


def text(result):
    return "; ".join(finding.text for case in result.cases for finding in case.findings)


@pytest.mark.parametrize(
    "name", ["on_devices:cupy", pytest.param(on_devices.cupy, marks=pytest.mark.slow)], ids=["child", "here"]
)
def test_a_verifier_on_a_device_has_the_counts_that_it_has_on_the_cpu(name, on_the_cpu):
    there = audit(name, "smoke", rng=1, cases=CASES, diagnose=False)
    assert counts(there) == counts(on_the_cpu)
    assert not text(there)
    assert there.device == "cuda"
    assert there.provenance.machine.endswith(", Simulated GPU 0")
    assert on_the_cpu.device == "cpu"
    assert "GPU" not in on_the_cpu.provenance.machine


def test_a_right_verifier_passes_the_case_of_large_calls(small):
    (_, case) = audit(on_devices.cupy, "smoke", rng=1, cases=[ON_DEVICE], diagnose=False).cases
    assert case.steps == case.planned == LEVELS["smoke"].verifier
    assert not case.findings


@pytest.mark.parametrize(
    ("name", "case", "verdict", "said"),
    [
        ("cupy_wrong", "asymmetric", Verdict.BIASED, ""),
        ("cupy_wrong", ON_DEVICE, Verdict.BIASED, ""),
        ("cupy_alters", "asymmetric", Verdict.BROKEN, "altered its input p"),
        ("cupy_alters", "n-gram pair", Verdict.BROKEN, "altered its input p"),
    ],
)
def test_a_verifier_on_a_device_that_is_wrong_or_writes_to_its_rows_is_found(
    name, case, verdict, said, small
):
    found = audit(getattr(on_devices, name), "smoke", rng=1, cases=[case], diagnose=False)
    assert found.verdict is verdict
    assert said in text(found)


def test_the_device_is_the_one_that_is_asked_for(monkeypatch, small):
    monkeypatch.setenv("GPUS", "2")
    found = audit("on_devices:cupy", "smoke", rng=1, device="cuda:1", cases=["asymmetric"], diagnose=False)
    assert found.device == "cuda:1"
    assert replay(found) == "specsim audit on_devices:cupy --device cuda:1 --level smoke --seed 1"
    assert found.provenance.machine.endswith(", Simulated GPU 1")


def test_only_other_devices_have_calls_of_4096_rows_over_131072_ids():
    cpu, gpu = (
        {case.name: case for case in shapes.shape_cases(Declared(arrays="torch", device=device))}
        for device in ("cpu", "cuda")
    )
    assert set(gpu) - set(cpu) == {ON_DEVICE}
    assert declared(declares(arrays="cupy")(on_devices.of("cupy"))).device == "cuda"
    assert all(gpu[name] == cpu[name] for name in cpu)
    case = gpu[ON_DEVICE]
    sizes = {(block.rows, block.gamma, block.vocab_size) for block in case.round((1, 2), 0)}
    assert sizes == {(rows, 1, 131_072) for rows in (4095, 4096, 4097)}
    assert case.largest_call == 4097 * 3 * 131_072 * 8
    (fewer,) = (
        case
        for case in shapes.shape_cases(Declared(arrays="torch", device="cuda", batch=100))
        if case.name == ON_DEVICE
    )
    assert {block.rows for block in fewer.round((1, 2), 0)} == {100}


def test_a_write_does_not_reach_the_bank(small):
    """Rows of another call are those of the bank, whatever was written to those before."""
    seen = []

    def keeps_and_writes(draft_tokens, p, q):
        seen.append(on_devices.here(p))
        p[:] = 0

    for act in (None, keeps_and_writes):
        verify = on_devices.of("cupy", act=act or (lambda _, p, __: seen.append(on_devices.here(p))))
        subject = VerifierSubject("own", Local(verify, declared(verify)))
        names = [case.name for case in subject.cases]
        run_case(subject, CaseRun(subject.plan(names.index("shapes, few ids"), "smoke"), 1, 1e-9))
    half = len(seen) // 2
    assert half > 100
    assert all(np.array_equal(*pair) for pair in zip(seen[:half], seen[half:], strict=True))


@refused(
    (on_devices.numpy, "cuda", "which are on the CPU; declare arrays='torch', 'jax' or 'cupy', or leave device out"),
    ("verifiers:samples", "cuda", "device: 'cuda' for a decoder, which gets models and no arrays; leave"),
    ("standard", "cuda", "device: 'cuda' for a built-in rule, .* specsim.simulate counts its steps on a GPU"),
    (on_devices.cupy, "cpu", "device: 'cpu' is not a device of CuPy; leave device out"),
    ("on_devices:cupy", "cuda:7", "cupy cannot use 'cuda:7' here .*invalid device.* to audit on the CPU"),
)  # fmt: skip
def test_a_device_that_cannot_be_used_is_an_error_with_the_remedy(verifier, device):
    audit(verifier, "smoke", rng=1, device=device)


def test_no_gpu_and_rows_that_do_not_fit_are_an_error_before_the_audit_begins(monkeypatch):
    monkeypatch.setenv("GPUS", "0")
    refuses("cupy cannot use 'cuda' here", audit, on_devices.cupy, "smoke", rng=1)
    monkeypatch.delenv("GPUS")
    monkeypatch.setenv("FREE", str(2**33))
    said = r"'shapes, 4 096 rows' has 12.0 GiB of rows, more than a quarter of the 8.0 GiB free on the Simulated GPU 0"
    refuses(f"{said}.*smaller batch.*--case.*to audit on the CPU", audit, on_devices.cupy, "smoke", rng=1)
    audit(on_devices.cupy, "smoke", rng=1, cases=["two-point"], diagnose=False)


def test_rows_that_do_not_fit_beside_what_the_verifier_keeps_are_a_finding(monkeypatch):
    library = library_of(Declared(arrays="cupy"))

    def full(*_):
        raise MemoryError("out of memory allocating 6,442,450,944 bytes")

    monkeypatch.setattr(type(library), "take", full)
    found = audit(on_devices.cupy, "smoke", rng=1, cases=["asymmetric"], diagnose=False)
    assert found.verdict is Verdict.BROKEN
    assert "could not be handed a call of 1 rows (MemoryError: out of memory" in text(found)


def test_workers_have_the_declared_device_alone():
    with pytest.raises(ValueError, match="device: workers put arrays where the verifier declares"):
        audit("on_devices:cupy", "smoke", rng=1, device="cuda", executor="processes")


def test_the_command_takes_a_device(monkeypatch):
    with pytest.raises(ValueError, match="cupy cannot use 'cuda:3' here"):
        command.audit("on_devices:cupy", device="cuda:3", level="smoke", seed=1)
    for more in (("--against", "standard"), ("--shard", "0/2")):
        code, _, err = run("audit", "on_devices:cupy", "--device", "cuda", *more)
        assert (code, f"--device has no effect with {more[0]}" in err) == (2, True)


def test_a_step_of_a_device_is_replayed_there(small):
    assert "emitted" in replay_step("on_devices:cupy", ON_DEVICE, 70, "smoke", rng=1)
    refuses("is not a case of the audit", replay_step, "on_devices:numpy", ON_DEVICE, 70, "smoke", rng=1)
