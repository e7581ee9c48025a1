"""Policies that use accepted lengths only: a constant γ, and Hugging Face's heuristic."""

from __future__ import annotations

from dataclasses import dataclass

from specsim.core._checks import check_count
from specsim.planning.costs import StepCost
from specsim.planning.policies._policy import Drafted, PlannedPolicy, Policy


@dataclass
class Constant(Policy):
    """γ = `gamma` ≥ 1 tokens in every step (Leviathan et al., arXiv 2211.17192)."""

    gamma: int = 5

    planned = True
    counts = ("gamma",)

    def __str__(self) -> str:
        return f"constant {self.gamma}"

    def more(self, step: Drafted) -> bool:
        return step.size < self.gamma


@dataclass
class Heuristic(PlannedPolicy):
    """γ + 2 after a step whose drafts were all accepted, else γ - 1, at least 1; no upper limit.

    The schedule "heuristic" of Hugging Face transformers (`update_candidate_strategy` in
    generation/candidate_generator.py), which keeps γ between calls of `generate`. For "heuristic_transient",
    which resets γ to `gamma` in each call, set `call`, the tokens per call. The default `gamma` there was 5,
    later 20.
    """

    gamma: int = 5
    call: int | None = None

    counts = ("gamma",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.call is not None:
            check_count("call", self.call)

    def __str__(self) -> str:
        return "HF heuristic" if self.call is None else f"HF heuristic, transient in calls of {self.call}"

    def reset(self, cost: StepCost) -> None:
        self._gamma, self._emitted = self.gamma, 0

    def learn(self, step: Drafted, accepted: int) -> None:
        self._gamma = self._gamma + 2 if accepted == step.size else max(1, self._gamma - 1)
        self._emitted += accepted + 1
        if self.call is not None and self._emitted >= self.call:
            self._gamma, self._emitted = self.gamma, 0
