"""Logged p and q on disk: written by whoever runs a decoder, read for α and for frozen rows.

A trace is a folder: `manifest.json` and shards `shard-00000.safetensors`, …, whose rows are positions. One
*step* of speculative decoding with γ drafted tokens has γ + 1 consecutive rows; the last is the bonus
position. `writer` makes a trace, `open_trace` reads it, `summarise` measures α over it in one streaming pass. Rows are
whole, or truncated to the most probable tokens; then β is an interval, and so is all that follows from it.

`reading.read_alpha` says where α comes from and how sure it is, `checking.audit_log` whether a log's flags and tokens
follow from its own rows, `importing.import_trace` makes a trace of somebody else's log; they are imported by their full
names, since they take longer to load than a trace does to open. `specsim.traces._expected` tells how many tokens a rule would emit.

A log lacks the target's law after any token but the logged one. It answers what the acceptance was along its
own path; it is no audit of the decoder that wrote it.
"""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
