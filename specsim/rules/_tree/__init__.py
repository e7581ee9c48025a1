"""Lossless rules for several drafts: trees of tokens."""
