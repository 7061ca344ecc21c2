"""What tests of programs that use sensorium need: servers and engines whose answers are given in the test.

    from openai import OpenAI
    from sensorium.testing import scripted_server

    def test_my_program():
        with scripted_server("Paris.") as server:
            client = OpenAI(base_url=server.api, api_key="none")
            ...

Needs the extra `serve`. Nothing else of the package imports this one.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .inline_worker import InlineWorker as InlineWorker
    from .scripted import AsyncScriptedLocalEngine as AsyncScriptedLocalEngine
    from .scripted import Script as Script
    from .scripted import ScriptedLocalEngine as ScriptedLocalEngine
    from .scripted import scripted_model as scripted_model
    from .scripted import scripted_server as scripted_server
    from .scripted_runner import ScriptedRunner as ScriptedRunner
    from .server import Server as Server
    from .server import make_config as make_config
    from .server import running_server as running_server

# Imported when first used: who needs a worker or a server does not load torch.
_MODULES = {
    "AsyncScriptedLocalEngine": "scripted",
    "InlineWorker": "inline_worker",
    "Script": "scripted",
    "ScriptedLocalEngine": "scripted",
    "ScriptedRunner": "scripted_runner",
    "Server": "server",
    "make_config": "server",
    "running_server": "server",
    "scripted_model": "scripted",
    "scripted_server": "scripted",
}

__all__ = [
    "AsyncScriptedLocalEngine",
    "InlineWorker",
    "Script",
    "ScriptedLocalEngine",
    "ScriptedRunner",
    "Server",
    "make_config",
    "running_server",
    "scripted_model",
    "scripted_server",
]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What is exported, loaded or not."""
    return sorted({*globals(), *_MODULES})
