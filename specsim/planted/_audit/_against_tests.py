"""The tests of a comparison of two servers, of all prompts together and of each."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import logsumexp

from specsim.core._types import Ints
from specsim.core.stats import detectable_tv, log_pooled_two_sample_e
from specsim.planted._audit._against_chains import STATES, Chains
from specsim.planted._audit._against_tables import Text, name_of, tables
from specsim.planted._audit._results import TestResult

#: The least standard error of a difference of shares.
LEAST_ERROR = 1e-12


class PromptTexts:
    """What is counted of the texts of one prompt: tables, block by block, and chains."""

    def __init__(self, first: Sequence[Text], length: int):
        self.tables, self.chains = tables(first, length), Chains(first, length)
        self.blocks: list[list[tuple[Ints, Ints]]] = [[] for _ in self.tables]

    def add(self, one: Sequence[Text], other: Sequence[Text]) -> None:
        for table, blocks in zip(self.tables, self.blocks, strict=True):
            blocks.append((table.counts(one), table.counts(other)))
        self.chains.add(one, other)

    def totals(self, i: int) -> tuple[Ints, Ints]:
        """The counts of both servers in table `i`."""
        one, other = (np.sum([block[side] for block in self.blocks[i]], axis=0) for side in (0, 1))
        return one, other


def all_tests(prompts: Sequence[PromptTexts], budget: float) -> list[TestResult]:
    """Tests of the tables and chains, of all prompts together and of each, which share `budget`."""
    numbered = list(enumerate(prompts, 1))
    groups = [(f"prompt {i}", [(i, one)]) for i, one in numbered]
    if len(prompts) > 1:
        groups = [("all prompts", numbered), *groups]
    names = [table.name for table in prompts[0].tables]
    level = budget / (len(groups) * (len(names) + 1))
    found = []
    for group, members in groups:
        found += [_table_test(f"{group}, {name}", members, i, level) for i, name in enumerate(names)]
        found.append(_chains_test(f"{group}, chains of tokens", members, level))
    return found


Numbered = Sequence[tuple[int, PromptTexts]]


def _table_test(name: str, prompts: Numbered, i: int, level: float) -> TestResult:
    log_e = log_pooled_two_sample_e([one.blocks[i] for _, one in prompts])
    sums = [tuple(int(side.sum()) for side in one.totals(i)) for _, one in prompts]
    # Two samples of n count as one of n/2, a third of which estimates the law.
    effective = sum(2.0 * a * b / (a + b) for a, b in sums if a + b) / 3.0
    cells = 1 + sum(len(one.tables[i].cells) for _, one in prompts)
    found = _result(name, sum(a + b for a, b in sums), cells, log_e, level)
    words = _table_words(prompts, i) if found.rejected else ""
    return replace(found, detectable_tv=detectable_tv(cells, effective, level), text=words)


def _chains_test(name: str, prompts: Numbered, level: float) -> TestResult:
    logs = np.sum([one.chains.log_es for _, one in prompts], axis=0)
    texts = sum(int(one.chains.counts[:, 0].sum()) for _, one in prompts)
    found = _result(name, texts, STATES, float(logsumexp(logs) - np.log(len(logs))), level)
    return replace(found, text=_chain_words(prompts)) if found.rejected else found


def _result(name: str, n: int, cells: int, log_e: float, level: float) -> TestResult:
    log10_e = float(max(log_e, -99.0) / np.log(10.0))
    return TestResult(name, n, cells, log10_e, rejected=bool(log_e >= -np.log(level)))


def _table_words(prompts: Numbered, i: int) -> str:
    """The outcome of table `i` whose shares differ most, in standard errors."""
    best = (-1.0, "")
    for number, prompt in prompts:
        score, cell, shares = _largest(*prompt.totals(i))
        best = max(best, (score, f"prompt {number}: {name_of(prompt.tables[i], cell)} {shares}"))
    return best[1]


def _chain_words(prompts: Numbered) -> str:
    """The token after a token whose shares differ most, in standard errors."""
    best = (-1.0, "")
    for number, prompt in prompts:
        chains = prompt.chains
        for place, before in np.ndindex(chains.counts.shape[1:3]):
            score, state, shares = _largest(*chains.counts[:, place, before])
            if score > best[0]:
                after = f" after {chains.name_of(place - 1, before)}" if place else ""
                token = chains.name_of(place, state)
                best = score, f"prompt {number}, token {place + 1}{after}: {token} {shares}"
    return best[1]


def _largest(one: Ints, other: Ints) -> tuple[float, int, str]:
    """The cell whose shares differ most: by how many standard errors, which one, and the shares in words."""
    n, m = max(1, one.sum()), max(1, other.sum())
    pooled = (one + other) / (n + m)
    error = np.sqrt(np.maximum(pooled * (1.0 - pooled), 0.0) * (1.0 / n + 1.0 / m))
    scores = np.abs(one / n - other / m) / np.maximum(error, LEAST_ERROR)
    cell = int(scores.argmax())
    shares = f"{one[cell] / n:.4f} at the first server, {other[cell] / m:.4f} at the second"
    return float(scores[cell]), cell, shares
