"""Connections of the sync client whose reads and writes end with the deadline of their request.

httpx bounds each read alone: a head of an answer that comes byte by byte, or an endless number of interim
ones, would hold a request for as long as the server likes. The async client is cancelled instead.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from ssl import SSLContext
from typing import Any

import httpcore
import httpx

from .bounds import Deadline


class _Current(threading.local):
    deadline: Deadline | None = None


_current = _Current()


@contextmanager
def ending_with(deadline: Deadline) -> Iterator[None]:
    """A context in which connections of this thread raise SensoriumTimeoutError once the deadline passed."""
    _current.deadline = deadline
    try:
        yield
    finally:
        _current.deadline = None


def bound(client: httpx.Client) -> httpx.Client:
    """The client, whose connections know deadlines from now on, those through proxies included.

    httpx has no option for it; with a version that has other attributes each wait is bounded alone."""
    for transport in (getattr(client, "_transport", None), *getattr(client, "_mounts", {}).values()):
        pool = getattr(transport, "_pool", None)
        backend = getattr(pool, "_network_backend", None)
        if isinstance(pool, httpcore.ConnectionPool) and isinstance(backend, httpcore.NetworkBackend):
            pool._network_backend = _Backend(backend)
    return client


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with _named(timeout) as left_s:
            return self._stream.read(max_bytes, left_s)

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        with _named(timeout) as left_s:
            self._stream.write(buffer, left_s)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, _left(timeout)))

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 (as httpcore's)
        return self._stream.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, backend: httpcore.NetworkBackend) -> None:
        self._backend = backend

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        return _Stream(self._backend.connect_tcp(host, port, _left(timeout), local_address, socket_options))

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        return _Stream(self._backend.connect_unix_socket(path, _left(timeout), socket_options))

    def sleep(self, seconds: float) -> None:
        self._backend.sleep(seconds)


@contextmanager
def _named(timeout: float | None) -> Iterator[float | None]:
    """Seconds of one wait, which ends with the error of the deadline where that was the shorter."""
    try:
        yield _left(timeout)
    except httpcore.TimeoutException:
        _left(timeout)
        raise


def _left(timeout: float | None) -> float | None:
    """Seconds of one wait. Raises SensoriumTimeoutError after the deadline."""
    deadline = _current.deadline
    if deadline is None:
        return timeout
    left_s = deadline.left_s()
    return left_s if timeout is None else min(timeout, left_s)
