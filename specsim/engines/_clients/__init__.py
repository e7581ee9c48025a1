"""Connections to serving engines, one file each. An engine's package is imported where its engine is opened.

`_requests.py` has what all of them are asked and answer, `_opening.py` their names."""
