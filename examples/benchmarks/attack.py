"""An attacker's list against a server of our own, each kind beside another's live sessions and uploads.

    python examples/benchmarks/attack.py [--streams 12] [--seconds 20] [--kind pings --kind files]
        [--rounds 1] [-- --kv-memory 64MiB]

For each kind a round of live sessions is spoken at real-time pace beside it, three seconds of speech are
uploaded again and again, and `/ping` is asked 20 times a second on a connection that stays open, all as they
were measured without an attacker first. The attacker has a key of its own, and runs at niceness 19, since it
stands for another machine: what it computes itself takes little of the server's processors. Kinds are broken
and hostile connections (here), and much that may rightly be asked for (`greedy.py`). When this program ends,
killed or not, the attacker and the server end with it (Linux).

Printed are milliseconds and their ratio to quiet (of final transcripts, after the turn's commit and after its
last word was said; of uploads), whether that is within what is promised (`is_kept`), the loop's longest hold,
and what the process held after: resident memory, descriptors, open connections and sessions. Options after
`--` are the server's: both its caches grow until they are full, so for the memory of connections give it
small ones.
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpx
import msgspec
from bench_lanes import TALK, end_with_parent, serving
from greedy import ATTACKER, VISION, authorization, connect, web_socket
from greedy import KINDS as GREEDY
from sensorium.client import AsyncClient
from sensorium.client.audio import read_wav
from sensorium.client.bench import files, realtime
from sensorium.client.bench.files import FilesPlan, FileToRead
from sensorium.client.bench.realtime import RealtimePlan, RealtimeRound, Recording
from sensorium.client.bench.report import table
from sensorium.client.bench.statistics import percentile
from sensorium.client.bench.turns import read_spoken_turns
from soak import resident_mib

BYSTANDER: Final = "key-of-the-bystander"
LIVE: Final = frozenset({"frames"})
"""Attackers that speak, too."""
ENCODE_S: Final = 0.05
"""About what an encode of another takes, which no upload can interrupt."""
_PINGS_PER_S: Final = 20
_LARGE: Final = 20_000_000
_UPLOAD_PAUSE_S: Final = 0.5
_LEAD_S: Final = 3.0
"""For the attacker to be in full swing."""
_REST_S: Final = 3.0


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
    head += f"Authorization: Bearer {ATTACKER}\r\n"
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
    with httpx.Client(timeout=None, headers=authorization(ATTACKER)) as client:
        while True:
            client.post(f"{url}/v1/completions", json=body).raise_for_status()


def prompts(url: str) -> None:
    """Texts of 250,000 characters to be made tokens of."""
    body = {"prompt": "word The " * 28_000}
    with httpx.Client(timeout=None, headers=authorization(ATTACKER)) as client:
        while True:
            client.post(f"{url}/tokenize", json=body)


KINDS: Final[dict[str, Callable[[str], None]]] = {
    each.__name__: each
    for each in (fragments, pings, small, idle, storm, early, chunks, heads, logprobs, prompts)
} | GREEDY


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
    with subprocess.Popen(
        command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=end_with_parent
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def held_by(pid: int) -> tuple[float, int]:
    """MiB of resident memory, and descriptors of a process."""
    return resident_mib(pid), len(list(Path(f"/proc/{pid}/fd").iterdir()))


@dataclass
class Row:
    """What a round measured. Seconds."""

    kind: str
    ping_s: float
    spoken: RealtimeRound
    upload_s: list[float]
    cells: list[str]
    """What the server says after it."""

    @property
    def final_s(self) -> float:
        """95th percentile after the turn's commit."""
        return percentile(self.spoken.final_s, 95)


HEAD: Final = (
    "kind",
    "ping p95",
    "final p50",
    "p95",
    "ratio",
    "last word p95",
    "ratio",
    "upload p50",
    "p95",
    "ratio",
    "kept",
    "hold",
    "MiB",
    "fds",
    "connections",
    "sessions",
    "errors",
)


def is_kept(row: Row, quiet: Row) -> bool:
    """Whether the round was as good as is promised: finals within half as much again as in quiet and 50 ms
    (twice as much, where the attacker is live too), uploads within twice as much."""
    most = 2.0 * quiet.final_s if row.kind in LIVE else 1.5 * quiet.final_s + 0.05
    uploads, quiet_uploads = percentile(row.upload_s, 50), percentile(quiet.upload_s, 50)
    return row.final_s <= most and uploads <= 2 * quiet_uploads + ENCODE_S


