"""Where responses are kept: one of the value objects of `actors/config/server.py`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...engine.models.memory import MemorySize
from .validation import check, check_bytes


@dataclass(frozen=True, slots=True)
class ResponseConfig:
    """Responses that can be retrieved later (docs/responses.md).

    Attributes
    ----------
    response_store
        SQLite file that keeps the responses of /v1/responses over restarts; created if missing, and used by
        one server only. Without it responses are kept in memory for an hour.
    response_store_size
        Largest size of the store, as 1GiB. When it is full, the oldest responses of the key that keeps most
        are dropped.
    response_store_days
        Days after which a response is forgotten.
    """

    response_store: Path | None = None
    response_store_size: str = "1GiB"
    response_store_days: float = 30.0

    def __post_init__(self) -> None:
        check_bytes("response_store_size", self.response_store_size)
        check("response_store_days", self.response_store_days, 0.001, 36_500)

    @property
    def store_bytes(self) -> int:
        """`response_store_size` in bytes."""
        return MemorySize.parse(self.response_store_size).of(0)
