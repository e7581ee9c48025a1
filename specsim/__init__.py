"""specsim proves, tests and measures the verification core of speculative decoding.

The public names, listed in `__init__.pyi`, are loaded when they are first used, so that importing the package
costs nothing."""

from typing import Any

import lazy_loader as _lazy

_load, __dir__, __all__ = _lazy.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from specsim.core._provenance import specsim_version

        return specsim_version()
    return _load(name)
