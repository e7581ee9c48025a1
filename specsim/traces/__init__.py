"""Logged p and q on disk: traces of speculative decoding, from which α is measured and rows are simulated.

A trace is a folder: `manifest.json` and shards `shard-00000.safetensors`, …, whose rows are positions. One
*step* of speculative decoding with γ drafted tokens has γ + 1 consecutive rows; the last is the bonus
position. Rows are whole, or truncated to the most probable tokens; then β is an interval, and so is every
number computed from it. Every row has a checksum, and so have each shard and the manifest; altered data are
refused, with their place.

`writer` makes a trace, `specsim.open_trace` reads it, `import_trace` converts other programs' logs.
`summarise` measures α in one streaming pass; `read_alpha` adds confidence intervals and α by position;
`audit_log` checks that a log's flags and tokens follow from its own rows; `expect_tokens` computes how many
tokens a rule would emit.

A log lacks the target's distribution after any token but the logged one. A trace shows the acceptance along
its own path; it does not audit the decoder that wrote it. `specsim.audit_served` reads another kind of log,
the responses of a server with their log-probabilities, and tests whether each emitted token follows its
row."""

import lazy_loader as _lazy

__getattr__, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)
