"""The published acceptance criteria: what engines themselves ask of their verification kernels, run on any verifier.

Each is written anew from the description of the original, one file for each project, and draws and pools just what the
original does: that is what it can and cannot see. What differs from the original is said with each.
"""

from experiments.kill_matrix.criteria import deepspec, flashinfer, hugging_face, tensorrt_llm, vllm
from experiments.kill_matrix.criteria import smell as smell_test
from experiments.kill_matrix.criteria.base import Criterion

__all__ = ["Criterion", "criteria"]


def criteria() -> tuple[Criterion, ...]:
    """All criteria, engine by engine.

    >>> [criterion.name for criterion in criteria()][:2]
    ['vLLM V1 ratio', 'vLLM V2 wide']
    """
    projects = (vllm, tensorrt_llm, flashinfer, hugging_face, smell_test, deepspec)
    return tuple(criterion for project in projects for criterion in project.CRITERIA)
