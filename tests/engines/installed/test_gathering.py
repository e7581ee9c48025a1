"""Rows gathered by torch and JAX where the bank is: here on the CPU, which takes the same way as a GPU."""

from __future__ import annotations

import numpy as np
import on_devices
import pytest

from specsim import audit
from specsim.adapters._contract import DTYPES, Declared
from specsim.auditing._results.audit import Verdict
from specsim.auditing._verifier import arrays
from specsim.auditing._verifier.arrays import library_of
from specsim.core._types import dtype_of

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")

CASES = ["asymmetric", "own rows", "Markov chain", "n-gram pair", "shapes, few ids"]


def of(verifier, cases, **more):
    return audit(verifier, "smoke", rng=1, cases=cases, diagnose=False, **more)


def counts(result):
    return [case.to_dict() for case in result.cases]


@pytest.mark.parametrize("name", ["on_devices:torch", on_devices.torch], ids=["child", "here"])
def test_torch_has_the_counts_of_numpy(name):
    assert counts(of(name, CASES)) == counts(of(on_devices.numpy, CASES))


@pytest.mark.parametrize("most", [arrays.GATHERED_BY_NUMPY, 0], ids=["by NumPy", "by JAX"])
def test_jax_has_the_counts_of_numpy(most, monkeypatch):
    monkeypatch.setattr(arrays, "GATHERED_BY_NUMPY", most)
    cases = CASES[:-1]  # each shape is compiled
    assert counts(of(on_devices.jax, cases)) == counts(of(on_devices.numpy_float32, cases))


def test_a_wrong_verifier_of_tensors_is_found():
    assert of("on_devices:torch_wrong", ["asymmetric", "own rows"]).verdict is Verdict.BIASED


@pytest.mark.parametrize("case", ["asymmetric", "n-gram pair"])
def test_a_tensor_that_is_written_to_is_noticed(case):
    found = of("on_devices:torch_alters", [case])
    assert found.verdict is Verdict.BROKEN
    assert "altered its input p" in str(found.to_dict())


@pytest.mark.parametrize("library", ["torch", "jax"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_a_bank_are_those_that_numpy_takes(library, dtype, monkeypatch):
    monkeypatch.setattr(arrays, "GATHERED_BY_NUMPY", 0)
    rows = (np.random.default_rng(1).integers(2**7, size=(4, 50)) / 2**7).astype(dtype_of(dtype))
    places = np.random.default_rng(2).integers(4, size=(9, 3)).astype(np.int32)
    theirs = library_of(Declared(arrays=library, device="cpu"))
    bank = theirs.bank(rows)
    found = theirs.take(bank, places)
    assert tuple(found.shape) == (9, 3, 50)
    if dtype != "float64" or library == "torch":  # JAX has float32 in its place
        assert str(found.dtype).removeprefix("torch.") == dtype
    expected = rows.astype(np.float64).take(places, axis=0)
    assert np.array_equal(np.asarray(found.tolist()), expected)
    if theirs.writable:
        found[:] = 0
        assert np.array_equal(np.asarray(theirs.take(bank, places).tolist()), expected)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_a_build_without_the_device_is_an_error(library):
    with pytest.raises(ValueError, match=f"device: {library} cannot use 'cuda' here .* to audit on the CPU"):
        audit(f"on_devices:{library}", "smoke", rng=1, device="cuda")
    with pytest.raises(ValueError, match="device: torch cannot use 'quantum' here"):
        audit("on_devices:torch", "smoke", rng=1, device="quantum")
