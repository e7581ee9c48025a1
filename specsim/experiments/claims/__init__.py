"""Claims of five documents on speculative decoding, each checked by a program."""
from specsim.experiments.claims import exact_speedups, naive_speculate, notes, problem, guide
from specsim.experiments.claims.anatomy import Setting
CLAIMS = [*problem.CLAIMS, *naive_speculate.CLAIMS, *notes.CLAIMS, *exact_speedups.CLAIMS, *guide.CLAIMS]
