"""Texts in JSON Lines of log-probabilities, as `specsim.traces._importing.jsonl` describes them."""
