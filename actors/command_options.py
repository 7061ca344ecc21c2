"""What commands share that take a server's options."""

from __future__ import annotations

from typing import Final

from cyclopts import Parameter

from .config.server import ServerConfig

FLAT: Final = Parameter(name="*")
"""Fields of a dataclass are options of their plain names."""
DEFAULTS: Final = ServerConfig()
