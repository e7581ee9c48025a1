"""Measures the decoders of fifth_decoders.py against the exact law of the target and writes fifth_measured.json.

For each decoder and each pair of random second-order models it runs two prompts in turn, in one stretch (state that a
decoder keeps between calls stays), and compares the joint law of the whole answer, three new tokens at most, with the
target's. Cells with too many hits are chosen on one half of the runs and their excess is taken on the other half, and
the other way round; the mean of both is not biased upwards. An answer that the target can not give is a cell of chance
zero. Rows are written to fifth_measured.json one by one.
"""

import json
import time
from collections import Counter
from pathlib import Path

import numpy as np

import fifth_decoders as decoders

HERE = Path(__file__).resolve().parent
PROMPTS = ([0, 1, 2], [2, 0, 0])
RUNS = 20_000
SETTINGS = {  # name: (seed, vocabulary, eos, max_new_tokens)
    "V=3 without eos": (501, 3, None, 3),
    "V=4 without eos": (502, 4, None, 3),
    "V=4 with eos 3": (503, 4, 3, 3),
}
LONG = {"V=3, five tokens": (504, 3, None, 5), "V=3 with eos 1, five tokens": (505, 3, 1, 5)}


def models(seed, size):
    """A random target and a draft that is 30 per cent the target, both looking at the last two tokens."""
    rng = np.random.default_rng(seed)
    target_rows = rng.dirichlet(np.full(size, 0.8), size=(size + 1, size + 1))
    other_rows = rng.dirichlet(np.full(size, 0.8), size=(size + 1, size + 1))
    draft_rows = 0.3 * target_rows + 0.7 * other_rows

    def model(rows):
        rows.flags.writeable = False

        def row(text):
            return rows[text[-2] if len(text) > 1 else size, text[-1] if text else size]

        return row

    return model(target_rows), model(draft_rows)


def exact_law(target, prompt, limit, eos):
    """The chance of each answer by the target."""
    law, open_answers = {}, {(): 1.0}
    for _ in range(limit):
        following = {}
        for answer, chance in open_answers.items():
            for token, part in enumerate(target(list(prompt) + list(answer))):
                place = law if token == eos else following
                place[answer + (token,)] = chance * part
        open_answers = following
    return {**law, **open_answers}


def excess(counts, law):
    """(Unbiased lower estimate of the total variation, its spread if the decoder is right) from two halves."""
    parts, spreads = [], []
    for first, second in ((0, 1), (1, 0)):
        runs = [sum(half.values()) for half in counts]
        cells = {cell for cell, hits in counts[first].items() if hits / runs[first] > law.get(cell, 0.0)}
        chance = sum(law.get(cell, 0.0) for cell in cells)
        parts.append(sum(counts[second][cell] for cell in cells) / runs[second] - chance)
        spreads.append(np.sqrt(max(chance * (1 - chance), 0.0) / runs[second]))
    return float(np.mean(parts)), float(np.mean(spreads))


def measure(decoder, seed, size, eos, limit, runs=RUNS):
    """(Total variation, spread), the mean over the prompts."""
    target, draft = models(seed, size)
    counts = [[Counter(), Counter()] for _ in PROMPTS]
    rng = np.random.default_rng(seed + 1000)
    decoders.reset()
    for run in range(runs):
        which = run % len(PROMPTS)
        answer = decoder(target, draft, list(PROMPTS[which]), limit, eos, rng)
        assert all(type(token) is int for token in answer)
        counts[which][run // len(PROMPTS) % 2][tuple(answer)] += 1
    decoders.reset()
    found = [excess(pair, exact_law(target, prompt, limit, eos)) for pair, prompt in zip(counts, PROMPTS)]
    return float(np.mean([tv for tv, _ in found])), float(np.mean([s for _, s in found])) / np.sqrt(
        len(found)
    )


def row_of(entry, kind, settings):
    """One row of fifth_measured.json; a complaint is printed where the figures do not fit the kind."""
    found = {name: measure(getattr(decoders, entry["name"]), *setting) for name, setting in settings.items()}
    best = max(found, key=lambda name: found[name][0])
    tv, spread = found[best]
    figures = ", ".join(f"{name}: {value:.3f}" for name, (value, _) in found.items())
    measured = (
        f"{RUNS} runs a setting over two prompts, unbiased split-half excess ({figures}); spread {spread:.4f}"
    )
    fits = tv > max(0.03, 5 * spread) if kind == "wrong decoder" else tv < 3.5 * spread
    print(
        f"{'' if fits else 'DOES NOT FIT '}{entry['name']} {tv:.3f} +- {spread:.4f} ({figures})", flush=True
    )
    return {
        "name": entry["name"],
        "kind": kind,
        "tv": round(tv, 3) if kind == "wrong decoder" else 0.0,
        "mechanism": entry["mechanism"],
        "measured": measured,
    }


def main():
    start = time.process_time()
    assert len(decoders.ENTRIES) == 28 and len(decoders.RIGHT) == 6
    path = HERE / "fifth_measured.json"
    rows = []
    tasks = [(entry, "wrong decoder", SETTINGS) for entry in decoders.ENTRIES]
    tasks += [(entry, "right decoder", {**SETTINGS, **LONG}) for entry in decoders.RIGHT]
    for task in tasks:
        rows.append(row_of(*task))
        path.write_text(json.dumps({"rows": rows}, indent=1) + "\n")
    print(f"{time.process_time() - start:.0f} seconds of CPU")


if __name__ == "__main__":
    main()
