"""A cluster's directory in a thread, without engines: for servers that only have to find each other."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import trio
from sensorium.actors.cluster.directory import Directory, directory_listener
from sensorium.actors.config.validation import HostPort
from sensorium.actors.nodes.tls import tls_context

WAIT_S = 30.0


@contextmanager
def running_directory(secret: bytes, certificates: Path | None = None) -> Iterator[str]:
    """Its address. It speaks TLS with the files of a folder, where one is given."""
    tls = None
    if certificates is not None:
        files = (certificates / f"{name}.pem" for name in ("cert", "key", "ca"))
        tls = tls_context(*files, prefix="tls", is_server=True)
    ready = threading.Event()
    found: list[tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]] = []

    async def main() -> None:
        directory = Directory(["any"], secret, tls)
        async with trio.open_nursery() as nursery:
            listener = directory_listener(HostPort("127.0.0.1", 0))
            address = await nursery.start(directory.run, listener)
            found.append((str(address), trio.lowlevel.current_trio_token(), nursery.cancel_scope))
            ready.set()

    thread = threading.Thread(target=trio.run, args=(main,), name="directory under test", daemon=True)
    thread.start()
    assert ready.wait(WAIT_S), "the directory did not start"
    address, token, scope = found[0]
    try:
        yield address
    finally:
        with suppress(trio.RunFinishedError):
            trio.from_thread.run_sync(scope.cancel, trio_token=token)
        thread.join(WAIT_S)
