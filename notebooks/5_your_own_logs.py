# %% [markdown]
# # Your own logs
#
# A trace holds what a decoder saw: for each speculative step the drafted tokens, how many were accepted,
# and the rows p and q at every position. This notebook records one from the bundled n-gram pair, into a
# temporary folder. An engine writes the same with `specsim.traces.writer`. It then shows α by position, a
# plan, policies that choose γ, and a test whether reported numbers can be true.

# %%
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np

import specsim
from specsim.decoding import record
from specsim.planning import SVIP, ConfidenceThreshold, Constant, Goodput, Heuristic, Oracle, log_from_trace
from specsim.traces import summarise

plt.style.use("specsim.style")
folder = TemporaryDirectory()

# %% [markdown]
# ## Record, and open
#
# Each step begins where the one before ended, so the contexts are those of the target's own text. The
# rows are stored in float32 and memory-mapped when read. Every row has a checksum.

# %%
target, draft = specsim.default_pair()
record(Path(folder.name) / "trace", target, draft, gamma=5, steps=2000, rng=1)
trace = specsim.open_trace(Path(folder.name) / "trace")
print(
    f"{trace.num_steps:,} steps of γ = {trace.gamma}, {trace.num_bytes / 1e6:.1f} MB, whole: {trace.complete}"
)
assert all(shard.ok for shard in trace.verify())

# %% [markdown]
# ## α by position
#
# One run has three α: the mean of Σ min(p, q) over the contexts of the text, accepted / tested, and
# accepted / drafted, which engines report. The textbook formula (1 − α^(γ+1))/(1 − α) takes acceptances
# to be independent and alike. They are not. With the α that engines report the formula is far off. With
# the others it comes near by luck of this pair. Rates by position always give the measured number.

# %%
summary = summarise(trace)
summary

# %%
for name in ("alpha_context", "alpha_verified", "alpha_drafted"):
    alpha = getattr(summary, name)
    print(f"{name:14} {alpha:.3f}: formula {specsim.theory.expected_tokens(alpha, 5):.3f} tokens per step")
by_position = specsim.theory.expected_tokens_by_position(summary.alpha_by_position)
print(f"measured {summary.tokens_per_step:.3f}; by position {by_position:.3f}")
assert np.isclose(by_position, summary.tokens_per_step)

# %% [markdown]
# A token is tested where those before it were accepted, and these are the easy places of the text. So the
# acceptance rate rises along a step. β is the mean of Σ min(p, q) over the same steps. The two agree if
# the engine sampled from the rows that it logged. In a log of your own, look at this first.

# %%
rates, betas = summary.alpha_by_position, summary.beta_by_position[:-1]
errors = np.sqrt(rates * (1 - rates) / summary.tested_by_position)
positions = np.arange(1, trace.gamma + 1)
figure, axis = plt.subplots(figsize=(5.0, 2.8))
axis.errorbar(positions, rates, 2 * errors, fmt="o", color="C0", capsize=3, label="α, ± 2 standard errors")
axis.plot(positions, betas, "_", color="C1", markersize=20, markeredgewidth=2, label="mean β")
axis.axhline(summary.alpha_drafted, color="#8a8a8a", linestyle=":", label="α drafted")
axis.set(xlabel="position in the step", ylabel="acceptance", ylim=(0, 0.9), xticks=positions)
axis.legend(loc="upper left")
plt.show()
assert (abs(rates - betas) < 5 * errors).all()

# %% [markdown]
# A trace of two small transformers is bundled too. They sampled from their 20 most probable tokens, which
# the rows list in float16. The bounds of β are those of rounding.

# %%
neural = summarise(specsim.traces.default_trace("transformers"))
neural

# %% [markdown]
# ## A plan
#
# From the rates by position, with a draft that takes a twentieth of the target's time. Beyond the logged
# γ the plan uses the last rate.

# %%
plan = specsim.plan(rates, c=0.05)
plan

# %% [markdown]
# ## Policies
#
# The plan is a constant γ. A policy may choose it anew in every step, or look at what it has drafted and
# stop where the draft is unsure. Each one walks the same log. A trace does not know what comes after a
# rejected token. It cuts steps of policies that look at tokens there, and their time comes out too small.
# The last column says how often. The oracle knows what will be accepted, and bounds them all.

# %%
log = log_from_trace(trace)
policies = [
    *(Constant(gamma) for gamma in (1, 2, 3, 5)),
    Heuristic(),
    Goodput(max_gamma=5),
    ConfidenceThreshold(max_gamma=5),
    SVIP(max_gamma=5),
    Oracle(max_gamma=5),
]
runs = specsim.simulate_policies(log, policies, draft_cost=0.05)
assert max(runs, key=lambda run: run.speedup).policy == "oracle"
runs

# %% [markdown]
# The plan and the constants differ by little: rates by position were measured in steps of γ = 5, and a
# shorter γ begins its steps at other places of the text. Two thousand steps do not say which γ is best by
# a hair, as the errors show.
#
# ## Can the numbers be true?
#
# These are the numbers that an engine would print of this run. All statements hold, and others follow:

# %%
reported = {
    "gamma": 5,
    "steps": summary.num_steps,
    "drafted": summary.drafted,
    "accepted": summary.accepted,
    "tokens_per_step": f"{summary.tokens_per_step:.2f}",
}
right = specsim.check_metrics(engine="vllm", acceptance_rate=f"{summary.alpha_drafted:.1%}", **reported)
assert right.possible
right

# %% [markdown]
# With another α in the place of the acceptance rate, an easy mistake in a table of results, they cannot
# all be:

# %%
wrong = specsim.check_metrics(engine="vllm", acceptance_rate=f"{summary.alpha_verified:.1%}", **reported)
assert not wrong.possible
wrong

# %%
folder.cleanup()
