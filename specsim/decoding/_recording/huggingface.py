"""Record two causal language models of Hugging Face transformers along a speculative trajectory.

Both models keep their KV cache. A step feeds each model the tokens that it has not read, and crops the cache
to the accepted ones. Rows are float64 softmaxes of the logits, after the same temperature, top-k and top-p.
torch and transformers are imported when something is recorded."""

import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specsim import rules
from specsim.core._files import read_table, read_text
from specsim.core._json import read_lines
from specsim.core._progress import ShowProgress, shows_progress, told
from specsim.core._provenance import specsim_version
from specsim.core._streams import Purpose, RandomSource, key_of, root_of, uniforms
from specsim.core._types import Floats, check_count
from specsim.decoding._recording.models import new_log
from specsim.models import chain
from specsim.models._drafts.sampling import draw_siblings
from specsim.models._processed import process
from specsim.simulation._rows import Rows, tile_parents
from specsim.simulation._sources import rule_verifier
from specsim.traces._reader import SECONDS, Trace, open_trace

#: One step in 8, from the second of each text on, also measures passes of the target over fewer tokens.
MEASURED_EVERY = 8


def probabilities(logits: Floats, **sampling: Any) -> Floats:
    """The rows [n, V] of finite or -inf `logits` [n, V], after `sampling` as of `process`."""
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return process(weights / weights.sum(axis=1, keepdims=True), **sampling)


@dataclass
class CachedModel:
    """A causal language model of transformers, and its KV cache over the tokens that it has read."""

    model: Any
    name: str
    sampling: Mapping[str, Any]
    vocab_size: int
    read: int = 0
    cache: Any = field(default=None, repr=False)
    #: The name, the tokens that were read, and the seconds, of each pass.
    passes: list[tuple[str, int, float]] = field(default_factory=list, repr=False)

    def rows(self, tokens: Sequence[int], count: int) -> Floats:
        """Rows [count, V] after each of the last `count` of all `tokens` so far; unread tokens are fed."""
        logits = self._feed(tokens)[0, -count:, : self.vocab_size].double().cpu().numpy()
        bad = (np.isnan(logits) | (logits == np.inf)).any(axis=1) | (logits.max(axis=1) == -np.inf)
        if bad.any():
            place = len(tokens) - count + int(bad.argmax()) + 1
            raise ValueError(f"{self.name}: logits after token {place} are not finite; try another dtype")
        return probabilities(logits, **self.sampling)

    def forget(self, length: int) -> None:
        """Crop the cache to the first `length` tokens."""
        if self.read > length:
            self.cache.crop(length - self.read)  # a negative number: tokens to remove
            self.read = length

    def restart(self) -> None:
        self.cache, self.read = None, 0

    def check_cache(self) -> None:
        """Raise ValueError unless the model's cache can be cropped; two tokens are tried."""
        try:
            self._feed([0, 0])
            # cropping does not undo recurrent states; transformers reports which models have them
            kept = getattr(self.model, "_is_stateful", False) or not getattr(self.cache, "is_croppable", True)
            self.forget(1)
            cut = not kept and self.cache.get_seq_length() == 1
        except (AttributeError, LookupError, TypeError, ValueError):
            cut = False
        if not cut:
            raise ValueError(
                f"{self.name}: {type(self.model).__name__} keeps no cache that can be cropped; "
                "take another model"
            )
        self.restart()

    def _feed(self, tokens: Sequence[int]) -> Any:
        """The logits after each of the unread tokens, as the model returns them."""
        import torch

        if self.cache is None:
            self.cache = _new_cache(self.model)
        fed = torch.tensor([tokens[self.read :]], device=self.model.device)
        began = time.perf_counter()
        with torch.inference_mode():
            found = self.model(input_ids=fed, past_key_values=self.cache, use_cache=True)
            found.logits[0, -1, 0].item()  # which a GPU has only after the pass
        self.passes.append((self.name, len(tokens) - self.read, time.perf_counter() - began))
        self.cache, self.read = found.past_key_values, len(tokens)
        return found.logits


