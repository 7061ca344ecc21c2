"""What live sessions notice when one of two replicas is lost.

    python examples/benchmarks/lose_replica.py [--sessions 24] [--how kill stop memory]

A server with `--replicas 2` is started; sessions of the SDK speak the same recording at the pace of speech,
each begun a little later than the one before. Amid that one process is killed (SIGKILL), stopped (SIGSTOP,
and let go on after 8 s), or refused all further memory (`prlimit`). For each session it is
printed how much later the latest of its turns was answered than in a session alone, and first the same where
nothing is lost. Its turns have to be those of the session alone, with deltas that join to each. Linux.
"""

from __future__ import annotations

import argparse
import resource
import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from os import kill
from pathlib import Path
from statistics import median
from typing import Final

import anyio
from bench_lanes import serving
from sensorium.client import AsyncClient, Completed, Delta
from sensorium.client.audio import Audio, read_wav

RECORDING: Final = Path(__file__).resolve().parents[1] / "data" / "conversation.wav"
HOW: Final = ("kill", "stop", "memory")
APART_S: Final = 0.1
STOPPED_S: Final = 8.0
ROOM_BYTES: Final = 1024 * 1024
"""What a process may still take whose memory is refused."""


@dataclass
class Heard:
    """What one session was told."""

    times: list[float] = field(default_factory=list)
    """Of the ends of its turns, in seconds since it began to speak."""
    deltas: defaultdict[str, str] = field(default_factory=lambda: defaultdict(str))
    turns: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def lateness(self, undisturbed: Heard) -> list[float]:
        """How much later each turn was answered than in another session."""
        return [ours - theirs for ours, theirs in zip(self.times, undisturbed.times, strict=False)]


async def speak(url: str, model: str, audio: Audio, delay_s: float, heard: Heard) -> None:
    """One session, to its end."""
    await anyio.sleep(delay_s)
    async with (
        AsyncClient(url) as client,
        client.realtime(model, sample_rate=audio.rate) as session,
    ):
        started = time.monotonic()
        async for event in session.transcribe(audio.chunks(), speed=1.0):
            match event:
                case Delta():
                    heard.deltas[event.item_id] += event.delta
                case Completed():
                    heard.times.append(time.monotonic() - started)
                    heard.turns.append(event.transcript)
                    if heard.deltas[event.item_id] not in ("", event.transcript):
                        heard.faults.append(f"{heard.deltas[event.item_id]!r} became {event.transcript!r}")


def engine_processes(server: int) -> Iterator[int]:
    """The processes of a server that run engines."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, rest = path.read_text().rsplit(")", 1)
            if int(rest.split()[1]) == server and name.endswith("(sensorium-model"):
                yield int(path.parent.name)


def taken_bytes(pid: int) -> int:
    """Address space that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()


async def lose(how: str, pid: int) -> None:
    """End what a process does."""
    match how:
        case "kill":
            kill(pid, signal.SIGKILL)
        case "stop":
            kill(pid, signal.SIGSTOP)
            await anyio.sleep(STOPPED_S)
            kill(pid, signal.SIGCONT)
        case "memory":
            limit = taken_bytes(pid) + ROOM_BYTES
            resource.prlimit(pid, resource.RLIMIT_AS, (limit, limit))


async def measure(url: str, server: int, how: str | None, model: str, num_sessions: int) -> None:
    """One loss under load, or none."""
    audio, alone = read_wav(RECORDING), Heard()
    await speak(url, model, audio, 0.0, alone)
    sessions = [Heard() for _ in range(num_sessions)]
    async with anyio.create_task_group() as tasks:
        for number, heard in enumerate(sessions):
            tasks.start_soon(partial(speak, url, model, audio, number * APART_S, heard))
        if how is not None:
            await anyio.sleep(audio.duration_s / 2)
            await lose(how, next(engine_processes(server)))
    worst = sorted(max(heard.lateness(alone)) for heard in sessions)
    faults = [fault for heard in sessions for fault in heard.faults]
    num_wrong = sum(heard.turns != alone.turns for heard in sessions)
    print(
        f"{how or 'none':8} latest turn of a session: p50 {median(worst):5.2f} s later than alone, "
        f"last {worst[-1]:5.2f} s; of {len(alone.turns)} turns each, {num_wrong} sessions have others, "
        f"{len(faults)} turns other deltas"
    )
    for heard in sessions:
        if heard.turns != alone.turns:
            print(f"{'':8} {heard.turns} instead of {alone.turns}")
    for fault in faults:
        print(f"{'':8} {fault}")


def main() -> None:
    """Read the options, and measure each loss with a server of its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=24)
    parser.add_argument("--how", nargs="+", choices=HOW, default=HOW)
    parser.add_argument("--model", default="tiny-qwen3-asr")
    parser.add_argument("serve", nargs="*", help="options of the server, behind --")
    options = parser.parse_args()
    for how in (None, *options.how):
        with serving([options.model, "--replicas", "2", "--log-level", "error", *options.serve]) as (
            url,
            pid,
        ):
            anyio.run(measure, url, pid, how, options.model, options.sessions)


if __name__ == "__main__":
    main()
