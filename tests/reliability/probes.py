"""Probes of a server's health beside attacks on its connections: how many are answered within a second.

By hand, in `tests/`: `python -m reliability.probes`. Each attack comes from three addresses of the loopback
network and keeps more sockets open than the server takes; a socket that is dropped is opened again. Probes
come from another address, each on a new connection, as a load balancer's do.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Final

import trio

SOCKETS: Final = 60
"""From each of the addresses; the server takes 64 in all."""
ADDRESSES: Final = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
PROBE_FROM: Final = "127.0.0.9"
ALLOWED_S: Final = 1.0
PAUSE_S: Final = 0.02
_UPGRADE: Final = (
    b"GET /v1/realtime HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)

Attack = Callable[[trio.SocketStream], Awaitable[None]]


async def _silent(stream: trio.SocketStream) -> None:
    """Sends nothing."""
    await stream.receive_some(1)


async def _half(stream: trio.SocketStream) -> None:
    """Sends a head that does not end."""
    await stream.send_all(b"GET /v1/models HTTP/1.1\r\nHost: a\r\n")
    await stream.receive_some(1)


async def _drip(stream: trio.SocketStream) -> None:
    """Sends a head a byte at a time."""
    while True:
        await stream.send_all(b"G")
        await trio.sleep(0.2)


async def _unread(stream: trio.SocketStream) -> None:
    """Requests a large document again and again, and reads none of it."""
    while True:
        await stream.send_all(b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n")
        await trio.sleep(0.05)


async def _sessions(stream: trio.SocketStream) -> None:
    """Opens a live session and says nothing."""
    await stream.send_all(_UPGRADE)
    while await stream.receive_some(65536):
        pass


async def _again(stream: trio.SocketStream) -> None:
    """Comes and goes, once a second."""
    await stream.send_all(b"GET /live HTTP/1.1\r\nHost: a\r\n\r\n")
    await trio.sleep(1.0)


ATTACKS: Final[dict[str, Attack]] = {
    "silent": _silent,
    "half a head": _half,
    "a byte at a time": _drip,
    "nothing read": _unread,
    "idle sessions": _sessions,
    "come and go": _again,
}


async def connect(port: int, source: str) -> trio.SocketStream:
    """A connection from `source`."""
    sock = trio.socket.socket()
    try:
        sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 4096)
        await sock.bind((source, 0))
        await sock.connect(("127.0.0.1", port))
    except BaseException:
        sock.close()
        raise
    return trio.SocketStream(sock)


async def hold(port: int, source: str, attack: Attack) -> None:
    """One attacker's socket, opened again whenever it is lost."""
    while True:
        try:
            async with await connect(port, source) as stream:
                await attack(stream)
        except (OSError, trio.BrokenResourceError):
            pass
        await trio.sleep(0.05)


async def probe(port: int, path: str) -> float | None:
    """Seconds until the status line; None: no answer of 200 in time."""
    began = trio.current_time()
    with trio.move_on_after(ALLOWED_S):
        try:
            async with await connect(port, PROBE_FROM) as stream:
                await stream.send_all(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
                if (await stream.receive_some(64)).startswith(b"HTTP/1.1 200"):
                    return trio.current_time() - began
        except (OSError, trio.BrokenResourceError):
            pass
    return None


async def measure(port: int, attack: Attack, num_probes: int) -> list[float | None]:
    """What became of each probe."""
    async with trio.open_nursery() as nursery:
        for source in ADDRESSES:
            for _ in range(SOCKETS):
                nursery.start_soon(hold, port, source, attack)
        await trio.sleep(1.0)
        found = []
        for number in range(num_probes):
            found.append(await probe(port, ("/live", "/health")[number % 2]))
            await trio.sleep(PAUSE_S)
        nursery.cancel_scope.cancel()
    return found


def main() -> int:
    """Print a line for each attack; 1 where more than one probe in a thousand went without an answer."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--probes", type=int, default=400, help="beside each attack")
    arguments = parser.parse_args()
    command = [sys.executable, "-m", "sensorium", "serve", "tiny-whisper", "--port", "0"]
    command += ["--max-connections", "64", "--log-level", "error"]
    num_probes = num_lost = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline().split()[2].rpartition(":")[2])
            for name, attack in ATTACKS.items():
                found = trio.run(measure, port, attack, arguments.probes)
                times = sorted(each for each in found if each is not None)
                lost = len(found) - len(times)
                most, middle = (times[-1], times[len(times) // 2]) if times else (0.0, 0.0)
                speed = f"median {middle * 1000:.1f} ms, most {most * 1000:.0f} ms"
                print(f"{name:18} {len(found)} probes, {lost} lost, {speed}")
                num_probes, num_lost = num_probes + len(found), num_lost + lost
        finally:
            server.terminate()
    print(f"{num_probes - num_lost} of {num_probes} answered within {ALLOWED_S:g} s")
    return int(num_lost * 1000 > num_probes)


if __name__ == "__main__":
    sys.exit(main())
