"""Texts in JSON Lines of log-probabilities, as docs/importing-logs.md describes them."""
