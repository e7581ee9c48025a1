"""What an engine is asked, and what it answers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from specsim.core._files import read_table
from specsim.core._json import printable
from specsim.core._types import check_between, check_count, checked
from specsim.core._verdicts import LONGEST

#: Where an OpenAI-compatible server takes completions, and chats.
COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
#: The penalties of tokens that came already, and all parameters that change rows, with values that do not.
PENALTIES = {"repetition_penalty": 1.0, "frequency_penalty": 0.0, "presence_penalty": 0.0}
NEUTRAL: dict[str, Any] = {"temperature": 1.0, "top_k": None, "top_p": 1.0, "min_p": 0.0} | PENALTIES
#: What few engines have, and the further parameters of each.
RARE = {"typical_p": 1.0, "top_n_sigma": None, "xtc_probability": 0.0, "dry_multiplier": 0.0}
FURTHER: dict[str, list[str]] = read_table("servers")["further"]
#: What bans tokens: the only ids that may come, sequences that may not, and what an automaton forbids.
BANS: dict[str, Any] = {"allowed_token_ids": (), "bad_words": (), "grammar": ()}
NEUTRAL |= {"logit_bias": (), "min_tokens": 0} | RARE | BANS
#: What a checkpoint may have in its own configuration.
CONFIGURED = "temperature", "top_k", "top_p", "repetition_penalty"
#: The smallest and the largest values of the numbers, and whether they may have these.
LIMITS = read_table("servers")["limits"]


@checked
@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn from the rows of the target.

    `logprobs` is None if no log-probabilities are asked for, 0 for those of the emitted tokens, k for lists
    of the k most probable tokens too. A penalty that is None is not sent. That of repetition divides positive
    logits of tokens that came already and multiplies negative ones; that of frequency is subtracted for each
    time that a token came, that of presence once; `penalty_last_n` is how many tokens back they look, by
    default all. `logit_bias` has pairs (token, what is added to its logit); -100 bans it. A text ends at one
    of `stop_ids`, which cannot come before `min_tokens` tokens. `typical_p` is the mass that typical sampling
    keeps, `top_n_sigma` how many standard deviations a logit may be below the largest, and
    `xtc_probability` how often the tokens of at least `xtc_threshold` but the least of them are excluded. Of
    each sequence of ids in `bad_words` the last one cannot follow the others; where `allowed_token_ids` has
    ids, no other comes. `defaults` has parameters with their values in the checkpoint's own configuration:
    requests that ask for no other leave them out. A token that came already after the last n tokens, in the
    last `dry_penalty_last_n` ones or in all, loses `dry_multiplier` · `dry_base` ^ (n - `dry_allowed_length`)
    if n is at least that length. `grammar` has the states of an automaton, where a text begins in the
    first: in each only the tokens of its pairs (token, state after it) come, and nothing comes after the
    end-of-text of the checkpoint. Raises ValueError, naming the parameter, for values out of range."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    stop: tuple[str, ...] = ()
    logprobs: int | None = 0
    repetition_penalty: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    penalty_last_n: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    stop_ids: tuple[int, ...] = ()
    min_tokens: int = 0
    typical_p: float = 1.0
    top_n_sigma: float | None = None
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    allowed_token_ids: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    defaults: tuple[tuple[str, float], ...] = ()
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int | None = None
    grammar: tuple[tuple[tuple[int, int], ...], ...] = ()

    def __post_init__(self) -> None:
        for name, (low, high, ends) in LIMITS.items():
            if (value := getattr(self, name)) is not None:
                check_between(name, value, low, high, "number", ends)
                if isinstance(low, int):
                    check_count(name, value, low)
        many = len(self.grammar)
        for name, good, wanted in (
            ("stop", all(one and isinstance(one, str) for one in self.stop), "strings, none empty"),
            ("stop_ids", all(token >= 0 for token in self.stop_ids), "ids of tokens"),
            ("allowed_token_ids", all(token >= 0 for token in self.allowed_token_ids), "ids of tokens"),
            ("bad_words", all(min(word, default=-1) >= 0 for word in self.bad_words), "sequences of ids"),
            ("grammar", all(0 < len(dict(x)) == len(x) for x in self.grammar), "states of different ids"),
            ("grammar", all(x >= 0 <= y < many for one in self.grammar for x, y in one), "ids and states"),
            ("defaults", all(name in CONFIGURED for name, _ in self.defaults), ", ".join(CONFIGURED)),
            ("logit_bias", all(x >= 0 and abs(y) <= 100 for x, y in self.logit_bias), "ids and -100 … 100"),
        ):
            if not good:
                raise ValueError(f"{name}: {getattr(self, name)!r} is not {wanted}")

    @classmethod
    def from_json(cls, fields: Mapping[str, Any], words: Mapping[str, int] | None = None) -> Self:
        """The sampling of fields that have lists for tuples, and `words` for numbers."""

        def read(value: Any) -> Any:
            return tuple(map(read, value)) if isinstance(value, list) else (words or {}).get(value, value)

        return cls(**{name: read(value) for name, value in fields.items()})

    @property
    def acting(self) -> set[str]:
        """The names of the parameters that change rows."""
        acting = {name for name, neutral in NEUTRAL.items() if getattr(self, name) not in (None, neutral)}
        return acting if self.stop_ids else acting - {"min_tokens"}

    @property
    def left_out(self) -> dict[str, Any]:
        """The parameters that requests leave to the engine, with the values of the checkpoint."""
        return {name: x for name, x in self.defaults if getattr(self, name) in (None, NEUTRAL[name])}

    @property
    def filled(self) -> Self:
        """The same with these values."""
        return replace(self, defaults=(), **self.left_out)

    @property
    def penalised(self) -> bool:
        return bool({*PENALTIES, "dry_multiplier"} & self.acting)

    @property
    def rare(self) -> dict[str, Any]:
        """What is asked for that few engines have."""
        names = [one for name in RARE if name in self.acting for one in (name, *FURTHER.get(name, ()))]
        return {name: getattr(self, name) for name in names}

    @property
    def has_phrases(self) -> bool:
        """Whether a bad word has several tokens."""
        return any(len(word) > 1 for word in self.bad_words)

    @property
    def reads_texts(self) -> bool:
        return self.filled.penalised or self.has_phrases or bool(self.acting & {"min_tokens", "grammar"})

    @property
    def stops(self) -> bool:
        return bool(self.stop or self.stop_ids or self.grammar)


@dataclass(frozen=True)
class Request:
    """`n` texts after one prompt; `number` is unique in a run. `seed` None leaves the seed to the engine."""

    number: int
    prompt: tuple[int, ...]
    max_tokens: int
    seed: int | None = None
    n: int = 1
    sampling: Sampling = Sampling()


@dataclass(frozen=True)
class Completion:
    """Text `index` of request `number`.

    `logprobs` has an entry for each token, None where the engine gave none. `drafted`, `accepted` and `steps`
    are what the engine reports for this text, or with the first text of a request for all of them; None where
    it reports nothing. `seconds` is the time from sending the request to its answer."""

    number: int
    index: int
    tokens: tuple[int, ...]
    logprobs: tuple[float | None, ...] | None = None
    top: tuple[dict[int, float], ...] | None = None
    drafted: int | None = None
    accepted: int | None = None
    finish: str | None = None
    seconds: float = 0.0
    steps: int | None = None


#: Why a request has no completion, by kind.
FAILURES: dict[str, str] = read_table("servers")["failures"]


class FailedError(Exception):
    """A request has no completion; `kind` is a key of `FAILURES`."""

    def __init__(self, kind: str, text: str):
        super().__init__(text)
        self.kind = kind


@dataclass(frozen=True)
class Failure:
    """Request `number` has no completion; `kind` is a key of `FAILURES`, `text` says what happened.

    The text may hold words of a server, so it is escaped and cut."""

    number: int
    kind: str
    text: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", printable(self.text, LONGEST))


class Engine(Protocol):
    """A serving engine with a planted checkpoint."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def describe(self) -> dict[str, Any]:
        """The model, the settings, and whether the engine speculates, as plain JSON."""

    def complete(self, requests: Sequence[Request]) -> Iterator[Completion | Failure]:
        """Yield the `n` completions of each request, or one failure, in the order in which they end."""

    def counters(self) -> dict[str, int] | None:
        """Return numbers since the engine was started: "drafted", "accepted" and, where reported, "steps".
        Servers add the sums and numbers of times: "ttft µs", "ttft count", and so of itl, tpot and latency.

        None without counters. Audits take differences."""

    def close(self) -> None:
        """Free what the engine holds. A second call does nothing."""
