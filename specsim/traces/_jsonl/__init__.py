"""Texts in JSON Lines of log-probabilities, as `specsim.traces._importing.jsonl` describes them.

`rows.py` parses lines, `parsers.py` has processes that do so, and `texts.py` reads the texts of a file in
order."""
