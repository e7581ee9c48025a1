"""Speculative decoding of many texts at once, in lockstep over the texts.

A step drafts γ tokens after each text, verifies them with the row kernel of a rule, and emits the accepted
tokens and one more. Every random number is a function of the seed of its request, the index of the text in
it, and the number of the step, so a text does not depend on what is decoded beside it. At most one mistake
changes one part of a step; see `mistakes.py`."""

import time
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from specsim import rules
from specsim.core._provenance import specsim_version
from specsim.core._streams import Purpose, RandomSource, key_of, root_of
from specsim.core._types import Floats, Ints, check_count
from specsim.engines._planted.law import Law, log_softmax, most_probable
from specsim.engines._planted.requests import Completion, Failure, Request, Sampling
from specsim.engines._planted.served_pair import Pair, ReadingLaw, check_request
from specsim.engines._server.mistakes import find_mistake
from specsim.engines._server.step import Running, Step, Text, text_uniforms
from specsim.mistakes._rows import argmax
from specsim.models import chain
from specsim.models._drafts.sampling import draw_siblings
from specsim.simulation._rows import tile_parents

#: Bytes of rows in a step, and the most texts that are decoded together.
STEP_BYTES, MOST_TEXTS = 2**27, 512

#: Verifies the drafts of a step: fills `tokens` and `accepted`.
Verify = Callable[[Step], None]


