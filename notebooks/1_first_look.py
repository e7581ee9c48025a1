# %% [markdown]
# # A first look
#
# Speculative decoding lets a small draft model propose tokens, has the large target model check several
# of them in one pass, and accepts or rejects them by a rule. This notebook shows that rule on three
# tokens. It takes one step by hand, shows why the output has exactly the target's distribution, and
# counts the tokens of a step.
#
# p is the target, q the draft, γ the number of drafted tokens in a step.

# %%
from fractions import Fraction

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import Image

import specsim

plt.style.use("specsim.style")
zipf = specsim.distributions.synthetic_pair("zipf", vocab_size=1000, overlap=0.7, rng=1)
sliders = specsim.explore(*zipf, rng=1)
sliders

# %% [markdown]
# Each point is a run of simulated steps. With lenience below 1 the rule accepts more, and the output has
# another distribution: the title has its total variation (TV) from the target's. A line of code moves the
# sliders too:

# %%
rule, lenience, temperature, gamma, c, picture = sliders.children
before = picture.value
rule.value, lenience.value, gamma.value = "lenience", 0.7, 8
assert picture.value != before
Image(picture.value)

# %% [markdown]
# ## What a target and its draft share
#
# Three tokens are enough to see how the standard rule works.

# %%
p = [Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)]
q = [Fraction(1, 6), Fraction(1, 3), Fraction(1, 2)]

# %% [markdown]
# What the two share is Σ min(p, q), the probability that a drafted token is accepted. Where q has too
# much, some drafts must be rejected; where it has too little, the tokens recovered after a rejection make
# up for it.

# %%
tokens, common = np.arange(3), np.minimum(p, q).astype(float)
figure, (left, right) = plt.subplots(1, 2, figsize=(7.0, 2.6), sharey=True)
for axis, row, name, rest in (
    (left, q, "draft q", "may be rejected"),
    (right, p, "target p", "residual"),
):
    axis.bar(tokens, common, color="C0", label="min(p, q)")
    more, hatched = np.array(row, dtype=float) - common, {"hatch": "///", "edgecolor": "white"}
    axis.bar(tokens, more, bottom=common, color="C1", label=rest, **hatched)
    axis.set(title=name, xlabel="token", xticks=tokens)
    axis.legend(loc="upper center")
left.set(ylabel="probability", ylim=(0, 0.75))
plt.show()

# %% [markdown]
# ## One step by hand
#
# `simulate` draws steps by the million; `replay` shows any one of them, number by number. Step 5 of the
# run with seed 1 takes both branches: of two drafted tokens, the first is accepted and the second
# rejected.

# %%
pair = [float(x) for x in p], [float(x) for x in q]
step = specsim.replay(*pair, step=5, gamma=2, rng=1)
print(step)

# %% [markdown]
# The test: a drafted token x with its uniform u is accepted if u · q(x) < p(x), that is, with probability
# min(1, p(x)/q(x)). At the first rejection the last uniform draws a token from the residual (p − q)₊.

# %%
for node, u in zip(step.nodes, step.verify_uniforms, strict=False):
    passed = u * node.q < node.p
    print(f"token {node.token}: {u:.3f} · {node.q:.3f} < {node.p:.3f}? {'accept' if passed else 'reject'}")
    if not passed:
        break

residual = [max(a - b, 0) for a, b in zip(p, q, strict=True)]
print("residual:", ", ".join(map(str, residual)), "(only token 0 can be recovered)")
assert (step.num_accepted, step.tokens[-1]) == (1, 0)

# %% [markdown]
# ## Why it is exact
#
# Token x comes out in two ways: drafted and accepted, with q · min(1, p/q) = min(p, q), or recovered
# after a rejection, which has probability 1 − Σ min(p, q). In fractions, so that nothing is rounded:

# %%
accepted = [min(a, b) for a, b in zip(p, q, strict=True)]
rejection = 1 - sum(accepted)
recovered = [rejection * weight / sum(residual) for weight in residual]
for x in range(3):
    print(f"token {x}: {accepted[x]} + {recovered[x]} = {accepted[x] + recovered[x]}   p = {p[x]}")
assert [a + b for a, b in zip(accepted, recovered, strict=True)] == p

# %% [markdown]
# That was one position. A step has several, and the token after a full draft. `prove` enumerates every
# draft and every outcome, and compares the distribution of the emitted tokens with the target's, without
# tolerance.

# %%
target, draft = specsim.models.TableModel(p), specsim.models.TableModel(q)
proof = specsim.prove(target, draft, gamma=3)
assert proof.exact
proof

# %% [markdown]
# A rule that draws the replacement anew from q until one passes, which some lecture notes call
# equivalent, draws them ∝ min(p, q) after a rejection. specsim has it as a negative control, and refutes
# it:

# %%
specsim.prove(target, draft, rule="pointwise_envelope", gamma=3)

# %% [markdown]
# ## How many tokens a step gives
#
# If drafts are accepted independently with probability α, a step accepts k of γ with probability αᵏ(1 −
# α), and all of them with αᵞ. A million simulated steps beside that:

# %%
run = specsim.simulate(*pair, gamma=5, steps=1_000_000, rng=1)
run

# %%
alpha = specsim.theory.acceptance_rate(*pair)
law = specsim.theory.accepted_law(alpha, 5)
figure, axis = plt.subplots(figsize=(5.0, 2.6))
axis.bar(np.arange(6), run.lengths / run.steps, width=0.6, color="C0", label="simulated")
axis.plot(np.arange(6), law, "_", color="C1", markersize=24, markeredgewidth=2, label="theory")
axis.set(xlabel="accepted tokens of 5", ylabel="share of the steps")
axis.legend()
plt.show()
expected = specsim.theory.expected_tokens(alpha, gamma=5)
print(f"tokens per step: {run.tokens_per_step:.4f} ± {run.tokens_per_step_error:.4f}, theory {expected:.4f}")
assert abs(run.tokens_per_step - expected) < 6 * run.tokens_per_step_error

# %% [markdown]
# On real text p and q change from context to context, so there is more than one α. specsim comes with an
# n-gram pair, trained on the Python standard library. It shows three α that differ. *Your own logs*
# explains them.

# %%
specsim.simulate(*specsim.default_pair(), gamma=5, steps=100_000, rng=1)
