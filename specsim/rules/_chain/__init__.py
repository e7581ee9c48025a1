"""Lossless rules for a single draft, a chain of tokens."""
