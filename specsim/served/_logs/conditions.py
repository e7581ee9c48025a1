"""Which texts of a served log can be tested, and what is missing from them.

What decides must not depend on the tokens that were drawn: leaving out texts, or places, because of what came
there would bias the rest. So a text is left out for what its request says, and for what the server logs.
"""

import re
from typing import Any

from specsim.served._logs.formats import Text

#: Parameters that cut a row off, with the values that do not. They leave its most probable token.
TRUNCATION: dict[str, tuple[Any, ...]] = {
    "top_k": (-1, 0),
    "top_p": (1,),
    "min_p": (0,),
    "typical_p": (1,),
    "top_n_sigma": (-1, 0),
}
#: Parameters that change a row otherwise, with the values that do not.
CHANGES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("repetition_penalty", "repeat_penalty"), (1,)),
    **dict.fromkeys(("presence_penalty", "frequency_penalty", "dry_multiplier", "xtc_probability"), (0,)),
    **dict.fromkeys(("mirostat", "dynatemp_range", "min_tokens", "min_new_tokens", "ignore_eos"), (0,)),
    **dict.fromkeys(("logit_bias", "bad_words", "allowed_token_ids"), ({}, [])),
    **dict.fromkeys(("grammar", "json_schema", "regex", "ebnf", "structural_tag"), ("", {})),
    **dict.fromkeys(("guided_json", "guided_regex", "guided_choice", "guided_grammar"), ("",)),
    **dict.fromkeys(("structured_outputs", "response_format"), ({"type": "text"},)),
}
BEFORE = "logged before: the same response, or the same long text"
#: Seeds that mean a random one.
RANDOM_SEEDS = (None, -1, 2**32 - 1)
#: How texts end that go on, for all that was drawn.
CUT = (None, "length", "abort", "error", "cancelled")
#: Log-probability of a text below which independent draws do not give it twice.
NOT_TWICE = -40.0
#: A token that ends texts, as it is written: "</s>", "<|im_end|>", or nothing.
END = re.compile(r"(<[^<>\s]+>)?")


class Conditions:
    """Decides text by text; `processed` says that log-probabilities are those after temperature and
    truncation."""

    def __init__(self, processed: bool, temperature: float | None) -> None:
        self.processed, self.temperature = processed, temperature
        self._seeds: dict[int, str] = {}
        self._known: set[Any] = set()

    def greedy(self, text: Text) -> bool:
        """Whether the text was decoded at temperature 0."""
        return self._temperature(text) == 0

    def objection(self, text: Text, place: str) -> str:
        """Why a text cannot be tested; empty if it can be."""
        if text.places is None:
            return "no log-probabilities"
        return (
            ("" if self.greedy(text) else self._repeated(text, place))
            or _not_drawn(text)
            or _without_lists(text)
            or self._another_law(text, self._temperature(text))
        )

    def _temperature(self, text: Text) -> float | None:
        value = text.parameters.get("temperature")
        value = self.temperature if value is None else value
        if value is not None and (type(value) not in (int, float) or not value >= 0):
            raise ValueError("temperature is not a number ≥ 0")
        return value

    def _repeated(self, text: Text, place: str) -> str:
        if text.identity is not None and text.finish is not None:
            if text.identity in self._known:
                return BEFORE
            self._known.add(text.identity)
        for name in ("seed", "sampling_seed"):
            seed = text.parameters.get(name)
            if type(seed) is not int or seed in RANDOM_SEEDS:
                continue
            if self._seeds.setdefault(seed, place) != place:
                return "drawn with the seed of an earlier request, so not independent of it"
        drawn = [(place.token, place.logprob) for place in text.places or []]
        if sum(logprob or 0.0 for _, logprob in drawn) < NOT_TWICE:
            found = hash(tuple(drawn))
            if found in self._known:
                return BEFORE
            self._known.add(found)
        return ""

    def _another_law(self, text: Text, temperature: float | None) -> str:
        """Why the log-probabilities are not those of the law that was sampled."""
        if self.processed:
            return ""
        if temperature is None:
            return "temperature not known"
        changed = [name for name, neutral in CHANGES.items() if _is_set(text.parameters.get(name), neutral)]
        if temperature > 0:
            changed += [n for n, neutral in TRUNCATION.items() if _is_set(text.parameters.get(n), neutral)]
            if temperature != 1:
                changed.insert(0, "temperature")
        return f"raw log-probabilities, and {changed[0]} changes the law" if changed else ""


def _is_set(value: Any, neutral: tuple[Any, ...]) -> bool:
    return value is not None and value not in neutral


def _not_drawn(text: Text) -> str:
    parameters, places = text.parameters, text.places or []
    best, count = parameters.get("best_of"), parameters.get("n") or 1
    if parameters.get("echo") or (text.extra and places and places[0].logprob is None):
        return "begins with its prompt, which was not drawn"
    if (best is not None and best != count and best != 1) or parameters.get("use_beam_search"):
        return "chosen among several"
    return ""


def _without_lists(text: Text) -> str:
    listed = [place.top is not None for place in text.places or []]
    if listed and not any(listed):
        return "no lists of the most probable tokens"
    return "" if all(listed) else "lists at some places only"


def unseen_tokens(text: Text) -> int:
    """How many tokens were drawn at the end of a text, at most, that are not in the log.

    Servers leave out the token that ends a text, and those of a stop string."""
    if text.finish in CUT:
        return 0
    if text.places:
        last = text.places[-1].token
        written = last.decode("utf-8", "replace") if isinstance(last, bytes) else last
        if written == text.stopped_by or (isinstance(written, str) and END.fullmatch(written)):
            return 0
    stops = text.parameters.get("stop")
    strings = [one for one in (stops if isinstance(stops, list) else [stops]) if isinstance(one, str)]
    if isinstance(text.stopped_by, str):
        strings.append(text.stopped_by)
    return max([1, *(len(string.encode("utf-8", "replace")) for string in strings)])
