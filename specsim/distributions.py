"""Pmfs over a vocabulary: made from weights, reshaped as samplers do, rounded, and synthetic pairs of them.

The last axis of an array is the vocabulary. By the convention of Leviathan, Kalman & Matias (arXiv
2211.17192), **p** is the target's pmf and **q** the draft's."""

from specsim.core.distributions import dyadic, min_p, normalise, synthetic_pair, temperature, top_k, top_p

__all__ = ["dyadic", "min_p", "normalise", "synthetic_pair", "temperature", "top_k", "top_p"]

__dir__ = __all__.copy  # for completion
