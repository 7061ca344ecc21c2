"""Whole files: R requests at concurrency C against `/v1/audio/transcriptions` of one server.

Read next: `client/bench/bench.py` for the rounds.
"""

from __future__ import annotations

from itertools import cycle, islice
from pathlib import Path

import anyio
import msgspec

from ..async_client import AsyncClient
from ..audio import Audio, read_wav, varied, wav_bytes
from ..errors import SDKError
from ..metrics import Work, work_between
from .realtime import read_metrics
from .statistics import WordErrors, word_errors


class FileToRead(msgspec.Struct, frozen=True):
    """A recording in memory, so that the disk is not measured, and its transcript if known."""

    name: str
    audio: Audio
    text: str | None = None


class FilesPlan(msgspec.Struct, frozen=True):
    """What every round does: the files in turn, until `num_requests` are answered.

    No two requests of a run carry the same bytes (`audio.varied`).
    """

    files: tuple[FileToRead, ...]
    num_requests: int
    model: str | None = None
    language: str | None = None


class FilesRound(msgspec.Struct):
    """Measurements of one round."""

    concurrency: int
    latency_s: list[float] = []
    audio_s: float = 0.0
    wall_s: float = 0.0
    errors: list[str] = []
    word_errors: WordErrors = WordErrors()
    work: Work | None = None

    @property
    def audio_s_per_s(self) -> float:
        """Throughput: seconds of audio transcribed per second of wall-clock time."""
        return self.audio_s / self.wall_s if self.wall_s else float("nan")


def read_file(path: Path, text: str | None = None) -> FileToRead:
    """A PCM16 WAV file to send. Raises AudioError if it is none."""
    return FileToRead(path.name, read_wav(path, rates=()), text)


async def run_round(client: AsyncClient, plan: FilesPlan, concurrency: int, *, seed: int) -> FilesRound:
    """All requests of one round, never more than `concurrency` at a time."""
    result = FilesRound(concurrency)
    files = islice(cycle(plan.files), plan.num_requests)
    waiting = [
        (file, wav_bytes(varied(file.audio, hash((seed, number))))) for number, file in enumerate(files)
    ][::-1]
    before = await read_metrics(client)
    start = anyio.current_time()

    async def worker() -> None:
        while waiting:
            await _request(client, plan, *waiting.pop(), result)

    async with anyio.create_task_group() as tasks:
        for _ in range(concurrency):
            tasks.start_soon(worker)
    result.wall_s = anyio.current_time() - start
    result.work = work_between(before, await read_metrics(client), result.audio_s)
    return result


async def warm_up(client: AsyncClient, plan: FilesPlan, concurrency: int) -> None:
    """As many requests as run at once, not counted."""
    result = await run_round(
        client, msgspec.structs.replace(plan, num_requests=max(2, concurrency)), concurrency, seed=-1
    )
    if result.errors:
        raise SDKError(f"{client.options.root_url} failed while warming up: {result.errors[0]}")


async def _request(
    client: AsyncClient, plan: FilesPlan, file: FileToRead, data: bytes, result: FilesRound
) -> None:
    start = anyio.current_time()
    try:
        transcript = await client.transcribe(
            data, model=plan.model, language=plan.language, response_format="json", temperature=0.0
        )
    except SDKError as error:
        result.errors.append(f"{file.name}: {error}")
        return
    result.latency_s.append(anyio.current_time() - start)
    result.audio_s += file.audio.duration_s
    if file.text is not None:
        result.word_errors += word_errors(file.text, transcript.text)
