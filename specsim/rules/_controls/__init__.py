"""Rules that are wrong on purpose, each with a mistake found in practice, for proofs and tests to detect."""
