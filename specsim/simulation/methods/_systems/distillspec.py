"""DistillSpec: a draft model that was distilled from its target."""

from specsim.rules import Parameter
from specsim.simulation.methods._method import SMALL_MODEL, Method, count, size_parameter
from specsim.simulation.methods._systems.autoregressive import make

METHOD = Method(
    name="distillspec",
    title="DistillSpec",
    citation="Zhou et al. 2024, arXiv 2310.08461",
    rule="standard",
    modelled="A draft moved towards the target by the weight `nearer`; rejections are 1 - nearer times as "
    "frequent.",
    left_out="The training: it moves some rows more than others.",
    make=make,
    parameters=(
        count("gamma", 5, "drafted tokens"),
        Parameter("nearer", 0.2, 0.0, 1.0, "weight of the target in the draft's rows"),
        size_parameter(SMALL_MODEL),
    ),
)
