"""sensorium: audio and vision stream in, text streams out.

The import package is the repository root. Users need the names below; everything else is inside.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing's takes 20 ms to import, in which Ctrl-C would show a traceback
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


def __dir__() -> list[str]:
    """What `dir` and `help` show: also what is not loaded yet, where it can be."""
    import importlib.util

    has_engine = importlib.util.find_spec("torch") is not None
    missing = {name for name, home in _HOMES.items() if not has_engine and home != ".client"}
    return sorted({name for name in globals() if name.startswith("__")} | set(__all__) - missing)


def __getattr__(name: str) -> object:
    if name in _HOMES:
        import importlib

        try:
            return getattr(importlib.import_module(_HOMES[name], __name__), name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == __name__:
                raise
            install = "pip install ./engine/checkpoints '.[serve]' in sensorium's sources"
            raise ModuleNotFoundError(
                f"sensorium.{name} needs {error.name}: {install}", name=error.name
            ) from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