class Step(NamedTuple):
    """One step of a text: the tokens before it, its drafts, their rows, and what was accepted and emitted."""

    text: int
    before: list[int]
    drafted: list[int]
    accepted: int
    p: Floats  #: [γ+1, V]
    q: Floats  #: [γ+1, V]
    emitted: list[int]


@shows_progress("record", " texts")
def record_hf(
    out: str | Path,
    target: str | Path,
    draft: str | Path,
    prompts: Sequence[str],
    *,
    gamma: int = 5,
    max_new_tokens: int = 128,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    rule: str | rules.Rule = "standard",
    dtype: str = "float32",
    top: int | None = None,
    device: str | None = None,
    rng: RandomSource = None,
    progress: ShowProgress = None,
) -> Trace:
    """Decode speculatively after each prompt with two Hugging Face models, and log every step as a trace.

    A text ends after `max_new_tokens`, at the target's end-of-sequence token, or at a full context. The
    seconds of all passes go to a file beside the trace.

    Parameters
    ----------
    out : path
        A new or empty folder.
    target, draft : str or path
        Folders or names that `AutoModelForCausalLM.from_pretrained` loads, with the same tokenizer.
    prompts : sequence of str
        Each non-empty and shorter than the models' contexts.
    gamma, max_new_tokens : int
        Drafted tokens per step, and new tokens per text at most, ≥ 1.
    temperature, top_k, top_p : float, int or None, float
        Sampling of both models: ≥ 0; ≥ 1, or None for all tokens; in (0, 1].
    rule, dtype, top, rng
        As in `record`.
    device : str
        Where torch computes.
    progress : bool or callable, optional
        As in `specsim.simulate`, in texts.

    Returns
    -------
    Trace

    Raises
    ------
    ValueError
        Without torch and transformers; for tokenizers that differ, a cache that cannot be cropped, logits
        that are NaN, or arguments out of range. The steps before stay readable.
    FileExistsError
        If `out` is not empty.

    Examples
    --------
    >>> trace = record_hf("trace", "path/to/target", "path/to/draft", ["Once upon"], rng=1)  # doctest: +SKIP
    """
    tell = told(progress)
    sampling: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
    probabilities(np.zeros((1, 2)), **sampling)  # raises for bad arguments before models are loaded
    chosen, tree, root = rules.get(rule), chain(gamma), root_of(rng)
    chosen.check(tree)
    max_new_tokens = check_count("max_new_tokens", max_new_tokens)
    device = "cpu" if device is None else device
    (big, tokenizer), (small, other) = (load(one, device) for one in (target, draft))
    check_tokenizers(tokenizer, other, prompts)
    room = min(getattr(one.config, "max_position_embeddings", None) or 2**31 for one in (big, small))
    if gamma >= room:
        raise ValueError(f"gamma: {gamma} exceeds the models' context of {room} tokens; draft fewer")
    texts = _encode(prompts, tokenizer, room - gamma)
    # padding may make the number of logits larger than that of tokens
    vocab_size = min(int(one.get_output_embeddings().weight.shape[0]) for one in (big, small))
    passes: list[tuple[str, int, float]] = []
    first = CachedModel(big, "target", sampling, vocab_size, passes=passes)
    second = CachedModel(small, "draft", sampling, vocab_size, passes=passes)
    for model in (first, second):
        model.check_cache()
    passes.clear()
    facts: dict[str, Any] = {"target": str(target), "draft": str(draft), "prompts": len(texts)}
    facts |= {"max_new_tokens": max_new_tokens, **sampling, "rule": str(chosen)}
    layout: dict[str, Any] = {"vocab_size": vocab_size, "gamma": gamma, "dtype": dtype, "top": top}
    with new_log(out, **layout, root=root, facts=facts) as add, (Path(out) / SECONDS).open("w") as clock:
        done = 0
        clock.write("text,model,tokens,seconds\n")
        for step in trajectory(first, second, texts, chosen, gamma, max_new_tokens, _ends(big), room, root):
            add(step.text, step.drafted, step.accepted, step.p, step.q)
            clock.writelines(f"{step.text},{name},{tokens},{spent:.4g}\n" for name, tokens, spent in passes)
            passes.clear()
            if step.text > done:
                done = step.text
                tell(done, len(texts))
    tell(len(texts), len(texts))
    return open_trace(out)