def shown(row: Row, quiet: Row) -> list[str]:
    """A line of the table, in milliseconds."""
    spoken = percentile(row.spoken.after_last_word_s, 95)
    uploads = percentile(row.upload_s, 50)
    return [
        row.kind or "quiet",
        f"{1000 * row.ping_s:.1f}",
        f"{1000 * percentile(row.spoken.final_s, 50):.0f}",
        f"{1000 * row.final_s:.0f}",
        f"{row.final_s / quiet.final_s:.2f}",
        f"{1000 * spoken:.0f}",
        f"{spoken / percentile(quiet.spoken.after_last_word_s, 95):.2f}",
        f"{1000 * uploads:.0f}",
        f"{1000 * percentile(row.upload_s, 95):.0f}",
        f"{uploads / percentile(quiet.upload_s, 50):.2f}",
        "yes" if is_kept(row, quiet) else "no",
        *row.cells,
    ]


async def upload(client: AsyncClient, latency_s: list[float]) -> None:
    """Files of three seconds of speech, one every half second, each of other bytes."""
    audio = read_wav(TALK)
    start = msgspec.structs.replace(audio, pcm=audio.pcm[: 3 * audio.format.bytes_per_second])
    file = FileToRead("speech.wav", start)
    for number in itertools.count():
        done = await files.run_round(client, FilesPlan((file,), 1), 1, seed=number)
        latency_s += done.latency_s
        await anyio.sleep(_UPLOAD_PAUSE_S)


async def measure_round(
    client: AsyncClient, pid: int, plan: RealtimePlan, num_streams: int, kind: str
) -> Row:
    """A round beside one attacker, or nobody."""
    url, seed, latency_s = client.options.root_url, time.monotonic_ns(), list[float]()
    with ExitStack() as others:
        if kind:
            attacker = others.enter_context(another("--be", kind, "--url", url))
            await anyio.sleep(_LEAD_S)
        ping = others.enter_context(another("--ping", "--url", url))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(upload, client, latency_s)
            spoken = await realtime.run_round(client, plan, num_streams, seed=seed)
            tasks.cancel_scope.cancel()
        assert not kind or attacker.poll() is None, f"{kind} ended by itself"
        answer, _ = await anyio.to_thread.run_sync(ping.communicate)
    await anyio.sleep(_REST_S)
    metrics = await client.metrics()
    resident, num_descriptors = held_by(pid)
    cells = [
        f"{1000 * metrics['sensorium_loop_hold_seconds']:.0f}",
        f"{resident:.0f}",
        str(num_descriptors),
        f"{metrics['sensorium_connections_open']:.0f}",
        f"{metrics['sensorium_sessions_active']:.0f}",
        str(len(spoken.errors) + spoken.num_drops),
    ]
    return Row(kind, float(answer), spoken, latency_s, cells)


async def measure(url: str, pid: int, plan: RealtimePlan, num_streams: int, kinds: list[str]) -> None:
    """A quiet round, one of each kind, and what is printed of them."""
    async with AsyncClient(url, api_key=BYSTANDER) as client:
        await realtime.warm_up(client, plan)
        await measure_round(client, pid, msgspec.structs.replace(plan, seconds=0.0), num_streams, "")
        rows = list[Row]()
        for kind in ("", *kinds):
            rows.append(await measure_round(client, pid, plan, num_streams, kind))
            print(" ".join(shown(rows[-1], rows[0])), file=sys.stderr, flush=True)
    print(table(list(HEAD), [shown(row, rows[0]) for row in rows]))


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=20.0, help="of speech per round, at least")
    parser.add_argument("--model", default="tiny-whisper")
    parser.add_argument("--kind", choices=sorted(KINDS), action="append", help="all of them if not given")
    parser.add_argument("--rounds", type=int, default=1, help="of each kind")
    parser.add_argument("server", nargs="*", help="options of the server, after --")
    parser.add_argument("--be", choices=sorted(KINDS), help=argparse.SUPPRESS)
    parser.add_argument("--ping", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be is not None:
        os.setpriority(os.PRIO_PROCESS, 0, 19)
        KINDS[options.be](options.url)
    elif options.ping:
        measure_pings(options.url)
    else:
        recording = Recording(read_wav(TALK), tuple(read_spoken_turns(TALK.with_suffix(".json"))))
        plan = RealtimePlan(recording, options.seconds)
        kinds = [kind for kind in options.kind or KINDS for _ in range(options.rounds)]
        keys = ["--api-key", ATTACKER, "--api-key", BYSTANDER]
        serve = [options.model, VISION, "--max-sessions", "128", *keys, *options.server]
        with serving(serve, is_silent=True) as (url, pid):
            anyio.run(measure, url, pid, plan, options.streams, kinds)


if __name__ == "__main__":
    main()
