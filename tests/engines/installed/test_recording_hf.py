"""Recording from Hugging Face transformers, end to end: a small pair, trained on the standard library of
Python."""

import os
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from commands import run, says

import specsim
from specsim import rules
from specsim.decoding import record_hf
from specsim.decoding._recording.huggingface import CachedModel, check_tokenizers, load, trajectory
from specsim.planning._measured import plan_recorded
from specsim.traces import summarise

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
torch.set_num_threads(1)

VOCAB, CONTEXT = 320, 128
PROMPTS = ["import os\n", "def read(self, path):\n", "class Error(Exception):\n", "    return [x for x in"]


def library_text(size):
    folder = Path(os.__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py"))[:60]]
    return "".join(texts)[:size]


def train(model, ids, steps):
    """Ordinary next-token training, a minute of it at most."""
    generator = torch.Generator().manual_seed(0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        starts = torch.randint(len(ids) - 65, (16,), generator=generator)
        batch = torch.stack([ids[start : start + 64] for start in starts.tolist()])
        loss = model(input_ids=batch, labels=batch).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return loss.item()


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Folders of a target and of a draft, with one tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    folder, text = tmp_path_factory.mktemp("models"), library_text(400_000)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=["<end>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator([text], trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")
    ids = torch.tensor(fast(text)["input_ids"])
    torch.manual_seed(0)
    for name, width, layers, steps in (("target", 64, 2, 160), ("draft", 32, 1, 80)):
        config = transformers.GPT2Config(
            vocab_size=VOCAB, n_positions=CONTEXT, n_embd=width, n_layer=layers, n_head=2, bos_token_id=0,
            eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )  # fmt: skip
        model = transformers.GPT2LMHeadModel(config)
        assert train(model, ids, steps) < np.log(VOCAB) - 1.0
        model.save_pretrained(folder / name)
        fast.save_pretrained(folder / name)
    return folder / "target", folder / "draft"


@pytest.fixture(scope="module")
def recorded(pair, tmp_path_factory):
    folder = tmp_path_factory.mktemp("recorded") / "trace"
    seen = []
    how = {"gamma": 3, "max_new_tokens": 60, "temperature": 0.9, "top_k": 40, "rng": 1}
    trace = record_hf(folder, *pair, PROMPTS * 5, **how, progress=lambda *at: seen.append(at))
    assert seen[-1] == (len(PROMPTS) * 5,) * 2
    return trace


def test_a_recording_is_a_trace_whose_flags_agree_with_its_rows(recorded):
    assert recorded.complete
    assert all(shard.ok for shard in recorded.verify())
    summary = summarise(recorded)
    assert summary.num_steps > 300
    assert 0.2 < summary.alpha_verified < 1.0, "the draft has learnt something, and is not the target"
    error = summary.standard_errors["alpha_verified"] + summary.standard_errors["expected_verified"]
    assert abs(summary.alpha_verified - summary.expected_verified) < 4.0 * error
    assert recorded.provenance["temperature"] == 0.9


def test_the_seconds_of_all_passes_lie_beside_a_recording(recorded):
    lines = [line.split(",") for line in (recorded.path / "seconds.csv").read_text().splitlines()[1:]]
    count = Counter((model, int(tokens)) for _, model, tokens, _ in lines)
    texts, steps = 5 * len(PROMPTS), recorded.num_steps
    assert sum(n for (model, _), n in count.items() if model == "draft") == 4 * steps
    assert count["draft", 1] >= 4 * steps - texts  # all but those over prompts
    assert count["target", 4] >= steps - texts
    assert count["target", 1] == count["target", 2] == count["target", 3] >= texts
    assert all(float(seconds) > 0.0 for *_, seconds in lines)
    assert plan_recorded(recorded).formula


def test_a_wrong_rule_is_seen_in_its_recording(pair, tmp_path):
    how = {"gamma": 3, "max_new_tokens": 60, "rule": "lenience:lenience=0.3", "rng": 1}
    summary = summarise(record_hf(tmp_path / "trace", *pair, PROMPTS * 5, **how))
    error = summary.standard_errors["alpha_verified"] + summary.standard_errors["expected_verified"]
    assert abs(summary.alpha_verified - summary.expected_verified) > 4.0 * error


def test_the_same_seed_records_the_same(pair, tmp_path):
    one, two, other = (
        record_hf(tmp_path / name, *pair, PROMPTS[:2], max_new_tokens=20, rng=seed)
        for name, seed in (("one", 5), ("two", 5), ("other", 6))
    )
    tokens = [trace.steps(np.arange(trace.num_steps))[0].tolist() for trace in (one, two, other)]
    assert tokens[0] == tokens[1] != tokens[2]
    assert [shard.sha256 for shard in one.shards] == [shard.sha256 for shard in two.shards]  # without times


def test_texts_end_at_their_length_and_where_the_context_is_full(pair, tmp_path):
    (big, tokenizer), (small, _) = load(pair[0]), load(pair[1])
    models = [CachedModel(model, name, {}, VOCAB) for model, name in ((big, "target"), (small, "draft"))]
    text, gamma = tokenizer(PROMPTS[0])["input_ids"], 4
    for most, room in ((12, CONTEXT), (1000, CONTEXT), (1000, 40)):
        steps = list(trajectory(*models, [text], rules.get("standard"), gamma, most, frozenset(), room, 1))
        tokens = len(steps[-1].before) + len(steps[-1].emitted)
        assert all(len(step.before) + gamma <= room for step in steps)
        assert tokens >= min(len(text) + most, room - gamma)
    ends = frozenset([steps[1].emitted[-1]])
    found = list(trajectory(*models, [text], rules.get("standard"), gamma, 1000, ends, CONTEXT, 1))
    assert ends & set(found[-1].emitted)
    assert not any(ends & set(step.emitted) for step in found[:-1])


def test_truncated_rows_keep_the_drafted_token(pair, tmp_path):
    whole = record_hf(tmp_path / "whole", *pair, PROMPTS[:2], max_new_tokens=30, rng=2)
    cut = record_hf(tmp_path / "cut", *pair, PROMPTS[:2], max_new_tokens=30, top=16, rng=2)
    assert cut.num_steps == whole.num_steps
    assert cut.num_bytes < whole.num_bytes / 4
    full, bounds = summarise(whole), summarise(cut)
    assert full.alpha_verified == bounds.alpha_verified
    low, high = bounds.alpha_context
    assert low <= full.alpha_context <= high


# --- what is refused -------------------------------------------------------------------------------------


def other_tokenizer(folder, tmp_path, change):
    copy = Path(shutil.copytree(folder, tmp_path / "other"))
    path = copy / "tokenizer.json"
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")
    return copy


def test_tokenizers_that_differ_are_refused_and_the_check_is_named(pair, tmp_path):
    target, draft = pair
    swapped = other_tokenizer(
        draft,
        tmp_path,
        lambda text: text.replace('"!":', '"?!":').replace('"#":', '"!":').replace('"?!":', '"#":'),
    )
    with pytest.raises(
        ValueError, match=r"tokenizers: their ids differ \('[!#]' is \d+ to the target, and \d+ to the draft"
    ):
        record_hf(tmp_path / "trace", target, swapped, PROMPTS)
    assert not (tmp_path / "trace").exists()


class Letters:
    """A tokenizer of letters, to be made to differ in one thing."""

    def __init__(self, **changes):
        self.letters, self.eos_token_id, self.lower = "abcdefgh ", 8, False
        self.__dict__ |= changes

    def __len__(self):
        return len(self.letters)

    def get_vocab(self):
        return {letter: number for number, letter in enumerate(self.letters)}

    def __call__(self, text):
        text = text.lower() if self.lower else text
        return {"input_ids": [self.letters.index(letter) for letter in text if letter in self.letters]}

    def decode(self, ids):
        return "".join(self.letters[number] for number in ids)


@pytest.mark.parametrize(
    ("other", "check", "message"),
    [
        (Letters(letters="abcdefg "), "size", "9 tokens and 8"),
        (Letters(letters="bacdefgh "), "ids", "'a' is 0 to the target, and 1 to the draft"),
        (Letters(eos_token_id=3), "special tokens", "eos is 8 to the target, and 3 to the draft"),
        (Letters(lower=True), "round trip", "'Hello, world!' becomes"),
    ],
)
def test_each_difference_between_tokenizers_is_named(other, check, message):
    check_tokenizers(Letters(), Letters())
    with pytest.raises(ValueError, match=rf"tokenizers: their {check} differ \({message}"):
        check_tokenizers(Letters(), other)


def test_a_prompt_that_is_too_long_or_empty_is_refused_by_number(pair, tmp_path):
    for prompts, message in (
        (
            ["x = 1", "x = 1\n" * 200],
            rf"prompt 2: \d+ tokens do not fit beside a draft; give at most {CONTEXT - 5}",
        ),
        (["x = 1", ""], "prompt 2: is empty"),
        ([], "prompts: none"),
    ):
        with pytest.raises(ValueError, match=message):
            record_hf(tmp_path / "trace", *pair, prompts)
    assert not (tmp_path / "trace").exists()


def test_logits_that_are_nan_end_the_recording_and_what_was_written_stays(pair, tmp_path):
    spoilt = Path(shutil.copytree(pair[0], tmp_path / "spoilt"))
    model, _ = load(spoilt)
    with torch.no_grad():
        model.transformer.wpe.weight[20:] = float("nan")
    model.save_pretrained(spoilt)
    with pytest.raises(ValueError, match=r"target: logits after token \d+ are not finite"):
        record_hf(tmp_path / "trace", spoilt, pair[1], ["x = 1"], gamma=2, rng=1)
    trace = specsim.open_trace(tmp_path / "trace")
    assert not trace.complete
    assert trace.num_steps > 0
    assert all(shard.ok for shard in trace.verify())


def test_what_cannot_be_loaded_is_named(pair, tmp_path):
    with pytest.raises(ValueError, match="nowhere: holds no causal language model"):
        record_hf(tmp_path / "trace", tmp_path / "nowhere", pair[1], PROMPTS)


def test_at_the_command_line(pair, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text('{"prompt": "import os"}\n\n{"prompt": "def f("}\n', encoding="utf-8")
    arguments = ["--target", str(pair[0]), "--draft", str(pair[1]), "--prompts", str(prompts)]
    arguments += ["--max-new-tokens", "10", "--seed", "4"]
    says("steps of 2 texts", "trace", "record", tmp_path / "trace", *arguments)
    words = [*arguments[:6], "--draft", str(pair[0]), "--gamma", "2", "--tokens", "20", "--seed", "1"]
    found = run("plan", *words).out
    assert "α: accepted / tested tokens" in found
    assert re.search(r"do not tell|Do not speculate|every other draft", found)
    prompts.write_text('{"text": "import os"}\n', encoding="utf-8")
    says(':1: has no "prompt"; write', "trace", "record", tmp_path / "again", *arguments, code=2)
