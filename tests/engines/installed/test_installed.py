"""Real engines, run: `make test-engines` installs them; without them these tests are skipped."""

import inspect
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from conftest import FALSE_ALARM
from engine_laws import chain_p_value, decoder_p_value, markov_pair

from specsim import adapters
from specsim.adapters import _hf as hf
from specsim.core.distributions import temperature, top_k, top_p

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # for tensors of a few numbers threads are only in each other's way

# --- transformers: the kernel ----------------------------------------------------------------------------


@pytest.fixture
def utils():
    return pytest.importorskip("transformers.generation.utils")


def test_the_kernel_of_transformers_has_the_targets_law(utils):
    assert chain_p_value(adapters.get("hf"), 8000) > FALSE_ALARM


def test_its_ensemble_weight_is_seen(utils):
    if "assistant_ensemble_weight" not in inspect.signature(utils._speculative_sampling).parameters:
        pytest.skip("this version has no assistant_ensemble_weight")
    ensemble = partial(utils._speculative_sampling, assistant_ensemble_weight=0.6)
    assert chain_p_value(hf.adapt(ensemble), 8000) < FALSE_ALARM


def test_older_signatures_are_handed_what_they_ask(utils):
    def older(
        candidate_input_ids, candidate_logits, candidate_length, new_logits, last_assistant_token_is_eos,
        max_matches,
    ):  # fmt: skip
        assert not last_assistant_token_is_eos
        assert max_matches == candidate_length
        return utils._speculative_sampling(
            candidate_input_ids, candidate_logits, candidate_length, new_logits
        )

    assert chain_p_value(hf.adapt(older), 1000) > FALSE_ALARM


def test_a_residual_that_rounds_to_zero_raises_in_transformers(utils, monkeypatch):
    """The oddity that the adapter names: p ≤ q everywhere, and a rejection."""
    generator, found = torch.Generator().manual_seed(0), 0
    monkeypatch.setattr(torch, "rand_like", lambda like: torch.full_like(like, 1 - 2**-24))
    for _ in range(200):
        q_logits = torch.randn(1, 1, 4, generator=generator)
        p_logits = (q_logits + 1e-7 * torch.rand(4, generator=generator)).repeat(1, 2, 1)
        q, p = q_logits.softmax(-1)[0, 0], p_logits.softmax(-1)[0, 0]
        token = int((p / q).argmin())
        if (p <= q).all() and p[token] / q[token] < 1 - 2**-24:
            found += 1
            with pytest.raises(RuntimeError, match="probability tensor contains"):
                utils._speculative_sampling(torch.tensor([[token]]), q_logits, 1, p_logits)
    assert found


def test_importing_the_adapters_imports_no_engine():
    code = "import sys, specsim.adapters as a; a.names(); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert not {"torch", "transformers", "mlx", "numba"} & set(loaded.stdout.split())


def test_transformers_leaves_torchs_generator_alone(utils):
    before = torch.random.get_rng_state()
    chain_p_value(adapters.get("hf"), 50)
    assert torch.equal(before, torch.random.get_rng_state())


# --- transformers: generate ------------------------------------------------------------------------------

TEXTS = 800


def test_assisted_generation_has_the_targets_law(utils):
    assert decoder_p_value(adapters.get("hf:generate"), TEXTS, order=2) > FALSE_ALARM


def test_assisted_generation_processes_the_targets_rows(utils):
    decode = adapters.get("hf:generate:temperature=0.6,top_k=3,top_p=0.9")
    right, plain = decoder_p_value(
        decode, TEXTS, laws=(lambda row: top_p(top_k(temperature(row, 0.6), 3), 0.9), lambda row: row)
    )
    assert right > FALSE_ALARM > plain


def test_a_cache_that_is_not_cropped_is_seen(utils, monkeypatch):
    import transformers

    monkeypatch.setattr(transformers.DynamicCache, "crop", lambda self, number: None)
    assert decoder_p_value(adapters.get("hf:generate"), 300, order=2) < FALSE_ALARM


def test_assisted_generation_stops_at_eos(utils):
    target, draft = markov_pair()
    decode = adapters.get("hf:generate")
    texts = [decode(target, draft, [0], 8, 1, np.random.default_rng(seed)) for seed in range(40)]
    assert all(1 not in text[:-1] and len(text) <= 8 for text in texts)
    assert all(text[-1] == 1 or len(text) == 8 for text in texts)
    assert any(text[-1] == 1 for text in texts)


def test_the_same_rng_gives_the_same_text(utils):
    target, draft = markov_pair()
    decode = adapters.get("hf:generate")
    one, other = (decode(target, draft, [0], 10, None, np.random.default_rng(4)) for _ in range(2))
    assert one == other


# --- others on the index ---------------------------------------------------------------------------------


def test_mlx_lm_has_the_targets_law(monkeypatch):
    generate = pytest.importorskip("mlx_lm.generate")
    assert decoder_p_value(adapters.get("mlx-lm"), TEXTS, order=2) > FALSE_ALARM
    monkeypatch.setattr(generate, "trim_prompt_cache", lambda cache, number: 0)
    assert decoder_p_value(adapters.get("mlx-lm"), 300, order=2) < FALSE_ALARM
