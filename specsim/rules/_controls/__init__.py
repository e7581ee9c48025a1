"""Rules that are wrong on purpose: each a mistake that somebody made, for proofs and tests to catch."""
