"""An attacker's list against a server of our own, each kind beside paced live sessions.

    python examples/benchmarks/attack.py [--streams 24] [--seconds 20] [--kind pings --kind storm]
        [--rounds 1] [-- --kv-memory 64MiB]

For each kind a round of live sessions is spoken at real-time pace beside it, and `/ping` is asked 20 times a
second on a connection that stays open, both as they were measured without an attacker first. Printed are the
95th percentiles in milliseconds and their ratio to quiet (of final transcripts, after the turn's commit and
after its last word was said), the loop's longest hold, and what the process held after: resident memory,
descriptors, open connections and sessions. Options behind `--` are the server's: both its caches grow until
they are full, so for the memory of connections give it small ones.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpx
from bench_lanes import TALK, serving
from sensorium.client import AsyncClient
from sensorium.client.audio import read_wav
from sensorium.client.bench import realtime
from sensorium.client.bench.realtime import RealtimePlan, Recording
from sensorium.client.bench.report import table
from sensorium.client.bench.statistics import percentile
from sensorium.client.bench.turns import read_spoken_turns
from soak import resident_mib

_PINGS_PER_S: Final = 20
_LARGE: Final = 20_000_000


def connect(url: str) -> socket.socket:
    """A connection to the server."""
    address = urlsplit(url)
    return socket.create_connection((address.hostname, address.port), timeout=30)


def web_socket(url: str) -> socket.socket:
    """A live session, its handshake done."""
    raw = connect(url)
    key = base64.b64encode(os.urandom(16)).decode()
    raw.sendall(
        f"GET /v1/realtime HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nUpgrade: websocket\r\n"
        f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    raw.recv(4096)
    return raw


def repeat(url: str, opening: bytes, data: bytes) -> None:
    """Send the same frames for ever, over a new session whenever one is closed."""
    while True:
        with suppress(OSError), web_socket(url) as raw:
            raw.sendall(opening)
            while True:
                raw.sendall(data)


def fragments(url: str) -> None:
    """Empty continuation frames."""
    repeat(url, b"\x01\x80\0\0\0\0", b"\x00\x80\0\0\0\0" * 4000)


def pings(url: str) -> None:
    """Pings, whose answers are not read."""
    repeat(url, b"", b"\x89\x80\0\0\0\0" * 4000)


def small(url: str) -> None:
    """Events of two letters, each answered by an error."""
    repeat(url, b"", b"\x81\x82\0\0\0\0{}" * 4000)


def idle(url: str) -> None:
    """3,000 connections that say nothing."""
    held = []
    for _ in range(3000):
        with suppress(OSError):
            held.append(connect(url))
    time.sleep(3600)


def storm(url: str) -> None:
    """2,000 connections a second, each closed at once."""
    began = time.monotonic()
    for number in itertools.count(1):
        with suppress(OSError):
            connect(url).close()
        time.sleep(max(0.0, began + number / 2000 - time.monotonic()))


def early(url: str) -> None:
    """Bodies of 20 MB for a route that does not exist."""
    body = bytes(_LARGE)
    while True:
        with suppress(OSError), connect(url) as raw:
            raw.sendall(f"POST /nowhere HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n".encode())
            raw.sendall(f"Content-Length: {_LARGE}\r\n\r\n".encode() + body)
            raw.recv(4096)


def chunks(url: str) -> None:
    """Bodies in chunks of one byte."""
    head = f"POST /v1/audio/transcriptions HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n"
    head += "Content-Type: multipart/form-data; boundary=x\r\nTransfer-Encoding: chunked\r\n\r\n"
    while True:
        with suppress(OSError), connect(url) as raw:
            raw.sendall(head.encode())
            while True:
                raw.sendall(b"1\r\nx\r\n" * 1000)


def heads(url: str) -> None:
    """500 requests whose heads do not end."""
    while True:
        held = [connect(url) for _ in range(500)]
        with suppress(OSError):
            for raw in held:
                raw.sendall(b"GET / HTTP/1.1\r\nx: ")
            for _ in range(12):
                time.sleep(1)
                for raw in held:
                    raw.sendall(b"y")


def logprobs(url: str) -> None:
    """Answers with as many log-probabilities as are allowed."""
    body = {"prompt": "x", "n": 14, "max_tokens": 1000, "logprobs": 20, "ignore_eos": True}
    with httpx.Client(timeout=None) as client:
        while True:
            client.post(f"{url}/v1/completions", json=body).raise_for_status()


def prompts(url: str) -> None:
    """Texts of 250,000 characters to be made tokens of."""
    body = {"prompt": "word The " * 28_000}
    with httpx.Client(timeout=None) as client:
        while True:
            client.post(f"{url}/tokenize", json=body)


KINDS: Final[dict[str, Callable[[str], None]]] = {
    each.__name__: each
    for each in (fragments, pings, small, idle, storm, early, chunks, heads, logprobs, prompts)
}


def measure_pings(url: str) -> None:
    """Ask until the standard input ends, then print the 95th percentile of the latencies in seconds."""
    address = urlsplit(url)
    found = []
    os.set_blocking(sys.stdin.fileno(), False)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
    while sys.stdin.buffer.read(1) is None:
        began = time.monotonic()
        try:
            connection.request("GET", "/ping")
            connection.getresponse().read()
        except (http.client.HTTPException, OSError):  # it made room for somebody: as any client does
            connection.close()
            continue
        finally:
            found.append(time.monotonic() - began)
        time.sleep(1 / _PINGS_PER_S)
    print(percentile(found, 95))


@contextmanager
def another(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """This program once more, in a process of its own."""
    command = [sys.executable, __file__, *arguments]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def held_by(pid: int) -> tuple[float, int]:
    """MiB of resident memory, and descriptors of a process."""
    return resident_mib(pid), len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def measure(url: str, pid: int, plan: RealtimePlan, num_streams: int, kinds: list[str]) -> None:
    """A quiet round, one of each kind, and what is printed of them."""
    rows: list[list[str]] = []
    quiet_s = quiet_spoken_s = 0.0
    async with AsyncClient(url) as client:
        await realtime.warm_up(client, plan)
        for number, kind in enumerate(["", *kinds]):
            with another("--ping", "--url", url) as ping:
                if kind:
                    with another("--be", kind, "--url", url) as attacker:
                        found = await realtime.run_round(client, plan, num_streams, seed=number)
                        assert attacker.poll() is None, f"{kind} ended by itself"
                else:
                    found = await realtime.run_round(client, plan, num_streams, seed=number)
                answer, _ = await anyio.to_thread.run_sync(ping.communicate)
            await anyio.sleep(3)
            metrics = await client.metrics()
            final_s = percentile(found.final_s, 95)
            spoken_s = percentile(found.after_last_word_s, 95)
            quiet_s, quiet_spoken_s = quiet_s or final_s, quiet_spoken_s or spoken_s
            resident, num_descriptors = held_by(pid)
            rows.append(
                [
                    kind or "quiet",
                    f"{1000 * float(answer):.1f}",
                    f"{1000 * final_s:.0f}",
                    f"{final_s / quiet_s:.2f}",
                    f"{1000 * spoken_s:.0f}",
                    f"{spoken_s / quiet_spoken_s:.2f}",
                    f"{1000 * metrics['sensorium_loop_hold_seconds']:.0f}",
                    f"{resident:.0f}",
                    str(num_descriptors),
                    f"{metrics['sensorium_connections_open']:.0f}",
                    f"{metrics['sensorium_sessions_active']:.0f}",
                    str(len(found.errors) + found.num_drops),
                ]
            )
            print(" ".join(rows[-1]), file=sys.stderr)
    head = [
        "kind",
        "ping p95",
        "final p95",
        "ratio",
        "last word p95",
        "ratio",
        "hold",
        "MiB",
        "fds",
        "connections",
        "sessions",
        "errors",
    ]
    print(table(head, rows))


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=24)
    parser.add_argument("--seconds", type=float, default=20.0, help="of speech per round, at least")
    parser.add_argument("--model", default="tiny-qwen3-asr")
    parser.add_argument("--kind", choices=sorted(KINDS), action="append", help="all of them if not given")
    parser.add_argument("--rounds", type=int, default=1, help="of each kind")
    parser.add_argument("server", nargs="*", help="options of the server, behind --")
    parser.add_argument("--be", choices=sorted(KINDS), help=argparse.SUPPRESS)
    parser.add_argument("--ping", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be is not None:
        KINDS[options.be](options.url)
    elif options.ping:
        measure_pings(options.url)
    else:
        recording = Recording(read_wav(TALK), tuple(read_spoken_turns(TALK.with_suffix(".json"))))
        plan = RealtimePlan(recording, options.seconds)
        kinds = [kind for kind in options.kind or KINDS for _ in range(options.rounds)]
        serve = [options.model, "--max-sessions", "128", *options.server]
        with serving(serve, is_silent=True) as (url, pid):
            anyio.run(measure, url, pid, plan, options.streams, kinds)


if __name__ == "__main__":
    main()
