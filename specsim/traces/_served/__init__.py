"""Logs of served responses: reading them, and testing their tokens against their own log-probabilities.

`formats.py` reads the responses in a line, `conditions.py` says which of them can be tested, `places.py` maps
tokens to uniforms, `counting.py` counts and tests these, `result.py` has the verdict, and `audit.py` the
function.
"""
