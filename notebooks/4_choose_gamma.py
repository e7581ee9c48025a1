# %% [markdown]
# # Choose γ
#
# How many tokens to draft in a step depends on how often they are accepted, and on what drafting and
# verifying cost. This notebook has the closed form, its sensitivity, a cost model of real hardware, and
# sliders at the end.

# %%
from io import BytesIO

import matplotlib.pyplot as plt
import numpy as np
from ipywidgets import FloatLogSlider, FloatSlider, Image, IntSlider, Layout, VBox
from matplotlib.figure import Figure

import specsim
from specsim.planning import (
    Candidate,
    ConstantRatio,
    Hardware,
    Network,
    Roofline,
    best_gamma,
    critical_context,
    improvement,
)

plt.style.use("specsim.style")

# %% [markdown]
# ## From two numbers
#
# α is the probability that a drafted token is accepted, c the time of a draft's pass over that of a
# target's. If γ + 1 tokens are verified in the time of one, a step takes γc + 1 and emits (1 −
# α^(γ+1))/(1 − α) tokens. The improvement is over the target alone; *operations* is the arithmetic
# relative to it.

# %%
plan = specsim.plan(alpha=0.8, c=0.05)
plan

# %% [markdown]
# Neither number is known exactly. For other values of them, the table has the γ that would be best, and
# how much of its gain the planned γ keeps.

# %%
for shift in plan.sensitivity:
    kept = f"γ = {plan.best.gamma} keeps {shift.kept / shift.improvement:.1%}"
    print(f"{shift.what:>8}: best γ = {shift.gamma:2}, {shift.improvement:.2f} times; {kept}")

# %% [markdown]
# The maximum is flat, so a γ that is a little off costs little. Four tokens too many cost less than four
# too few.

# %%
gammas = np.arange(21)
figure, axis = plt.subplots(figsize=(5.5, 3.0))
for alpha, color in zip((0.6, 0.7, 0.8, 0.9), ("C0", "C1", "C2", "C3"), strict=True):
    choices = specsim.plan(alpha, c=0.05).choices[:21]
    best = max(choices, key=lambda choice: choice.improvement)
    axis.plot(gammas, [choice.improvement for choice in choices], color=color, label=f"α = {alpha}")
    axis.plot(best.gamma, best.improvement, "o", color=color)
    assert choices[best.gamma + 4].improvement > choices[best.gamma - 4].improvement
axis.axhline(1.0, color="black", linestyle=":", linewidth=1)
axis.set(xlabel="γ", ylabel="improvement, c = 0.05", xticks=gammas[::4])
axis.legend(loc="upper left", ncols=2)
plt.show()

# %% [markdown]
# ## Which of several drafts
#
# A draft that is accepted more often is mostly a slower one. Each at its own best γ, with the interval
# that its counts allow:

# %%
ranked = specsim.rank_drafts(
    [
        Candidate.of_counts("small", accepted=7_520, tested=10_000, c=0.02),
        Candidate.of_counts("middle", accepted=8_010, tested=10_000, c=0.05),
        Candidate.of_counts("large", accepted=8_540, tested=10_000, c=0.12),
    ]
)
assert ranked[0].candidate.name == "small"
ranked

# %% [markdown]
# ## Your hardware
#
# Verification is free only while passes are bound by memory. A roofline takes the slower of reading
# weights and caches, and of arithmetic. Put in what your machine attains rather than what its data sheet
# says, and your models: parameters, bytes of each, and bytes of cache for a token of context, 2 · layers
# · heads of the cache · their size · bytes.

# %%
hardware = Hardware(bandwidth=2.5e12, flops=5e14)
target = Network(parameters=8e9, cache_bytes_per_token=2 * 32 * 8 * 128 * 2)
draft = Network(parameters=1.2e9, cache_bytes_per_token=2 * 16 * 8 * 64 * 2)
for batch in (1, 8, 32, 128, 512):
    cost = Roofline(target, draft, hardware, batch=batch, context=1000)
    gamma = best_gamma(cost, alpha=0.8)
    gain = improvement(cost, alpha=0.8, gamma=gamma)
    print(
        f"batch {batch:3}: {cost.free_tokens:4} tokens in the time of one; best γ = {gamma}, {gain:.2f} times"
    )

# %% [markdown]
# With long contexts a pass reads mostly caches, and verification becomes cheap again. From some context
# on, a larger batch costs speculation nothing (MagicDec, arXiv 2408.11049):

# %%
cost = Roofline(target, draft, hardware, batch=64, draft_context=512)
context = critical_context(cost, alpha=0.8, gamma=4)
print(f"from {context:,.0f} tokens of context on, doubling a batch of 64 costs no improvement at γ = 4")

# %% [markdown]
# ## All of it, to play with
#
# A function first, which draws both: the roofline, with a draft that has a c-th of the target's
# parameters and cache, and in grey the closed form, for which verification is free.


# %%
def choose(alpha=0.8, c=0.05, batch=1, context=1000):
    small = Network(parameters=c * target.parameters, cache_bytes_per_token=c * target.cache_bytes_per_token)
    models = {
        "verification is free": (ConstantRatio(c), "#8a8a8a"),
        f"batch {batch}, context {context:,}": (Roofline(target, small, hardware, batch, context), "C0"),
    }
    figure = Figure(figsize=(5.5, 3.0))
    axis = figure.subplots()
    for name, (cost, color) in models.items():
        best = best_gamma(cost, alpha)
        axis.plot(gammas, [improvement(cost, alpha, gamma) for gamma in gammas], color=color, label=name)
        if best <= gammas[-1]:
            axis.plot(best, improvement(cost, alpha, best), "o", color=color)
    axis.axhline(1.0, color="black", linestyle=":", linewidth=1)
    axis.set(xlabel="γ", ylabel="improvement", xticks=gammas[::4], ylim=(0, None))
    axis.set_title(
        f"α = {alpha:.2f}, c = {c:.3f}: γ = {best}, {improvement(cost, alpha, best):.2f} times as fast"
    )
    axis.legend(loc="lower left")
    return figure


choose(batch=128)

# %% [markdown]
# The same function behind sliders. They need a front end, and the line that moves one of them does not.


# %%
def png(figure):
    file = BytesIO()
    figure.savefig(file, format="png", dpi=110)
    return file.getvalue()


sliders = {
    "alpha": FloatSlider(0.8, min=0.3, max=0.98, step=0.01, description="α"),
    "c": FloatLogSlider(0.05, min=-3, max=0, step=0.1, description="c", readout_format=".3f"),
    "batch": IntSlider(1, min=1, max=512, description="batch"),
    "context": IntSlider(1000, min=0, max=64_000, step=500, description="context"),
}
picture = Image(value=png(choose()), layout=Layout(width="600px"))


def redraw(_):
    picture.value = png(choose(**{name: slider.value for name, slider in sliders.items()}))


for slider in sliders.values():
    slider.observe(redraw, names="value")
before = picture.value
sliders["batch"].value = 32
assert picture.value != before
VBox([*sliders.values(), picture])
