"""What the parts of one gateway share; made by `actors/gateway/gateway.py`, and handed down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import trio

from ..callers import Caller, Shares
from ..config.gateway import GatewayConfig
from .affinity import Affinity
from .identity import Identity
from .metrics import GatewayMetrics
from .servers import Servers


@dataclass(slots=True)
class GatewayState:
    """One gateway's."""

    config: GatewayConfig
    identity: Identity
    metrics: GatewayMetrics
    servers: Servers
    affinity: Affinity = field(default_factory=Affinity)
    is_draining: bool = False
    requests: Shares = field(init=False)
    sessions: Shares = field(init=False)
    _num_replay_bytes: int = 0
    _quiet: trio.lowlevel.ParkingLot = field(default_factory=trio.lowlevel.ParkingLot)

    def __post_init__(self) -> None:
        self.requests = Shares(self.config.max_requests, "requests")
        self.sessions = Shares(self.config.max_sessions, "WebSockets")

    @contextmanager
    def holding(self, shares: Shares, caller: Caller) -> Iterator[None]:
        """Count one of these while it is in hand."""
        try:
            with shares.holding(caller):
                yield
        finally:
            self._quiet.unpark_all()

    async def wait_quiet(self) -> None:
        """Return when nothing is in hand."""
        while self.requests.total() or self.sessions.total():
            await self._quiet.park()

    @contextmanager
    def replay_room(self) -> Iterator[int]:
        """So many bytes of a body may be kept until its answer begins."""
        num = min(self.config.replay_bytes, self.config.replay_memory_bytes - self._num_replay_bytes)
        self._num_replay_bytes += num
        try:
            yield num
        finally:
            self._num_replay_bytes -= num
