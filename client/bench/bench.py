"""`sensorium bench`: the same load on one or more servers, interleaved round by round in one run.

Absolute times on a shared machine drift; A B A B in one run cancels the drift, and the spread between rounds
says how much of a difference is noise. Warm-up is not counted, and no audio is sent to a server twice. Read
next: `client/bench/realtime.py` and `client/bench/files.py` for one round, `client/bench/report.py` for what
is printed.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import msgspec

from ...protocols.transcription.options import Delay
from ..async_client import AsyncClient
from ..audio import read_wav
from ..errors import SDKError
from ..options import client_options
from ..terminal import write
from . import files as bench_files
from . import realtime as bench_realtime
from .files import FilesPlan, FilesRound, read_file
from .realtime import Dialect, RealtimePlan, RealtimeRound, Recording
from .turns import SpokenTurn, read_spoken_turns


class Contender(msgspec.Struct, frozen=True):
    """One server under test."""

    name: str
    base_url: str
    api_key: str | None = None


class Machine(msgspec.Struct, frozen=True):
    """Where the numbers were made. The client's machine; servers are named with their own versions."""

    system: str
    processor: str
    num_cpus: int
    python: str
    sensorium: str


class RealtimeResult(msgspec.Struct):
    """All rounds of one contender at one number of streams."""

    contender: str
    num_streams: int
    rounds: list[RealtimeRound]


class FilesResult(msgspec.Struct):
    """All rounds of one contender at one concurrency."""

    contender: str
    concurrency: int
    rounds: list[FilesRound]


class BenchResult(msgspec.Struct):
    """Everything one run measured, as dumped to JSON."""

    machine: Machine
    contenders: list[Contender]
    server_versions: dict[str, str]
    command: list[str]
    realtime: list[RealtimeResult] = []
    files: list[FilesResult] = []


class BenchPlan(msgspec.Struct, frozen=True):
    """What one run is asked for. No `streams`: no live sessions; no `concurrency`: no whole files."""

    recordings: list[Path]
    base_urls: list[str] = []
    streams: list[int] = []
    seconds: float = 60.0
    concurrency: list[int] = []
    num_requests: int = 32
    num_rounds: int = 3
    model: str | None = None
    language: str | None = None
    delay: Delay | None = None
    left_context_ms: int | None = None
    dialect: Dialect = "sensorium"
    manual_turns: bool = False
    api_key: str | None = None


Progress = Callable[[str], None]


async def measure(plan: BenchPlan) -> BenchResult:
    """Everything a plan asks for. Raises SDKError if a server fails already while warming up."""
    servers = contenders(plan.base_urls or [client_options().base_url], plan.api_key)
    result = BenchResult(
        machine=this_machine(),
        contenders=[msgspec.structs.replace(server, api_key=None) for server in servers],
        server_versions=await server_versions(servers),
        command=sys.argv,
    )
    if plan.streams:
        first, *others = (Recording(read_wav(path), tuple(_spoken(path))) for path in plan.recordings)
        live = RealtimePlan(
            recording=first,
            others=tuple(others),
            seconds=plan.seconds,
            model=plan.model,
            language=plan.language,
            delay=plan.delay,
            left_context_ms=plan.left_context_ms,
            dialect=plan.dialect,
            manual_turns=plan.manual_turns,
        )
        result.realtime = await bench_realtime_sessions(
            servers, live, streams=plan.streams, num_rounds=plan.num_rounds, progress=_progress
        )
    if plan.concurrency:
        files = tuple(read_file(path, _reference_text(path)) for path in plan.recordings)
        whole = FilesPlan(files, plan.num_requests, plan.model, plan.language)
        result.files = await bench_whole_files(
            servers, whole, concurrency=plan.concurrency, num_rounds=plan.num_rounds, progress=_progress
        )
    return result


def contenders(base_urls: Sequence[str], api_key: str | None = None) -> list[Contender]:
    """Servers by address, named A, B, … in the order given."""
    return [
        Contender(f"{chr(ord('A') + index)} {urlsplit(url).netloc}", url, api_key)
        for index, url in enumerate(base_urls)
    ]


def interleave(num_contenders: int, num_rounds: int) -> Iterator[tuple[int, int]]:
    """(round, contender) in the order they run: A B A B, never A A B B."""
    return ((round_, contender) for round_ in range(num_rounds) for contender in range(num_contenders))


async def bench_realtime_sessions(
    servers: Sequence[Contender],
    plan: RealtimePlan,
    *,
    streams: Sequence[int],
    num_rounds: int,
    progress: Progress,
) -> list[RealtimeResult]:
    """Paced live sessions: for each number of streams, all contenders in turn. Raises SDKError."""
    async with _clients(servers) as clients:
        for client in clients:
            await bench_realtime.warm_up(client, plan)
        results = []
        for num_streams in streams:
            rows = [RealtimeResult(server.name, num_streams, []) for server in servers]
            for round_, index in interleave(len(servers), num_rounds):
                progress(f"{servers[index].name}: {num_streams} streams, round {round_ + 1} of {num_rounds}")
                rows[index].rounds.append(
                    await bench_realtime.run_round(
                        clients[index], plan, num_streams, seed=hash((index, num_streams, round_))
                    )
                )
            results.extend(rows)
    return results


async def bench_whole_files(
    servers: Sequence[Contender],
    plan: FilesPlan,
    *,
    concurrency: Sequence[int],
    num_rounds: int,
    progress: Progress,
) -> list[FilesResult]:
    """Whole files: for each concurrency, all contenders in turn. Raises SDKError."""
    async with _clients(servers) as clients:
        for client in clients:
            await bench_files.warm_up(client, plan, max(concurrency))
        results = []
        for limit in concurrency:
            rows = [FilesResult(server.name, limit, []) for server in servers]
            for round_, index in interleave(len(servers), num_rounds):
                progress(f"{servers[index].name}: {limit} at a time, round {round_ + 1} of {num_rounds}")
                rows[index].rounds.append(
                    await bench_files.run_round(
                        clients[index], plan, limit, seed=hash((index, limit, round_))
                    )
                )
            results.extend(rows)
    return results


async def server_versions(servers: Sequence[Contender]) -> dict[str, str]:
    """What each server says it is, where it says so."""
    found = {}
    async with _clients(servers) as clients:
        for server, client in zip(servers, clients, strict=True):
            try:
                models = ", ".join(model.id for model in await client.models())
                found[server.name] = f"version {await client.version()}, models: {models}"
            except SDKError as error:
                found[server.name] = f"unknown ({error})"
    return found


def this_machine() -> Machine:
    """The machine this process runs on."""
    return Machine(
        system=f"{platform.system()} {platform.release()}",
        processor=_processor(),
        num_cpus=_num_cpus(),
        python=platform.python_version(),
        sensorium=version("sensorium"),
    )


@asynccontextmanager
async def _clients(servers: Sequence[Contender]) -> AsyncIterator[list[AsyncClient]]:
    clients = [AsyncClient(server.base_url, server.api_key, max_retries=0) for server in servers]
    try:
        yield clients
    finally:
        for client in clients:
            with anyio.CancelScope(shield=True):
                await client.close()


def _spoken(path: Path) -> list[SpokenTurn]:
    turns_path = path.with_suffix(".json")
    return read_spoken_turns(turns_path) if turns_path.is_file() else []


def _reference_text(path: Path) -> str | None:
    return " ".join(turn.text for turn in _spoken(path)) or None


def _progress(text: str) -> None:
    write(text, out=sys.stderr)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _num_cpus() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
