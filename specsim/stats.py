"""Statistics of integer counts: chi-square, e-values, bounds on total variation, power.

A *table* is a vector of counts over k cells with a known distribution π under the null hypothesis. Pearson's
**chi-square** is reported because it is familiar. The **e-value** decides: it needs no asymptotics, and it
may be examined after any number of draws, because the probability that it ever exceeds 1/δ under the null is
at most δ (Ville's inequality). Arguments out of range raise ValueError or TypeError."""

from specsim.core.stats import chi_square, detectable_tv, log_e_value, merge_cells, needed_draws, tv_interval

__all__ = ["chi_square", "detectable_tv", "log_e_value", "merge_cells", "needed_draws", "tv_interval"]

__dir__ = __all__.copy  # for completion
