"""The dialect of telephone calls: WebSockets only."""

from __future__ import annotations

from typing import Final

from ....protocols.openapi.operation import Operations
from ..dialect import Dialect
from .routes import call_routes

CALLS: Final = Dialect(operations=Operations(paths={}), sockets=call_routes)
