"""specsim proves, tests and measures the verification core of speculative decoding.

The public names are loaded when first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specsim.auditing import Audit as Audit
    from specsim.auditing import audit as audit
    from specsim.decoding import Generation as Generation
    from specsim.decoding import generate as generate
    from specsim.decoding import sample as sample
    from specsim.engine import Simulation as Simulation
    from specsim.engine import simulate as simulate
    from specsim.exact import Proof as Proof
    from specsim.exact import prove as prove
    from specsim.lookahead import draft_log as draft_log
    from specsim.lookahead import simulate_policies as simulate_policies
    from specsim.merging import merge as merge
    from specsim.metrics import MetricsCheck as MetricsCheck
    from specsim.metrics import check_metrics as check_metrics
    from specsim.models import NGramModel as NGramModel
    from specsim.models import TableModel as TableModel
    from specsim.models import default_pair as default_pair
    from specsim.planning import plan as plan
    from specsim.planning import rank_drafts as rank_drafts
    from specsim.replays import replay as replay
    from specsim.traces import open_trace as open_trace
    from specsim.verification import Verification as Verification
    from specsim.verification import speculative_accept as speculative_accept
    from specsim.verification import verify as verify

_HOMES = {
    "Audit": "specsim.auditing",
    "Generation": "specsim.decoding",
    "MetricsCheck": "specsim.metrics",
    "NGramModel": "specsim.models",
    "Proof": "specsim.exact",
    "Simulation": "specsim.engine",
    "TableModel": "specsim.models",
    "Verification": "specsim.verification",
    "audit": "specsim.auditing",
    "check_metrics": "specsim.metrics",
    "default_pair": "specsim.models",
    "draft_log": "specsim.lookahead",
    "generate": "specsim.decoding",
    "merge": "specsim.merging",
    "open_trace": "specsim.traces",
    "plan": "specsim.planning",
    "prove": "specsim.exact",
    "rank_drafts": "specsim.planning",
    "replay": "specsim.replays",
    "sample": "specsim.decoding",
    "simulate": "specsim.engine",
    "simulate_policies": "specsim.lookahead",
    "speculative_accept": "specsim.verification",
    "verify": "specsim.verification",
}
_MODULES = ("costs", "distributions", "models", "rules", "stats", "theory", "traces")

__all__ = [*sorted(_HOMES), *_MODULES]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("specsim-decoding")
    if name in _MODULES:
        return importlib.import_module(f"specsim.{name}")
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'specsim' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
