"""The servers behind a gateway: each with its connections, its health, its models and what it has in hand."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import trio

from ...protocols.errors import OverloadedError, UnavailableError
from ..config.gateway import GatewayConfig, ListedServer, ServerAddress
from ..relay.connections import Connections
from .health import Health
from .metrics import GatewayMetrics

logger = logging.getLogger(__name__)

_MAX_BUSY_S: Final = 5.0
"""A server that refuses is left alone for as long as it says, but no longer than this."""


class Server:
    """One of them."""

    def __init__(self, address: ServerAddress, config: GatewayConfig, metrics: GatewayMetrics) -> None:
        self.address = address
        self.connections = Connections(address)
        self.health = Health(dead_after_s=config.dead_after_s)
        self.models: dict[str, dict[str, Any]] | None = None
        """Its list, by id; None while it is not known."""
        self.is_draining = False
        self.probe_soon = trio.Event()
        self._max_open = config.max_requests_per_server
        self._metrics = metrics
        self.first_byte = metrics.first_byte.labels(self.name)
        self._open_gauge = metrics.open.labels(self.name)
        self._sessions_gauge = metrics.open_sessions.labels(self.name)
        self._open: set[trio.CancelScope] = set()
        self._num_sessions = 0
        self._busy_until = 0.0

    @property
    def name(self) -> str:
        """As logs and metrics have it."""
        return self.address.url

    @property
    def load(self) -> int:
        """Requests and WebSockets in hand."""
        return len(self._open)

    @property
    def takes_work(self) -> bool:
        """Whether it may be given something new."""
        return self.health.takes_work and not self.is_draining

    @property
    def has_room(self) -> bool:
        """Whether it is below its bound."""
        return not self._max_open or self.load < self._max_open

    def busy_s(self) -> float:
        """For how long it wants to be left alone."""
        return max(0.0, self._busy_until - trio.current_time())

    def refused(self, retry_after_s: float) -> None:
        """It has answered that it is full."""
        self._busy_until = trio.current_time() + min(max(retry_after_s, 0.0), _MAX_BUSY_S)

    def may_have(self, model: str) -> bool:
        """Whether it has the model, as far as is known."""
        return self.models is None or model in self.models

    def failed(self) -> None:
        """A request found nobody there: the probe looks now."""
        self.note(self.health.failed)
        self.probe_soon.set()

    def note(self, event: Any, *arguments: Any) -> None:  # noqa: ANN401 (a method of Health)
        """Have the health know, and give up what is in hand of a server that is dead."""
        before = self.health.state
        if event == self.health.failed:
            arguments = (trio.current_time(),)
        event(*arguments)
        state = self.health.state
        if state != before:
            log = logger.info if state == "up" else logger.warning
            log("the server %s is %s (was %s); in hand: %d", self.name, state, before, self.load)
            self._metrics.up.labels(self.name).set(self.health.takes_work)
        if state == "dead":
            for scope in tuple(self._open):
                scope.cancel()

    def drain(self, *, is_draining: bool) -> None:
        """Give it nothing new from now on, or again."""
        if is_draining != self.is_draining:
            self.is_draining = is_draining
            logger.info("the server %s is %s", self.name, "draining" if is_draining else "in use again")
        self._metrics.draining.labels(self.name).set(is_draining)
        self._tell_drained()

    @contextmanager
    def holding(self, *, is_session: bool = False) -> Iterator[trio.CancelScope]:
        """Something is in hand meanwhile. The scope is cancelled where the server is found dead."""
        with trio.CancelScope() as scope:
            self._open.add(scope)
            self._num_sessions += is_session
            self._count()
            try:
                yield scope
            finally:
                self._open.discard(scope)
                self._num_sessions -= is_session
                self._count()
                self._tell_drained()

    def _count(self) -> None:
        self._open_gauge.set(len(self._open))
        self._sessions_gauge.set(self._num_sessions)

    def _tell_drained(self) -> None:
        if self.is_draining and not self._open:
            logger.info("the server %s is drained: nothing of it is in hand", self.name)


class Servers:
    """All of them, in the order in which they were named."""

    def __init__(self, config: GatewayConfig, metrics: GatewayMetrics) -> None:
        self._config = config
        self._metrics = metrics
        self._by_name: dict[str, Server] = {}
        self._turn = 0

    def __iter__(self) -> Iterator[Server]:
        return iter(tuple(self._by_name.values()))

    def find(self, name: str | None) -> Server | None:
        """The server of that name, if it is still one."""
        return self._by_name.get(name or "")

    def take(self, listed: Sequence[ListedServer]) -> tuple[list[Server], list[Server]]:
        """Have these be the servers from now on; those that are new, and those that are gone."""
        names = {each.address.url for each in listed}
        gone = [server for name, server in self._by_name.items() if name not in names]
        new: list[Server] = []
        for server in gone:
            del self._by_name[server.name]
            server.is_draining = True
        for each in listed:
            server = self._by_name.get(each.address.url) or Server(each.address, self._config, self._metrics)
            if server.name not in self._by_name:
                self._by_name[server.name] = server
                new.append(server)
            server.drain(is_draining=each.is_draining)
        return new, gone

    def close(self) -> None:
        """Close what is kept for further requests."""
        for server in self:
            server.connections.close()

    @property
    def are_ready(self) -> bool:
        """Whether any of them takes work."""
        return any(server.takes_work and server.health.state == "up" for server in self)

    def having(self, model: str | None) -> list[Server]:
        """Those that have the model, whether they take work or not; where no list names it, those whose list
        is not known."""
        everybody = list(self)
        if not model:
            return everybody
        listed = [server for server in everybody if server.models is not None and model in server.models]
        return listed or [server for server in everybody if server.models is None]

    def least_loaded(self, among: Sequence[Server]) -> Server:
        """The one with the least in hand; of equals each in its turn."""
        self._turn += 1
        shifted = [*among[self._turn % len(among) :], *among[: self._turn % len(among)]]
        return min(shifted, key=lambda server: server.load)

    def able(self, among: Sequence[Server]) -> list[Server]:
        """Those that may be given something new.

        Raises UnavailableError where none takes work, OverloadedError where all are full.
        """
        working = [server for server in among if server.takes_work]
        if not working:
            raise UnavailableError("No server that could answer this is there; try again.")
        ready = [server for server in working if server.has_room and not server.busy_s()]
        if not ready:
            wait_s = min((server.busy_s() for server in working if server.has_room), default=1.0)
            self._metrics.shed.labels("servers_full").inc()
            raise OverloadedError("All servers are full; try again.", retry_after_s=max(1.0, wait_s))
        return ready