def trajectory(
    target: CachedModel,
    draft: CachedModel,
    texts: Sequence[Sequence[int]],
    rule: rules.Rule,
    gamma: int,
    max_new_tokens: int,
    ends: frozenset[int],
    room: int,
    root: int,
) -> Iterator[Step]:
    """The steps of all `texts`, one text after the other; step number s draws the uniforms of step s."""
    key, tree, number = key_of(root), chain(gamma), 0
    verify = rule_verifier(rule, tree)

    def take_step(text: int, tokens: list[int], number: int, measured: bool) -> Step:
        u = uniforms(key, int(Purpose.DRAFT), number, 1, gamma)
        drafted: list[int] = []
        q = np.empty((gamma + 1, draft.vocab_size))
        for i in range(gamma + 1):  # the last row is for the log, the pass for the cache, if all are accepted
            q[i] = draft.rows(tokens + drafted, 1)[0]
            if i < gamma:
                drafted.append(int(draw_siblings(tree.draft_sampling, q[i : i + 1], u[i : i + 1])[0, 0]))
        for i in reversed(range(gamma * measured)):  # one token last: such passes follow each other
            target.rows(tokens + drafted[:i], 1)
            target.forget(len(tokens) - 1)
        p = target.rows(tokens + drafted, gamma + 1)
        seen = q[None, : rule.num_rows(tree)].copy()
        rows = Rows(np.array([drafted]), p[None], seen, tile_parents(tree, 1))
        found, (accepted,) = verify(rows, key, number)
        for model in (target, draft):
            model.forget(len(tokens) + accepted)
        return Step(text, list(tokens), drafted, int(accepted), p, q, found[: accepted + 1, 0].tolist())

    for text, prompt in enumerate(texts):
        tokens, first = list(prompt), number
        target.restart()
        draft.restart()
        while len(tokens) < len(prompt) + max_new_tokens and len(tokens) + gamma <= room:
            step = take_step(text, tokens, number, (number - first) % MEASURED_EVERY == 1)
            yield step
            number += 1
            tokens += step.emitted
            if ends.intersection(step.emitted):
                break


def load(name: str | Path, device: str = "cpu") -> tuple[Any, Any]:
    """Load a model and its tokenizer. Raises ValueError where torch, `device` or either is missing."""
    try:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ImportError as error:
        raise ValueError(f"{name}: torch or transformers is missing ({error}); pip install both") from None
    try:
        torch.zeros(1, device=device).cpu()
    except (AssertionError, ImportError, RuntimeError) as error:  # a backend that was not built in
        reason = str(error).strip().splitlines()[0].split(". ")[0]
        raise ValueError(f"device: torch cannot use {device!r} ({reason}); give another one") from None
    try:
        model = AutoModelForCausalLM.from_pretrained(str(name), dtype="auto").to(torch.device(device)).eval()
        return model, AutoTokenizer.from_pretrained(str(name))
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"{name}: holds no causal language model with its tokenizer ({reason}); give another "
            "folder or name"
        ) from None


def _new_cache(model: Any) -> Any:
    """An empty cache that can be cropped, also to tokens that have left a sliding window."""
    from transformers import DynamicCache, __version__

    if tuple(int(part) for part in __version__.split(".")[:2]) < (5, 18):
        # sliding layers cannot be cropped over several passes there; full ones can, and masks restrict them
        return DynamicCache()
    cache = DynamicCache(config=model.config)
    cache.activate_past_recording()
    return cache


def _encode(prompts: Sequence[str], tokenizer: Any, room: int) -> list[list[int]]:
    """The tokens of each prompt; ValueError for one that is empty, or longer than `room`."""
    if not prompts:
        raise ValueError("prompts: none given; give at least one")
    texts = [list(tokenizer(prompt)["input_ids"]) for prompt in prompts]
    for number, tokens in enumerate(texts, 1):
        if not tokens:
            raise ValueError(f"prompt {number}: is empty; leave it out")
        if len(tokens) > room:
            raise ValueError(
                f"prompt {number}: {len(tokens)} tokens do not fit beside a draft; give at most {room}"
            )
    return texts


