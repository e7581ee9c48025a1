"""The published pass/fail criteria that engines apply to their own verification kernels, to run on any
verifier.

Each is reimplemented from the description of the original, one file for each project, and has an entry in
criteria.toml. It draws and pools exactly what the original does, since that determines which bugs it can
detect. Departures from the original are listed with each.
"""

from experiments.audit._criteria import deepspec, flashinfer, hugging_face, tensorrt_llm, vllm
from experiments.audit._criteria import smell as smell_test
from experiments.audit._criteria.base import Criterion

#: Verdicts of an audit that find a mistake.
FOUND = ("biased", "broken")


def criteria() -> tuple[Criterion, ...]:
    """All criteria, engine by engine.

    >>> [criterion.name for criterion in criteria()][:2]
    ['vLLM V1 ratio', 'vLLM V2 wide']
    """
    projects = (vllm, tensorrt_llm, flashinfer, hugging_face, smell_test, deepspec)
    return tuple(one for project in projects for one in vars(project).values() if isinstance(one, Criterion))
