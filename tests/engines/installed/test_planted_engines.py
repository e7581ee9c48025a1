"""Planted checkpoints in real engines: their log-probabilities are those of the law, and their tokenizers have
its texts. `make test-engines` installs the engines; without them these tests are skipped."""

import json

import numpy as np
import pytest

from specsim import plant
from specsim.engines import check

#: Log-probabilities that engines return are float32.
FLOAT32 = 4e-6
PAIRS = {
    "order 2": {"order": 2},
    "pages": {"offsets": (1, 17, 64), "vocab_size": 4, "openers": 3},
    "additive": {"order": 2, "vocab_size": 300},
    "window": {"architecture": "sliding-window", "offsets": (1, 16), "vocab_size": 6},
    "experts": {"architecture": "moe", "vocab_size": 2},
    "experts of many words": {"architecture": "moe", "offsets": (1, 7), "vocab_size": 300, "openers": 3},
    "convolution": {"architecture": "short-conv", "offsets": (1, 3, 17), "vocab_size": 4, "openers": 3},
    "state": {"architecture": "gated-delta", "vocab_size": 12},
    "state and a head": {"architecture": "gated-delta", "heads": "mtp"},
    "three layers and a head": {"heads": "eagle3"},
    "a head": {"heads": "mtp"},
    "a token kept": {"architecture": "mamba2", "vocab_size": 12},
    "state of many words": {"architecture": "gated-delta", "vocab_size": 300},
    "state and attention": {"architecture": "hybrid", "offsets": (1, 17), "vocab_size": 4, "openers": 3},
}


@pytest.fixture(scope="module", params=PAIRS)
def planted(request, tmp_path_factory):
    pytest.importorskip("gguf")
    folder = tmp_path_factory.mktemp("planted") / "pair"
    formats = ("hf",) if request.param in ("window", "a head") else ("hf", "gguf")  # llama.cpp has no such
    return plant(folder, formats=formats, context=256, rng=1, **PAIRS[request.param])


def text_of(planted):
    return planted.prompts(1, 200, rng=2)[0].tolist()


def expected_rows(planted, text):
    """log P of each token with a law, and which of its ids may come."""
    start = max(1, planted.target.start)
    rows = planted.target.log_rows(planted.target.contexts(text, start))
    return start, rows, rows > -np.inf


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_transformers_have_the_law_in_every_dtype(planted, dtype):
    pytest.importorskip("transformers")
    alone = dtype == "float32" and planted.architecture != "llama"  # which is what they are checked in
    found = check(planted.folder, dtypes=[] if alone else [dtype], rng=0)
    assert found.passed
    assert found.tolerance(dtype) < 2 * FLOAT32
    by = {"transformers": {"target", "draft"}, "specsim": {"target.gguf", "draft.gguf"}}
    for name in by if "gguf" in planted.formats and planted.architecture == "llama" else ["transformers"]:
        assert {one.checkpoint for one in found.deviations if one.computed_by == name} >= by[name]


def test_transformers_are_held_to_the_law_of_their_checkpoint(planted):
    """The control: the draft's weights do not have the target's law."""
    torch, transformers = map(pytest.importorskip, ("torch", "transformers"))
    text = text_of(planted)
    start, rows, comes = expected_rows(planted, text)
    for which, agrees in (("target", True), ("draft", False)):
        model = transformers.AutoModelForCausalLM.from_pretrained(planted.checkpoint(which, "hf"))
        with torch.no_grad():
            logits = model(torch.tensor([text])).logits[0, start - 1 : -1]
        logs = torch.log_softmax(logits, dim=-1).numpy()
        assert (np.abs(logs[comes] - rows[comes]).max() < FLOAT32) == agrees


def test_the_tokenizer_of_transformers(planted):
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(planted.checkpoint("target", "hf"))
    text = text_of(planted)
    assert tokenizer.encode(planted.decode(text)) == text
    assert tokenizer.decode(text) == planted.decode(text)
    assert tokenizer.eos_token_id == planted.eos
    assert len(tokenizer) == planted.target.vocab_size


def completion(server, prompt, **options):
    request = {"prompt": prompt, "max_tokens": 60, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    answer = server.handle_completions(request | options)
    return answer if isinstance(answer, dict) else json.loads(answer)


def test_llama_cpp_has_the_law(planted):
    xllamacpp = pytest.importorskip("xllamacpp")
    if "gguf" not in planted.formats:
        pytest.skip("llama.cpp does not load this architecture")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(planted.checkpoint("target", "gguf"))
    parameters.n_ctx = planted.context
    server = xllamacpp.Server(parameters)
    prompt = planted.prompts(1, 100, rng=3)[0].tolist()
    answer = completion(server, prompt, n_probs=min(4, planted.target.words), logprobs=1, seed=5)
    tokens = planted.encode(answer["choices"][0]["text"])
    listed = answer["choices"][0]["logprobs"]["content"]
    assert [place["id"] for place in listed] == tokens
    rows = planted.target.log_rows(planted.target.contexts([*prompt, *tokens], len(prompt)))
    other = planted.draft.log_rows(planted.draft.contexts([*prompt, *tokens], len(prompt)))
    for law, agrees in ((rows, True), (other, False)):  # the draft's law is the control
        deviations = [
            abs(one["logprob"] - row[one["id"]])
            for place, row in zip(listed, law, strict=True)
            for one in (place, *place["top_logprobs"])
        ]
        assert (max(deviations) < FLOAT32) == agrees
    by_text = completion(server, planted.decode(prompt), max_tokens=1)
    assert by_text["usage"]["prompt_tokens"] == len(prompt)
    assert by_text["usage"]["prompt_tokens_details"]["cached_tokens"] >= len(prompt) - 4  # the same tokens


def test_mlx_has_the_law(planted):
    mx, mlx_lm = map(pytest.importorskip, ("mlx.core", "mlx_lm"))
    if planted.architecture != "llama" or planted.heads == "mtp":
        pytest.skip("audits take this architecture to other engines")
    model, tokenizer = mlx_lm.load(str(planted.checkpoint("target", "hf")))
    text = text_of(planted)
    assert tokenizer.encode(planted.decode(text)) == text
    start, rows, comes = expected_rows(planted, text)
    for dtype in (mx.float32, mx.float16, mx.bfloat16):
        model.set_dtype(dtype)
        logits = model(mx.array([text]))[0].astype(mx.float32)
        logs = np.array(logits - mx.logsumexp(logits, axis=-1, keepdims=True))[start - 1 : -1]
        assert np.abs(logs[comes] - rows[comes]).max() < FLOAT32