class Decoder:
    """Texts after prompts, from a target and a draft of γ tokens a step, or from the target alone.

    `seed` is that of requests that have none. The random numbers of a `mistake` that is a verifier in place
    of the rule do not depend on the seeds of requests. Raises ValueError or TypeError for an unknown rule or
    mistake, a rule that does not verify chains, or γ < 1."""

    def __init__(
        self,
        pair: Pair,
        *,
        speculative: bool = True,
        rule: str | rules.Rule = "standard",
        gamma: int = 4,
        mistake: str | None = None,
        seed: RandomSource = None,
    ):
        self.pair, self.plain = pair, not speculative
        self.rule = rules.get(rule)
        self.gamma = check_count("gamma", gamma) if speculative else 0
        self.mistake = find_mistake(mistake)
        needed = {"state": pair.target.memory, "expert": pair.target.experts, "head": pair.heads}
        if self.mistake is not None and not needed.get(self.mistake.where, True):
            raise ValueError(
                f"mistake: {self.mistake.name} is of a state, experts or a head that this pair lacks; plant "
                "another one"
            )
        self.root = root_of(seed)
        self.totals = {"drafted": 0, "accepted": 0, "steps": 0}
        self._verify, self._drawing, self._num_q = self._verifier()
        self._admitted = 0
        self._waiting: deque[Text] = deque()
        self._run = self._running([])
        row_bytes = 8 * pair.target.vocab_size * (self.gamma + 1) * 4
        self._room = max(1, min(MOST_TEXTS, STEP_BYTES // row_bytes))

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._run.texts)

    def clear(self) -> None:
        """Forget all texts that are not finished, and take back what they counted."""
        for name in self.totals:
            self.totals[name] -= int(getattr(self._run, name).sum())
        self._waiting.clear()
        self._run = self._running([])

    def drop(self, numbers: Container[int]) -> None:
        """Forget the texts of the requests with these numbers; what they counted stays."""
        self._waiting = deque(text for text in self._waiting if text.request.number not in numbers)
        kept = [text.request.number not in numbers for text in self._run.texts]
        self._run = self._run.take(np.array(kept, dtype=bool))

    def add(self, request: Request) -> None:
        """Decode `request` too. Raises ValueError if it cannot be served."""
        check_request(self.pair, request)
        now = time.perf_counter()
        self._waiting.extend(Text(request, index, now) for index in range(request.n))

    def step(self) -> list[Completion]:
        """Decode one step of all texts that there is room for, and return those that it finishes."""
        if len(self._run.texts) <= self._room // 2 and self._waiting:
            room = min(self._room - len(self._run.texts), len(self._waiting))
            self._run = self._run.join(self._running([self._waiting.popleft() for _ in range(room)]))
        if not self._run.texts:
            return []
        step = self._begin()
        self._draft(step)
        self._verify_and_emit(step)
        return self._finished()

    def _act(self, where: str, *arguments: Any) -> Any:
        mistake = self.mistake
        return mistake.act(*arguments) if mistake is not None and mistake.where == where else None

    def _running(self, texts: list[Text]) -> Running:
        """Texts that begin, with their keys."""
        keys = []
        for text in texts:
            own, seed = key_of(self.root, (1, self._admitted % 2**32)), text.request.seed
            keys.append(own if seed is None else key_of(seed, (text.index,)))
            self._admitted += 1
        run = Running.of(texts, keys, self.gamma, self.pair.target.memory)
        if texts:
            self._act("admission", run, self.root)
        return run

    def _verifier(self) -> tuple[Verify, str, int]:
        """What verifies a step, how a token is drafted, and the number of the draft's rows."""
        mistake = self.mistake
        wrong = mistake if mistake is not None and mistake.where == "verification" else None
        if wrong is not None and (self.plain or self.rule.name != "standard"):
            raise ValueError(
                f"mistake: {wrong.name} is a verifier in place of the standard rule's; "
                + ("plain decoding verifies nothing" if self.plain else f"leave {self.rule.name} out")
            )
        if self.plain:
            return _sample, "sampled", 0
        if wrong is not None:
            act, generator = wrong.act, np.random.default_rng(self.root)

            def verify_by_function(step: Step) -> None:  # as audits call it
                step.tokens[:] = act(step.drafted, step.p, step.q, generator).T
                step.accepted[:] = (step.tokens >= 0).sum(axis=0) - 1

            return verify_by_function, "sampled", self.gamma
        ways = self.rule.draft_sampling
        if not {"sampled", "top"} & set(ways):
            raise ValueError(f"rule: {self.rule.name} verifies trees only; 'standard' verifies chains")
        tree = chain(self.gamma, "sampled" if "sampled" in ways else "top")
        self.rule.check(tree)
        parents, values = tile_parents(tree, 1), self.rule.array()

        def verify(step: Step) -> None:
            self.rule.rows(
                np.repeat(parents, step.size, axis=0), step.drafted, step.p, step.q, step.verify_u, values,
                step.tokens, step.accepted,
            )  # fmt: skip

        return verify, tree.draft_sampling, self.rule.num_rows(tree)

    def _begin(self) -> Step:
        """A step of the running texts, with its random numbers and room for the rest."""
        run, gamma = self._run, self.gamma
        size, vocab_size = len(run.texts), self.pair.target.vocab_size
        count = 1 if self.plain else self.rule.uniforms(chain(gamma), vocab_size)
        if (missing := int(run.length.max()) + 2 * (gamma + 2) - run.seen.shape[1]) > 0:
            run.seen = np.pad(run.seen, ((0, 0), (0, missing + 64)))
        q = np.empty((size, self._num_q, vocab_size))
        step = Step(
            run,
            gamma,
            text_uniforms(run.keys, Purpose.DRAFT, run.steps, gamma),
            text_uniforms(run.keys, Purpose.VERIFY, run.steps, count),
            lambda i, m: self._rows(self.pair.target, run, i, m),
            lambda i, m: self._draft_rows(run, i, m),
            q,
            np.empty_like(q),
        )
        self._act("random numbers", step)
        return step

    def _draft_rows(self, run: Running, first: int, count: int) -> Floats:
        """The logits of the draft, or of a head, at `count` places."""
        law = self.pair.target
        if not self.pair.heads or not isinstance(law, Law):
            return self._rows(self.pair.draft, run, first, count)
        stale, late = self._act("head") or (0, 0)
        every, drafts, words = np.arange(len(run.texts)), np.arange(first, first + count), None
        if law.memory and stale:
            texts = zip(run.seen, run.length - 1 - stale, strict=True)
            words = np.array([law.memory.along(text[: max(0, n)])[-1:] for text, n in texts])
        elif law.memory:
            words = law.memory.read(run.state[:, 0], run.seen[every, (run.length - 2).clip(0)])[:, None]
        places = run.length[:, None] + drafts
        contexts = law.contexts_of_head(self.pair.heads, run.seen, places, drafts, words, stale, late)
        return law.scores(contexts).reshape(len(every), count, -1)

    def _rows(self, law: ReadingLaw, run: Running, first: int, count: int) -> Floats:
        """The logits of `law` at `count` places of each text, [B, count, V], after `first` drafted tokens."""
        contexts = self._contexts(law, run, first, count)
        scores = law.scores(contexts.reshape(len(run.texts) * count, contexts.shape[2]))
        return scores.reshape(*contexts.shape[:2], -1)

    def _contexts(self, law: ReadingLaw, run: Running, first: int, count: int) -> Ints:
        """What `law` reads there, [B, count, k]."""
        every, size = np.arange(len(run.texts))[:, None, None], len(run.texts)
        places = run.length[:, None, None] + np.arange(first, first + count)[:, None]
        indices: Ints = places - np.array(law.offsets, dtype=np.int64)
        changed = self._act("reading", run, indices)
        indices = indices if changed is None else changed.clip(min=bool(law.openers))
        columns = [run.seen[every, indices].clip(max=law.words - 1)]  # also after the end of a text
        if law.memory:
            columns.append(self._remembered(law, run, first, count)[..., None])
        if law.experts:
            changed = self._act("expert", run, places)
            after = places if changed is None else changed.clip(min=1)
            columns.append(run.seen[every, after - 1] % law.experts)
        if law.openers:
            columns.append(np.broadcast_to(run.seen[:, :1, None], (size, count, 1)))
        return np.concatenate(columns, axis=2)

    def _remembered(self, law: ReadingLaw, run: Running, first: int, count: int) -> Ints:
        """The words that the states of `law` remember at `count` places after `first` drafted tokens."""
        assert law.memory is not None
        which, every = int(law is self.pair.draft), np.arange(len(run.texts))
        copy = replace(run, state=run.state.copy(), window=run.window.copy())
        found = []
        for i in range(first + count):
            newest = run.seen[every, run.length - 1 + i]
            copy.advance(law.memory, which, newest[:, None], np.ones_like(newest))
            if i >= first:
                found.append(law.memory.read(copy.state[:, which], newest))
        return np.stack(found, axis=1)

    def _advance(self, step: Step) -> None:
        """Let the states see the newest token and the accepted drafts of a step."""
        run, memory = step.run, self.pair.target.memory
        if memory:
            newest = run.seen[step.every, run.length - 1]
            tokens = np.concatenate([newest[:, None], step.drafted], axis=1)
            run.advance(memory, 1, tokens, step.accepted + 1)
            seen = step.accepted + 1  # by the target
            window = tokens[step.every, step.accepted]
            self._act("state", step, memory, seen, window)
            run.advance(memory, 0, tokens, seen)
            run.window[:, 0] = window

    def _q(self, step: Step, scores: Floats, i: int) -> Floats:
        """The rows [B, V] of draft i; a head drafts the most probable token, however rows are processed."""
        return (argmax(scores) if self.pair.heads else step.process(scores, first=i))[:, 0]

    def _draft(self, step: Step) -> None:
        for i in range(self._num_q):
            step.raw_q[:, i : i + 1] = step.draft_rows(i, 1)
            step.q[:, i] = self._q(step, step.raw_q[:, i : i + 1], i)
            if i < step.gamma:
                row = np.ascontiguousarray(step.q[:, i])
                step.drafted[:, i] = draw_siblings(self._drawing, row, step.draft_u[i : i + 1])[0]
                step.run.seen[step.every, step.run.length + i] = step.drafted[:, i]
        self._act("drafts", step)

    def _verify_and_emit(self, step: Step) -> None:
        step.raw_p = step.target_rows(0, step.gamma + 1)
        step.p = step.process(step.raw_p)
        self._act("rows", step)
        self._verify(step)
        self._act("last token", step)
        step.counted_accepted[:] = step.accepted
        step.logprobs[:] = step.logs(step.raw_p)
        self._act("log-probabilities", step)
        self._act("counters", step)
        self._settle(step)

    def _settle(self, step: Step) -> None:
        """Emit the tokens of a step, up to the number asked for, and update texts, states and counters."""
        run = step.run
        most = np.array([text.request.max_tokens for text in run.texts])
        kept = np.minimum(step.accepted + 1, most - run.count)
        b, i = np.nonzero(np.arange(step.gamma + 1) < kept[:, None])
        run.out[b, run.count[b] + i] = step.tokens[i, b]
        run.logprobs[b, run.count[b] + i] = step.logprobs[b, i]
        for text, scores, n in zip(run.texts, step.raw_p, kept, strict=True):
            if asked := text.request.sampling.logprobs:
                text.top += [most_probable(logs, asked) for logs in log_softmax(scores[:n])]
        run.count += kept
        self._advance(step)
        run.seen[step.every, run.length + step.accepted] = step.tokens[step.accepted, step.every]
        run.length += step.accepted + 1
        self._act("cache", step)
        counted = step.counted_drafted, step.counted_accepted, np.ones_like(run.steps)
        for name, numbers in zip(self.totals, counted, strict=True):
            getattr(run, name)[:] += numbers
            self.totals[name] += int(numbers.sum())

    def _finished(self) -> list[Completion]:
        """The texts that are finished; they leave."""
        run, found = self._run, []
        done = np.zeros(len(run.texts), dtype=bool)
        for b, text in enumerate(run.texts):
            most = text.request.max_tokens
            if text.request.sampling.stops or run.count[b] >= most:
                tokens = run.out[b, : min(run.count[b], most)].tolist()
                end = self._stop(tokens, text.request.sampling)
                if end is not None or len(tokens) >= most:
                    done[b] = True
                    found.append(self._completion(b, tokens if end is None else tokens[:end], end))
        if found:
            self._run = run.take(~done)
        return found

    def _stop(self, tokens: list[int], sampling: Sampling) -> int | None:
        """The number of tokens with which the first stop string, or a token that ends the text, is there."""

        def stopped(end: int) -> bool:
            text = sampling.stop and self.pair.decode(tokens[:end])
            ends = {*sampling.stop_ids, self.pair.target.words}  # the latter comes in grammars alone
            return bool({*tokens[:end]} & ends) or any(one in text for one in sampling.stop)

        return next(filter(stopped, range(1, len(tokens) + 1)), None) if stopped(len(tokens)) else None

    def _completion(self, b: int, tokens: list[int], end: int | None) -> Completion:
        run, text = self._run, self._run.texts[b]
        if end is not None:
            tokens = self._act("stop", tokens) or tokens
        asked, speculative = text.request.sampling.logprobs, not self.plain
        return Completion(
            text.request.number,
            text.index,
            tuple(tokens),
            None if asked is None else tuple(run.logprobs[b, : len(tokens)].tolist()),
            tuple(text.top[: len(tokens)]) if asked else None,
            int(run.drafted[b]) if speculative else None,
            int(run.accepted[b]) if speculative else None,
            "length" if end is None else "stop",
            time.perf_counter() - text.started,
        )


def _sample(step: Step) -> None:
    """A step without a draft: one token from p."""
    step.tokens[0] = draw_siblings("sampled", np.ascontiguousarray(step.p[:, 0]), step.verify_u)[0]
    step.accepted[:] = 0


class LocalEngine(Decoder):
    """Decodes in this process."""

    name, version = "specsim", specsim_version()

    def describe(self) -> dict[str, Any]:
        return {
            "engine": self.name,
            "version": self.version,
            "model": self.pair.digest,
            "speculative": not self.plain,
            "rule": None if self.plain else str(self.rule),
            "gamma": self.gamma,
            "mistake": self.mistake and self.mistake.name,
            "logprobs": "raw",  # those of unprocessed rows
        }

    def complete(self, requests: Sequence[Request]) -> Iterator[Completion | Failure]:
        for request in requests:
            try:
                self.add(request)
            except ValueError as error:
                yield Failure(request.number, "refused", str(error))
        try:
            while self.busy:
                yield from self.step()
        finally:
            self.clear()  # whoever reads this may have stopped reading

    def counters(self) -> dict[str, int] | None:
        return None if self.plain else dict(self.totals)

    def close(self) -> None:
        """Nothing is held."""
