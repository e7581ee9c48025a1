"""Adapters without their engines: what is missing is named."""

import importlib.util

import numpy as np
import pytest
from engine_laws import markov_pair
from refused import refuses

from specsim import adapters
from specsim.adapters import EngineMissing
from specsim.adapters._engines import engine_function, last_rows, made

#: What each adapter imports; None where it reads a clone, whose folder it has to be told.
PACKAGES = {
    "flashinfer": "flashinfer", "hf": "transformers", "hf:generate": "transformers", "lmdeploy": "lmdeploy",
    "mlx-lm": "mlx_lm", "sglang": "sgl_kernel", "sglang:block": "sglang", "sglang:chain": "sglang",
    "sglang:dspark": "sglang", "sglang:dspark-triton": "sglang", "sglang:uno": "sglang",
    "tensorrt-llm": "tensorrt_llm", "tensorrt-llm:tree": "tensorrt_llm", "tpu-inference": "tpu_inference",
    "vllm": "vllm", "vllm-ascend": "vllm_ascend", "vllm-ascend:block": None, "vllm-ascend:triton": None,
    "vllm-ascend:triton-block": None, "vllm-ascend:v2": None, "vllm-ascend:whole": None, "vllm-cpu": "vllm",
    "vllm2": "vllm", "vllm2:block": "vllm",
}  # fmt: skip


def test_every_adapter_is_listed_with_what_it_is():
    assert adapters.names() == sorted(adapters.names()) == list(PACKAGES)
    assert all(description for _, description in adapters.ENGINES.values())


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_engine_is_named_with_the_way_to_get_it(name):
    if PACKAGES[name] and importlib.util.find_spec(PACKAGES[name]):
        pytest.skip("installed")
    refuses(r"(?s)is not there \(.*\); .*install", adapters.get, name, error=EngineMissing)


def test_a_missing_library_is_named():
    def make(**values):
        import no_such_library  # noqa: F401

    with pytest.raises(EngineMissing, match=r"^theirs is not there \(.*\); pip install no_such_library$"):
        made("theirs", make)


def test_a_function_that_moved_is_named_with_the_version():
    with pytest.raises(EngineMissing, match=r"^numpy.random:verify is not there in version \d"):
        engine_function("numpy.random:verify", "pip install numpy")


def test_rows_of_what_a_cache_holds():
    target, _ = markov_pair(order=2)
    assert np.array_equal(last_rows(target, [0, 1, 2, 3], 3), target.rows([[0, 1], [1, 2], [2, 3]]))
    assert np.array_equal(last_rows(target, [3, 1], 2), [np.full(4, 0.25), target.row([3, 1])])
    assert np.array_equal(last_rows(target, [3], 1), [np.full(4, 0.25)])
