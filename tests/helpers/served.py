"""Logs of served responses as each server writes them, of texts whose law the tests know."""

import json
import math

import numpy as np

__all__ = ["FORMATS", "Served", "log_lines", "target_rows", "write_log"]

V, GAMMA = 40, 3
NAMES = [f"t{i}" for i in range(V)]


def target_rows(rng, count, sharpness=1.5):
    """Rows of a target [count, V], of different entropies."""
    logits = rng.normal(size=(count, V)) * rng.uniform(0.5, 2 * sharpness, size=(count, 1))
    return np.exp(log_softmax(logits))


def log_softmax(logits):
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def draft_rows(p, rng):
    """Rows of a draft near `p`, and flatter."""
    return np.exp(log_softmax(0.7 * np.log(p) + 0.8 * rng.normal(size=p.shape)))


def choose(rows, rng):
    """A token from each row."""
    return (rows.cumsum(axis=1) < rng.random((len(rows), 1)) * rows.sum(axis=1, keepdims=True)).sum(axis=1)


class Served:
    """Texts of a server: `rows` [n, V] as they are logged, and the `tokens` that came."""

    def __init__(self, texts=40, length=60, seed=0, how="right"):
        rng = np.random.default_rng(seed)
        count = texts * length
        self.p = target_rows(rng, count)
        self.tokens = choose(self.p, rng)
        if how == "draft":
            self.tokens = choose(draft_rows(self.p, rng), rng)
        elif how == "cold":  # served at temperature 0.9
            self.tokens = choose(self.p ** (1 / 0.9), rng)
        elif how == "greedy bonus":
            last = np.arange(count) % (GAMMA + 1) == GAMMA
            self.tokens = np.where(last, self.p.argmax(axis=1), self.tokens)
        elif how == "greedy":
            self.tokens = self.p.argmax(axis=1)
        self.logs = log_softmax(np.log(self.p)).astype(np.float32).astype(float)
        if how == "shifted":
            self.logs = np.roll(self.logs, 1, axis=0)
        self.own = self.logs[np.arange(count), self.tokens]
        if how == "zeros":
            self.own = np.zeros(count)
        self.length = length

    def __iter__(self):
        """For each text its tokens, their log-probabilities, and the rows."""
        for first in range(0, len(self.tokens), self.length):
            part = slice(first, first + self.length)
            yield self.tokens[part].tolist(), self.own[part].tolist(), self.logs[part]


def top(row, k):
    return [(int(x), float(row[x])) for x in np.argsort(-row, kind="stable")[:k]]


def completion(tokens, own, rows, k, ids=False):
    """OpenAI's completions, and vLLM's: the emitted token first, k or k + 1 entries in each list."""
    name = (lambda x: f"token_id:{x}") if ids else NAMES.__getitem__
    lists = [
        {name(x): logprob} | {name(y): value for y, value in top(row, k)}
        for x, logprob, row in zip(tokens, own, rows, strict=True)
    ]
    return {"tokens": [name(x) for x in tokens], "token_logprobs": own, "top_logprobs": lists}


def chat(tokens, own, rows, k, displaced=False):
    """A chat's content; vLLM's has the emitted token in the list, and drops the last of them for it."""

    def entry(x, logprob):
        return {"token": NAMES[x], "logprob": logprob, "bytes": [*NAMES[x].encode()]}

    content = []
    for x, logprob, row in zip(tokens, own, rows, strict=True):
        listed = top(row, k)
        if displaced and x not in dict(listed):
            listed = [(x, logprob), *listed[:-1]]
        content.append({**entry(x, logprob), "top_logprobs": [entry(*one) for one in listed]})
    return {"content": content}


def sglang(tokens, own, rows, k):
    return {
        "output_token_logprobs": [[logprob, x, None] for x, logprob in zip(tokens, own, strict=True)],
        "output_top_logprobs": [[[value, y, None] for y, value in top(row, k)] for row in rows],
        "finish_reason": {"type": "length", "length": len(tokens)},
    }


def llama(tokens, own, rows, k):
    def entry(x, logprob):
        return {"id": x, "token": NAMES[x], "bytes": [1], "logprob": logprob}

    return [
        {**entry(x, logprob), "top_logprobs": [entry(*listed) for listed in top(row, k)]}
        for x, logprob, row in zip(tokens, own, rows, strict=True)
    ]


def old_llama(tokens, own, rows, k):
    probs = [[{"tok_str": NAMES[y], "prob": math.exp(value)} for y, value in top(row, k)] for row in rows]
    return [{"content": NAMES[x], "probs": each} for x, each in zip(tokens, probs, strict=True)]


ASKED = {"temperature": 1.0}
END = {"finish_reason": "length", "index": 0}
PLAIN = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 2**32 - 1, "grammar": ""}
ENDED = {"stop_type": "limit", "generation_settings": PLAIN}

FORMATS = {
    "completions": lambda *text: {
        "request": {**ASKED, "logprobs": text[3]},
        "response": {"choices": [{"logprobs": completion(*text), **END}]},
    },
    "completions alone": lambda *text: {"choices": [{"logprobs": completion(*text), **END}], **ASKED},
    "vllm ids": lambda *text: {
        "choices": [{"logprobs": completion(*text, ids=True), **END, "prompt_logprobs": None}],
        "body": ASKED,
    },
    "chat": lambda *text: {
        "body": ASKED,
        "response": {"body": {"choices": [{"logprobs": chat(*text), **END}]}},
    },
    "vllm chat": lambda *text: {
        "request": {"body": ASKED},
        "choices": [{"logprobs": chat(*text, displaced=True), **END}],
    },
    "sglang": lambda *text: {"sampling_params": ASKED, "text": "", "meta_info": sglang(*text)},
    "llama.cpp": lambda *text: {"completion_probabilities": llama(*text), **ENDED},
    "old llama.cpp": lambda *text: {"completion_probabilities": old_llama(*text), **ENDED},
}


def log_lines(served, format, k=12):
    """The lines of a log."""
    return [FORMATS[format](tokens, own, rows, k) for tokens, own, rows in served]


def write_log(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path