def _ends(model: Any) -> frozenset[int]:
    found = model.generation_config.eos_token_id
    return frozenset(found if isinstance(found, list | tuple) else [] if found is None else [int(found)])


# Two tokenizers must agree: a token id must mean the same piece of text to both models.

#: Texts on which tokenizers differ.
TEXTS: list[str] = read_table("texts")["texts"]
SPECIAL = ("bos", "eos", "unk", "sep", "cls", "mask")  # padding takes no part in generation


def check_tokenizers(target: Any, draft: Any, texts: Iterable[str] = ()) -> None:
    """Raise ValueError, naming the check that failed, unless two tokenizers agree, on `texts` as well.

    Two vocabularies of one size may number different pieces, so the size alone is not enough."""
    if len(target) != len(draft):
        raise _differ("size", f"{len(target)} tokens and {len(draft)}")
    ids, other_ids = target.get_vocab(), draft.get_vocab()
    for token, number in ids.items():
        if (other := other_ids.get(token)) != number:
            raise _differ("ids", f"{token!r} is {number} to the target, and {other} to the draft")
    for name in SPECIAL:
        one, other = (getattr(tokenizer, f"{name}_token_id", None) for tokenizer in (target, draft))
        if one != other:
            raise _differ("special tokens", f"{name} is {one} to the target, and {other} to the draft")
    for text in (*TEXTS, *texts):
        one, other = (tokenizer(text)["input_ids"] for tokenizer in (target, draft))
        if one != other:
            raise _differ("round trip", f"{text[:60]!r} becomes {one[:12]} and {other[:12]}")
        back, other_back = (tokenizer.decode(one) for tokenizer in (target, draft))
        if back != other_back:
            raise _differ("round trip", f"{one[:12]} are decoded as {back[:60]!r} and as {other_back[:60]!r}")


def _differ(check: str, what: str) -> ValueError:
    return ValueError(
        f"tokenizers: their {check} differ ({what}); give target and draft of one family, with one tokenizer"
    )


# Prompts in a file, and the rows over them, computed once and kept on disk.

#: The variable that names the folder of kept traces; by default it lies among the user's caches.
FOLDER = "SPECSIM_CACHE"


def read_prompts(path: Path) -> list[str]:
    """The prompts of a file: the lines that are not blank, or of JSON Lines each record's "prompt"."""
    if path.suffix != ".jsonl":
        return [line for line in read_text(path).splitlines() if line.strip()]
    found = []
    for place, record, problem in read_lines([path]):
        prompt = record.get("prompt") if isinstance(record, dict) else None
        if not isinstance(prompt, str):
            why = problem or 'has no "prompt"'
            raise ValueError(f'{place}: {why}; write {{"prompt": "a text"}}')
        found.append(prompt)
    return found


def kept_rows(target: str, draft: str, prompts: Path, **options: Any) -> Trace:
    """The trace that `record_hf` makes with these options and the seed 0, kept on disk once made."""
    texts = read_prompts(prompts)
    what = [specsim_version(), _version(target), _version(draft), texts, sorted(options.items())]
    folder = _folder() / hashlib.sha256(repr(what).encode()).hexdigest()[:32]
    if not (folder / "manifest.json").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        # whole or not at all, though another process may be doing the same
        made = Path(tempfile.mkdtemp(prefix="unfinished-", dir=folder.parent))
        try:
            record_hf(made, target, draft, texts, rng=0, **options)
            if not folder.exists():
                made.rename(folder)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    return open_trace(folder)


def _folder() -> Path:
    if chosen := os.environ.get(FOLDER):
        return Path(chosen)
    try:
        return Path.home() / ".cache" / "specsim" / "rows"
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()) / "specsim-rows"


def _version(model: str) -> list[Any]:
    """A model's name; of a folder its files as well, with their sizes and times."""
    files = sorted(Path(model).rglob("*")) if Path(model).is_dir() else []
    return [model, [(str(file), file.stat().st_size, file.stat().st_mtime_ns) for file in files]]
