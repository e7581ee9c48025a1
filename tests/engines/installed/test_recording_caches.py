"""Recording from Hugging Face models whose caches are of several kinds: sliding windows, states of
convolutions, states that cannot be cut back. All models are tiny, with random weights."""

import numpy as np
import pytest

from specsim import rules
from specsim.decoding import record_hf
from specsim.decoding._recording.huggingface import CachedModel, probabilities, trajectory

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
torch.set_num_threads(1)

VOCAB, WINDOW, GAMMA = 40, 8, 3
PROMPTS = [[5], list(range(1, 20))]  # a token, and more than two windows
PLAIN = {}

#: Initial weights are large: rows are far from uniform, so that many drafts are rejected.
SIZES = {
    "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 96, "initializer_range": 0.3,
    "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip


def gemma2(seed):
    """A layer in two has a window."""
    config = transformers.Gemma2Config(**SIZES, head_dim=16, sliding_window=WINDOW)
    assert set(config.layer_types) == {"sliding_attention", "full_attention"}
    return made(transformers.Gemma2ForCausalLM, config, seed)


def qwen2(seed):
    """All layers have a window."""
    config = transformers.Qwen2Config(
        **SIZES, use_sliding_window=True, sliding_window=WINDOW, max_window_layers=0
    )
    assert set(config.layer_types) == {"sliding_attention"}
    return made(transformers.Qwen2ForCausalLM, config, seed)


def lfm2(seed):
    """A layer keeps the last inputs of a convolution instead of keys and values."""
    config = transformers.Lfm2Config(**SIZES, layer_types=["conv", "full_attention"])
    return made(transformers.Lfm2ForCausalLM, config, seed)


def llama(seed):
    return made(transformers.LlamaForCausalLM, transformers.LlamaConfig(**SIZES), seed)


def gpt2(seed):
    """Its positions are learnt."""
    sizes = {"n_positions": 96, "n_embd": 32, "n_layer": 2, "n_head": 2, "initializer_range": 0.3}
    return made(transformers.GPT2LMHeadModel, transformers.GPT2Config(vocab_size=VOCAB, **sizes), seed)


def made(kind, config, seed):
    torch.manual_seed(seed)
    return kind(config).eval()


def steps_held_to_passes_without_cache(target, draft, gamma=GAMMA, sampling=PLAIN):
    """All steps of some texts, after their rows were compared with those of one pass over all tokens, without
    a cache."""
    models = [
        CachedModel(model, name, sampling, VOCAB) for model, name in ((target, "target"), (draft, "draft"))
    ]
    steps = list(trajectory(*models, PROMPTS, rules.get("standard"), gamma, 40, frozenset(), 96, root=1))
    for step in steps:
        ids = torch.tensor([step.before + step.drafted])
        for model, rows in ((target, step.p), (draft, step.q)):
            with torch.inference_mode():
                logits = model(input_ids=ids, use_cache=False).logits[0, -gamma - 1 :].double().numpy()
            assert np.abs(probabilities(logits, **sampling) - rows).max() < 1e-4
        assert step.emitted[: step.accepted] == step.drafted[: step.accepted]
    return steps


needs_recorded_past = pytest.mark.skipif(
    tuple(int(part) for part in transformers.__version__.split(".")[:2]) < (5, 18),
    reason="layers of full length are used with this version of transformers, and models with other states refused",
)
CUT_BACK = [gemma2, qwen2, pytest.param(lfm2, marks=needs_recorded_past)]


@pytest.mark.parametrize("gamma", [1, 3, 10])
@pytest.mark.parametrize("make", [*CUT_BACK, llama, gpt2])
def test_rows_are_those_without_a_cache_beyond_the_window(make, gamma):
    sampling = PLAIN if gamma == GAMMA else {"temperature": 0.8, "top_p": 0.95}
    steps = steps_held_to_passes_without_cache(make(0), make(1), gamma, sampling)
    lengths = [step.accepted for step in steps]
    assert min(lengths) == 0, "rejections"
    assert max(lengths) > 0
    assert max(len(step.before) for step in steps if step.text == 0) > 3 * WINDOW


@pytest.mark.parametrize("make", CUT_BACK)
def test_a_cache_that_is_never_cut_back_works_too(make):
    """The draft is the target: whole drafts are accepted, nothing is forgotten."""
    model = make(0)
    assert {step.accepted for step in steps_held_to_passes_without_cache(model, model)} == {GAMMA}


@needs_recorded_past
@pytest.mark.parametrize("make", [gemma2, qwen2, lfm2])
@pytest.mark.parametrize("too_few", [1, GAMMA])
def test_a_cache_that_is_cut_back_too_little_would_be_seen(make, too_few, monkeypatch):
    """The state of a window or of a convolution, too: that of the layers with all keys stays right."""
    forget = CachedModel.forget

    def wrong(model, length):
        for layer in model.cache.layers:
            crop = layer.crop
            if not isinstance(layer, transformers.cache_utils.DynamicLayer) or layer.is_sliding:
                layer.crop = lambda removed, crop=crop: crop(min(removed + too_few, 0))
        forget(model, length)
        for layer in model.cache.layers:
            vars(layer).pop("crop", None)

    monkeypatch.setattr(CachedModel, "forget", wrong)
    with pytest.raises(AssertionError):
        steps_held_to_passes_without_cache(make(0), make(1))


# --- what is refused -------------------------------------------------------------------------------------


def mamba(seed):
    config = transformers.MambaConfig(vocab_size=VOCAB, hidden_size=32, num_hidden_layers=2, state_size=8)
    return made(transformers.MambaForCausalLM, config, seed)


def qwen3_next(seed):
    """Its cache is of the usual kind and has `crop`, which leaves the state of linear attention as it is."""
    config = transformers.Qwen3NextConfig(
        **SIZES, head_dim=16, layer_types=["linear_attention", "full_attention"], linear_num_key_heads=2,
        linear_num_value_heads=2, linear_key_head_dim=16, linear_value_head_dim=16, num_experts=2,
        num_experts_per_tok=1, moe_intermediate_size=16, shared_expert_intermediate_size=16,
    )  # fmt: skip
    return made(transformers.Qwen3NextForCausalLM, config, seed)


def bert(seed):
    """Not made to be a decoder: it keeps no cache at all."""
    config = transformers.BertConfig(
        vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
    )
    return made(transformers.BertLMHeadModel, config, seed)


@pytest.mark.parametrize("make", [*CUT_BACK, llama])
def test_caches_that_can_be_cut_back_pass_the_check(make):
    model = CachedModel(make(0), "draft", PLAIN, VOCAB)
    model.check_cache()
    assert (model.cache, model.read) == (None, 0)


@pytest.mark.parametrize("make", [mamba, qwen3_next, bert])
def test_caches_that_cannot_be_cut_back_are_refused(make):
    model = make(0)
    with pytest.raises(
        ValueError, match=rf"draft: {type(model).__name__} keeps no cache that can be cropped"
    ):
        CachedModel(model, "draft", PLAIN, VOCAB).check_cache()


@needs_recorded_past
def test_what_is_refused_would_have_given_wrong_rows():
    with pytest.raises(AssertionError):
        steps_held_to_passes_without_cache(qwen3_next(0), qwen3_next(1))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of a Llama and of a Mamba model, with one tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder = tmp_path_factory.mktemp("models")
    words = {"<end>": 0, "<unknown>": 1} | {f"w{number}": number for number in range(2, VOCAB)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    for make in (llama, mamba):
        make(0).save_pretrained(folder / make.__name__)
        fast.save_pretrained(folder / make.__name__)
    return folder


@pytest.mark.parametrize(("target", "draft"), [("mamba", "llama"), ("llama", "mamba")])
def test_a_model_without_a_cache_is_refused_before_anything_is_written(folders, target, draft, tmp_path):
    side = "target" if target == "mamba" else "draft"
    with pytest.raises(ValueError, match=f"{side}: MambaForCausalLM keeps no cache that can be cropped"):
        record_hf(tmp_path / "trace", folders / target, folders / draft, ["w2 w3"])
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("device", ["bogus", "", "meta", "cuda:97"])
def test_a_device_that_is_not_there_is_said_before_models_are_loaded(device, tmp_path):
    with pytest.raises(ValueError, match=f"device: torch cannot use '{device}'"):
        record_hf(tmp_path / "trace", tmp_path / "nowhere", tmp_path / "nowhere", ["w2"], device=device)
    assert not (tmp_path / "trace").exists()


@pytest.mark.parametrize("gamma", [96, 100])
def test_a_draft_that_is_longer_than_the_context_is_refused(folders, gamma, tmp_path):
    model = folders / "llama"
    with pytest.raises(ValueError, match=f"gamma: {gamma} exceeds the models' context of 96"):
        record_hf(tmp_path / "trace", model, model, ["w2"], gamma=gamma)
    assert not (tmp_path / "trace").exists()
    assert record_hf(tmp_path / "trace", model, model, ["w2"], gamma=95, rng=1).num_steps == 1
