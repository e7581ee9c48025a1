# %% [markdown]
# # Audit your verifier
#
# You have a function that accepts and rejects drafted tokens, perhaps a kernel behind it, and want to
# know whether the tokens still have the target's distribution. A verifier is a function of arrays, and
# row b of each belongs to one step:
#
#     verifier(draft_tokens int64[B, γ], p float64[B, γ+1, V], q float64[B, γ, V], rng) -> int[B, γ+1]
#
# The result holds the accepted tokens and one more, then −1. `docs/auditing-your-engine.md` lists what it
# may declare.

# %%
import matplotlib.pyplot as plt
import numpy as np

import specsim
from specsim.auditing import LEVELS, replay_step

plt.style.use("specsim.style")

# %% [markdown]
# Here is one as an engine would write it, without a loop over rows. It has the classic mistake: after a
# rejection the token is drawn from p, not from the residual.


# %%
def emit(draft_tokens, accepted, weights, rng):
    """The accepted tokens, one more by inverse CDF from weights [B, V], then -1."""
    steps, gamma = draft_tokens.shape
    sums = weights.cumsum(axis=1)
    last = (sums > rng.random((steps, 1)) * sums[:, -1:]).argmax(axis=1)
    output = np.full((steps, gamma + 1), -1)
    output[:, :gamma] = np.where(np.arange(gamma) < accepted[:, None], draft_tokens, -1)
    output[np.arange(steps), accepted] = last
    return output


def accepted_length(draft_tokens, p, q, rng):
    """How many drafted tokens pass before the first that does not: u · q < p."""
    steps, gamma = draft_tokens.shape
    at = np.arange(steps)[:, None], np.arange(gamma), draft_tokens
    passed = rng.random((steps, gamma)) * q[at] < p[at]
    return passed.cumprod(axis=1).sum(axis=1)


def verify(draft_tokens, p, q, rng):
    accepted = accepted_length(draft_tokens, p, q, rng)
    return emit(draft_tokens, accepted, p[np.arange(len(p)), accepted], rng)


# %% [markdown]
# It looks right on one step, and any single output of it is possible:

# %%
rng = np.random.default_rng(1)
p, q = np.array([[[0.5, 0.3, 0.2]] * 3]), np.array([[[0.2, 0.3, 0.5]] * 2])
for _ in range(4):
    print(verify(np.array([[2, 0]]), p, q, rng))

# %% [markdown]
# ## The audit
#
# Level *smoke* takes seconds. At every level the audit calls a right verifier biased with probability at
# most one in a million. A deeper level finds smaller deviations. The table's *detectable TV* says how
# small.

# %%
for level, steps in LEVELS.items():
    print(f"{level}: {steps.verifier:,} steps a case")
audit = specsim.audit(verify, level="smoke", rng=1)
assert audit.verdict == "biased"
audit

# %% [markdown]
# One finding as a picture: the first token of a step in the case *asymmetric*. A right verifier makes up
# for the tokens that the draft neglects after a rejection. This one does not, and emits the token that
# the draft favours too often.

# %%
case = next(case for case in audit.cases if case.case == "asymmetric")
table = next(table for table in case.tables if table.position == 0 and table.kind == "prefix")
places = np.arange(table.cells)
figure, axis = plt.subplots(figsize=(6.0, 2.6))
axis.bar(places - 0.2, np.divide(table.expected, table.n), width=0.4, color="C0", label="target p")
hatched = {"hatch": "///", "edgecolor": "white"}
axis.bar(places + 0.2, np.divide(table.observed, table.n), width=0.4, color="C1", label="observed", **hatched)
axis.set(xlabel="first token", ylabel="share", xticks=places)
axis.legend()
plt.show()

# %% [markdown]
# ## The diagnosis
#
# The diagnosis names the known mistake, from a catalogue of reported bugs. It gives its odds against all
# others, and the evidence. The last line names one step that shows the mistake. For a verifier in a file
# that line is a command. Here, call `replay_step` with its case, step and seed:

# %%
print("\n".join(audit.diagnosis.lines()))
assert audit.diagnosis.named[0].name == "resamples_target"

# %%
print(replay_step(verify, "diagnosis, zeros", step=33, rng=1))

# %% [markdown]
# Token 4 was drafted and rejected, and token 1 came instead. It has q > p: the residual (p − q)₊ is 0
# there, so no exact token-wise verifier gives it after a rejection.
#
# ## Repaired


# %%
def repaired(draft_tokens, p, q, rng):
    accepted = accepted_length(draft_tokens, p, q, rng)
    last = np.arange(len(p)), accepted
    beyond = np.zeros((len(q), 1, q.shape[2]))  # no draft at the bonus: its residual is p
    residual = np.maximum(p[last] - np.concatenate([q, beyond], axis=1)[last], 0.0)
    weights = np.where(residual.any(axis=1, keepdims=True), residual, p[last])  # all 0 only by rounding
    return emit(draft_tokens, accepted, weights, rng)


audit = specsim.audit(repaired, level="smoke", rng=1)
assert audit.verdict == "consistent"
audit

# %% [markdown]
# *Consistent* means that the audit found no deviation, down to the detectable TV. specsim calls *exact*
# only what it has proved. The same seed drew the same drafts for both. In a test suite write
# `specsim.testing.assert_exact(verify)`, at the command line `specsim audit module:function`. For more
# certainty choose `level="quick"` or `"standard"`.
