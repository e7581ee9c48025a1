# %% [markdown]
# # A rule, taken apart
#
# A verification rule in specsim has three parts: its distribution, written to be read, and two compiled
# kernels that are tested against it. This notebook builds a small one from nothing. *Half-hearted*
# verification takes a draft that the standard rule accepts, and accepts it with probability h. It is
# lossless and wasteful. Then comes a version with a likely mistake, and what refutes it.
#
# In the package a rule is one file in `specsim/rules/`, which registers itself; `docs/adding-a-rule.md`
# has this one as a file. In a notebook the same pieces make a `Rule`, which `prove`, `simulate` and
# `audit` take as well as a name.

# %%
from dataclasses import replace
from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np

import specsim
from specsim.rules import Parameter, Rule, kernel, tokenwise

plt.style.use("specsim.style")

# %% [markdown]
# ## The law
#
# Accepting x with probability h · min(1, p/q) emits h · min(p, q) in all. That leaves p − h · min(p, q)
# of p, which is never negative. A recovered token drawn from it, normalised, completes p. Two functions
# say so, in plain Python that works on fractions as well as on floats.


# %%
def acceptance(p, q, x, share):
    """The probability of accepting x."""
    return share * min(1, p[x] / q[x])


def recovered(p, q, x, share):
    """p - h·min(p, q), normalised."""
    left = [a - share * min(a, b) for a, b in zip(p, q, strict=True)]
    return tokenwise.normalise(left) if any(left) else list(p)


law = tokenwise.law("half_hearted", acceptance, recovered)

# %% [markdown]
# The law of a whole step follows from these: for each node of the draft, the probability of stopping
# there, and the pmf of the token that comes next. Two drafted tokens, 0 and 2, at h = 1/2:

# %%
p = [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)]
q = [Fraction(1, 6), Fraction(1, 3), Fraction(1, 2)]
stop, follow = law((0, 1), (0, 2), [p, p, p], [q, q], share=Fraction(1, 2))
for accepted, (chance, pmf) in enumerate(zip(stop, follow, strict=True)):
    print(f"{accepted} accepted: {chance!s:>5}, then a token from {', '.join(map(str, pmf))}")
assert sum(stop) == 1

# %% [markdown]
# ## The row kernel
#
# The same for arrays, compiled, from the mathematics and not from the lines above, so that the two can be
# tested against each other: does u in [0, 1) accept x, and with what weights is a token recovered?
# `values` are the rule's parameters. The test is strict, so that a token with p = 0 never passes.


# %%
@kernel
def accept(p, q, x, u, values):
    return u * q[x] < values[0] * p[x] and u < values[0]


@kernel
def recover(p, q, x, values, weights):
    for y in range(weights.size):
        weights[y] = p[y] - values[0] * min(p[y], q[y])


# %% [markdown]
# ## The fixed-pair kernel, and the entry
#
# For one pair p, q the tables are made once, and a step costs the same for any vocabulary. A rule like
# this only has to say how likely each token is accepted, and the weights of the recovered token and of
# the bonus.


# %%
def shares(p, q, share):
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(q > 0, np.minimum(1.0, p / q), 0.0)
    return share * ratio, p - share * np.minimum(p, q), p


half_hearted = Rule(
    name="half_hearted",
    citation="this notebook",
    draft_sampling=("sampled",),  # it is lossless for drafts drawn so
    law=law,
    rows=tokenwise.rows(accept, recover),
    fixed_pair=tokenwise.fixed_pair(shares),
    parameters=(Parameter("share", 0.5, 0.0, 1.0, "h; 1 is the standard rule"),),
)

# %% [markdown]
# ## Proved, and audited
#
# The proof enumerates what a step can emit; the audit proves the rule on thirty generated models and
# tests both kernels on the cases of its battery. *Wasteful* is not a failure, since the verdict does not
# depend on efficiency.

# %%
target, draft = specsim.models.TableModel(p), specsim.models.TableModel(q)
proof = specsim.prove(target, draft, rule=half_hearted, gamma=2)
assert proof.exact
proof

# %%
audit = specsim.audit(half_hearted, level="smoke", rng=1)
assert audit.verdict == "consistent"
assert audit.wasteful
audit

# %% [markdown]
# What it costs: tokens per step, from 1 for h = 0 to the standard rule's at h = 1.

# %%
pair = [float(x) for x in p], [float(x) for x in q]
values = np.linspace(0, 1, 11)
runs = [
    specsim.simulate(*pair, rule=half_hearted.with_parameters(share=h), gamma=5, steps=100_000, rng=1)
    for h in values
]
expected = specsim.theory.expected_tokens(specsim.theory.acceptance_rate(*pair) * values, gamma=5)
figure, axis = plt.subplots(figsize=(5.0, 2.6))
axis.plot(values, expected, color="C1", label="theory")
axis.plot(values, [run.tokens_per_step for run in runs], "o", color="C0", label="simulated")
axis.set(xlabel="h", ylabel="tokens per step, γ = 5", ylim=(0.9, None))
axis.legend()
plt.show()
assert all(
    abs(run.tokens_per_step - n) <= 6 * run.tokens_per_step_error
    for run, n in zip(runs, expected, strict=True)
)

# %% [markdown]
# ## A wrong one
#
# The likely mistake: accept half-heartedly, but recover from the standard residual (p − q)₊, as every
# implementation has it. All its tokens are possible, and the text still looks fine. Its distribution is
# another:


# %%
def standard_residual(p, q, x, share):
    return tokenwise.positive_part(p, q)


@kernel
def recover_standard(p, q, x, values, weights):
    for y in range(weights.size):
        weights[y] = max(p[y] - q[y], 0.0)


def wrong_shares(p, q, share):
    chances, _, bonus = shares(p, q, share)
    return chances, np.maximum(p - q, 0.0), bonus


wrong = replace(
    half_hearted,
    name="half_wrong",
    law=tokenwise.law("half_wrong", acceptance, standard_residual),
    rows=tokenwise.rows(accept, recover_standard),
    fixed_pair=tokenwise.fixed_pair(wrong_shares),
)
proof = specsim.prove(target, draft, rule=wrong, gamma=2)
assert not proof.exact
proof

# %% [markdown]
# The proof is about the distribution. The audit tests what the kernels emit, and says in which direction
# they go wrong:

# %%
audit = specsim.audit(wrong, level="smoke", rng=1)
assert audit.verdict == "biased"
first = next(case for case in audit.cases if case.findings)
print(f"{audit.verdict}; {sum(bool(case.findings) for case in audit.cases)} of {len(audit.cases)} cases")
print(f"{first.case}: {first.findings[0].text}")
