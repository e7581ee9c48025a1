# %% [markdown]
# # Choose a method
#
# Drafting systems differ in what they draft (a chain, a tree, a copy from the text), in the rule that
# verifies it, and in what a step costs. Which of them suits a pair of models, one request or a full
# server? This notebook answers that for the log that comes with specsim, and for the models that it was
# recorded from.

# %%
import matplotlib.pyplot as plt
import numpy as np

import specsim
from specsim import draft_log, simulate_policies
from specsim.planning import (
    Constant,
    Goodput,
    LoggedLengths,
    compare_methods,
    every_policy,
    get_method,
    method_names,
    preset,
    sweep_batch,
)
from specsim.traces import default_trace, summarise

plt.style.use("specsim.style")

# %% [markdown]
# ## What the log says
#
# A log of p and q has the rates at which drafted tokens were accepted. The chain of four that was logged
# is a method already; how many steps accepted 0, 1, … of its tokens is what a server will need below.

# %%
trace = default_trace()
log = summarise(trace, progress=False)
print(log)
lengths = np.array(log.accepted_lengths)
print("accepted 0, 1, … of four, share of steps:", np.round(lengths / lengths.sum(), 3))

# %% [markdown]
# Its rows are cut to their sixteen most probable tokens, which is enough for these counts. Policies that
# stop drafting early read the draft's confidence too. So they get a text of the models behind the log,
# with the same drafts and the same tests. With a draft's pass at a twentieth of the target's:

# %%
pair = specsim.default_pair()
train, test = draft_log(*pair, 20_000, rng=1).split(0.25)
policies = simulate_policies(test, every_policy(train, test), draft_cost=0.05)
assert max(policies, key=lambda one: one.speedup).policy == "oracle"
policies

# %% [markdown]
# The log does not answer for trees. It has p only along the text that was written, and a tree asks for p
# after tokens that were not. A method says so:

# %%
try:
    specsim.simulate(trace, method="eagle2", steps=1000)
except ValueError as error:
    print(error)

# %% [markdown]
# ## Every method on the models
#
# With the models themselves all of them run, by their names. For each, the list has its paper, what is
# modelled and what is not. Parameters follow a colon.

# %%
print(", ".join(method_names()))
eagle = get_method("eagle2:nodes=30")
print(f"\n{eagle}, {eagle.citation}\n{eagle.modelled}\nnot modelled: {eagle.left_out}")

# %% [markdown]
# *Cost* is that of a roofline, a target with the dimensions of LLaMA-7B on one A100; no pass is timed.
# *Speed* is tokens per step over cost. All draft from the rows of one 2-gram model, where each has a drafter
# of its own: this is no ranking of the published systems.
#
# Three kinds are apart. *Lossless* ones can be compared with each other. *Assumed* ones are lossless too, but
# their draft is the pair's moved towards the target by a number that was chosen, `nearer`. *Lossy* ones
# change the distribution of the text.

# %%
alone = compare_methods(*pair, batch=1, steps=1000, rng=1, progress=False)
alone

# %%
alone.plot()
plt.show()

# %% [markdown]
# What the assumption does: EAGLE-3 with other values of `nearer`, 0 for the pair's own draft.

# %%
for nearer in (0, 0.15, 0.3, 0.45):
    run = specsim.simulate(*pair, method=f"eagle3:nearer={nearer}", steps=1000, rng=1, progress=False)
    print(
        f"eagle3:nearer={nearer}: {run.tokens_per_step:.2f} ± {run.tokens_per_step_error:.2f} tokens per step"
    )

# %% [markdown]
# ## The same with 64 requests at once
#
# Tokens that came for free at one request fill the target's passes now. Large trees pay for what they do
# not use, and lose. Methods that draft little keep something. These are the lossless ones that assume
# nothing:

# %%
full = compare_methods(*pair, batch=64, steps=1000, rng=1, progress=False)
before = {one.method: one.speed for one in alone.entries}
lossless = [one for one in full.entries if one.tv == 0 and "nearer=" not in one.method]
for one in sorted(lossless, key=lambda entry: -entry.speed):
    name = one.method.partition(":")[0]
    print(f"{name:18} {one.drafted:3} drafted  {before[one.method]:5.2f} -> {one.speed:5.2f}")
fastest = max(lossless, key=lambda one: before[one.method])
assert before[fastest.method] > 2.0 > 1.0 > fastest.speed

# %% [markdown]
# ## A server with the log's acceptance
#
# Here batches are full, with the accepted lengths of the log, on a target of 8 billion parameters with
# its draft on one H100. The tables show where a chain of four stops paying, and what a policy keeps that
# drafts less in large batches. With a `rate`, requests come, wait and leave.

# %%
sizes = [1, 8, 32, 64, 128, 256]
settings = {"alpha": LoggedLengths(lengths), "prefill": False, "requests": 2560, "rng": 1, "progress": False}
cost, over = preset("llama-8b"), {"max_batch": sizes}
four = sweep_batch(cost, Constant(4), over=over, **settings)
chosen = sweep_batch(cost, Goodput(max_gamma=4), over=over, **settings)
figure, axis = plt.subplots(figsize=(5.5, 3.0))
for sweep, name, style in ((four, "γ = 4", "o-"), (chosen, "goodput", "s--")):
    gains = [sweep.capacity_gain(i).mean for i in range(len(sizes))]
    axis.plot(sizes, gains, style, label=name)
axis.axhline(1.0, color="black", linestyle=":", linewidth=1)
axis.set(xscale="log", xlabel="requests in a batch", ylabel="gain in capacity", xticks=sizes)
axis.set_xticklabels(sizes)
axis.legend()
plt.show()
gained = [sweep.capacity_gain(0).mean for sweep in (four, chosen)]
assert min(gained) > 1.0 > four.capacity_gain(len(sizes) - 1).mean

# %% [markdown]
# ## A method, decoding
#
# The names that were compared decode, too; here the fastest of the lossless ones above. Whatever is drafted,
# the text has the target's distribution.

# %%
text = specsim.generate(*pair, b"import ", max_new_tokens=200, method=fastest.method, rng=1)
print(bytes(text.tokens).decode(errors="replace")[:160], "\n")
assert text.tokens_per_iteration > 1.5
text

# %% [markdown]
# At the command line these are `specsim compare ngram --methods all --batch 64`, `specsim plan FOLDER --c
# 0.05 --policies`, `specsim simulate-batch --lengths … --over max_batch=1,64,256` and `specsim generate
# --method eagle3`.
