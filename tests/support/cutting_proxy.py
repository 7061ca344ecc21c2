"""A TCP proxy that can be cut: every connection through it is reset at once, as when a network goes away. Or
it stalls: nothing arrives any more.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_RESET = struct.pack("ii", 1, 0)


class CuttingProxy:
    """Forwards bytes between its own port and the server's."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.num_accepted = 0
        self.refusing = False
        """New connections are reset, too."""
        self._moving = threading.Event()
        self._moving.set()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut(self) -> None:
        """Reset both ends of everything that is open."""
        with self._lock:
            cut, self._open = self._open, set()
        for end in cut:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def stall(self) -> None:
        """Forward nothing any more, and take no more than fits on the way."""
        self._moving.clear()

    def flow(self) -> None:
        """Forward again. What stalled in connections that were cut since is lost."""
        self._moving.set()

    def close(self) -> None:
        """Stop."""
        self.flow()
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.num_accepted += 1
            if self.refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:  # what is there has ended
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self._moving.wait()
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def cutting_proxy(port: int) -> Iterator[CuttingProxy]:
    """A proxy in front of a server on this machine."""
    proxy = CuttingProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
