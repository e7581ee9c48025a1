"""Traces recorded along real speculative trajectories: of two models of ours, or of two of Hugging Face's.

Each step goes on where the last one ended, so the contexts met are those of the target's own text.
"""

from __future__ import annotations

from specsim.recording.huggingface import record_hf
from specsim.recording.models import STEPS_PER_TEXT, record

__all__ = ["STEPS_PER_TEXT", "record", "record_hf"]
