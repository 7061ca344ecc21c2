"""sensorium: audio and vision stream in, text streams out.

The import package is the repository root. Users need the names below; everything else is inside.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .actors.local.engine import AsyncLocalEngine as AsyncLocalEngine
    from .actors.local.engine import LocalEngine as LocalEngine
    from .actors.local.options import Completion as Completion
    from .actors.local.options import SamplingOptions as SamplingOptions
    from .client import AsyncClient as AsyncClient
    from .client import Client as Client

__all__ = [
    "AsyncClient",
    "AsyncLocalEngine",
    "Client",
    "Completion",
    "LocalEngine",
    "SamplingOptions",
    "__version__",
]

__version__ = "0.1.0"


# Looked up when first used, so that the server does not load the SDK's HTTP stack, nor the SDK torch.
_HOMES = {
    "AsyncClient": ".client",
    "AsyncLocalEngine": ".actors.local.engine",
    "Client": ".client",
    "Completion": ".actors.local.options",
    "LocalEngine": ".actors.local.engine",
    "SamplingOptions": ".actors.local.options",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
