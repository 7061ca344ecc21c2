"""The directory of a cluster: fronts look up which engines and which other fronts there are.

They report what they see of engines, and where others reach them. Their messages are in
`actors/nodes/directory.py`. Decides nothing; `cluster.py` lists, and reads the reports.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import Final

import trio

from ..config.validation import HostPort
from ..nodes.directory import ListedEngine, ListedFront, Listing, Report, SeenEngine, exchange
from ..nodes.entrance import Entrance, accept_all
from ..nodes.handshake import DIRECTORY
from ..transport.listener import open_listener

_SEND_TIMEOUT_S: Final = 10.0


class Directory:
    """What there is, for any number of servers. `run` answers them."""

    def __init__(self, models: Sequence[str], secret: bytes, tls: ssl.SSLContext | None = None) -> None:
        """`models` are the public names of the models that each engine runs."""
        self._listing = Listing(tuple(models), ())
        self._entrance = Entrance(secret, tls, DIRECTORY)
        self._changed = trio.Event()
        self._reports: dict[int, Report] = {}
        self._fronts: dict[int, ListedFront] = {}
        """By the number of their connection: a front that has come back is behind what it was before."""
        self._num_connections = 0

    def show(self, engines: Sequence[ListedEngine]) -> None:
        """List these engines from now on."""
        self._list(tuple(engines))

    def _list(self, engines: tuple[ListedEngine, ...]) -> None:
        listing = Listing(self._listing.models, engines, tuple(self._fronts.values()))
        if listing != self._listing:
            self._listing = listing
            self._changed.set()
            self._changed = trio.Event()

    def seen(self, address: str) -> list[SeenEngine]:
        """What each server that is connected sees of an engine, as of a second ago or less."""
        return [
            each for report in self._reports.values() for each in report.engines if each.address == address
        ]

    @property
    def num_servers(self) -> int:
        """How many servers look engines up now."""
        return len(self._reports)

    @property
    def num_fronts(self) -> int:
        """How many have announced themselves."""
        return len(self._fronts)

    async def run(
        self, listener: socket.socket, *, task_status: trio.TaskStatus[HostPort] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Answer at `listener`, which is taken over, until cancelled; `started` with its address."""
        with listener:
            task_status.started(HostPort(*listener.getsockname()[:2]))
            await accept_all(trio.SocketListener(trio.socket.from_stdlib_socket(listener)), self._serve)

    async def _serve(self, tcp: trio.SocketStream) -> None:
        async with self._entrance.admitted(tcp) as stream:
            if stream is None:
                return
            self._num_connections += 1
            number = self._num_connections

            def take(report: Report) -> None:
                if report.front is None:
                    self._reports[number] = report
                else:
                    self._fronts[number] = report.front
                    self._list(self._listing.engines)

            try:
                await exchange(stream, lambda: self._listing, Report, take, lambda: self._changed)
            finally:
                self._reports.pop(number, None)
                if self._fronts.pop(number, None) is not None:
                    self._list(self._listing.engines)


def directory_listener(address: HostPort) -> socket.socket:
    """A socket that listens at `address`; OSError where that is taken."""
    return open_listener(address.host, address.port, send_timeout_s=_SEND_TIMEOUT_S)
