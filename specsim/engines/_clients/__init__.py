"""Connections to serving engines, one file each. An engine's package is imported where its engine is opened.

`opening.py` has their names, `running.py` what those in this process share."""
