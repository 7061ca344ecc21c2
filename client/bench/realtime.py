"""Paced live sessions: N speakers at real-time pace against one server, measured at the client.

A stream sends a recording over and over, each chunk when its last sample would have been spoken, until the
asked time is full (always whole passes, so that what was said is known). Read next: `client/bench/turns.py`
for the terms, `client/bench/bench.py` for the rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, Literal

import anyio
import msgspec

from ...protocols.transcription.options import Delay
from ..async_client import AsyncClient
from ..audio import Audio, Pacer, silence, varied
from ..errors import SDKError
from ..metrics import Work, work_between
from ..realtime.async_transcription import AsyncRealtimeSession
from ..realtime.events import Backpressure, ErrorEvent
from .flat import FlatSession, flat_session
from .statistics import WordErrors
from .turns import SpokenTurn, TurnLog

Dialect = Literal["sensorium", "openai", "vllm"]
"""Binary audio; audio as JSON; vLLM's flat events, where the client ends every turn."""

GAP_S: Final = 1.0
"""Silence between two passes of a recording."""
STAGGER_S: Final = 3.0
"""Streams begin spread over this time, because people do not speak in step."""
COMMIT_AFTER_MS: Final = 200
"""With turns ended by hand, the commit is sent this long after the last word."""


class Recording(msgspec.Struct, frozen=True):
    """Audio and, if known, what is said in it."""

    audio: Audio
    spoken: tuple[SpokenTurn, ...] = ()

    def passes(self, seconds: float, seed: int) -> tuple[bytes, tuple[SpokenTurn, ...]]:
        """The recording repeated until `seconds` are full: PCM, and what is said in all of it.

        No two passes have the same bytes (`audio.varied`).
        """
        gap = silence(GAP_S, self.audio.rate)
        length_s = self.audio.duration_s + GAP_S
        count = max(1, math.ceil(seconds / length_s))
        spoken = tuple(
            msgspec.structs.replace(
                turn,
                start_ms=turn.start_ms + round(1000 * index * length_s),
                end_ms=turn.end_ms + round(1000 * index * length_s),
            )
            for index in range(count)
            for turn in self.spoken
        )
        pcm = b"".join(varied(self.audio, hash((seed, index))).pcm + gap for index in range(count))
        return pcm, spoken


class RealtimePlan(msgspec.Struct, frozen=True):
    """What the streams do."""

    recording: Recording
    """What is spoken."""
    seconds: float
    model: str | None = None
    language: str | None = None
    delay: Delay | None = None
    left_context_ms: int | None = None
    dialect: Dialect = "sensorium"
    manual_turns: bool = False
    """The client commits after each spoken turn instead of the server detecting turns."""
    chunk_ms: int = 100
    others: tuple[Recording, ...] = ()
    """What is spoken in turn with `recording`, so that not all streams say the same."""

    def of_stream(self, index: int) -> RealtimePlan:
        """The plan of one speaker."""
        spoken = (self.recording, *self.others)
        return msgspec.structs.replace(self, recording=spoken[index % len(spoken)], others=())


class RealtimeRound(msgspec.Struct):
    """Measurements of one round; latencies in seconds, one number per turn."""

    num_streams: int
    audio_s: float = 0.0
    first_partial_s: list[float] = []
    final_s: list[float] = []
    after_last_word_s: list[float] = []
    sending_lag_s: list[float] = []
    """How late each chunk left: grows when the server stops reading."""
    num_turns: int = 0
    num_deltas: int = 0
    num_corrections: int = 0
    num_drops: int = 0
    """Spoken turns without any transcript, and items that failed or were never completed."""
    num_backpressure: int = 0
    errors: list[str] = []
    word_errors: WordErrors = WordErrors()
    work: Work | None = None

    def add(self, other: RealtimeRound) -> None:
        """Pool another stream's measurements into these."""
        self.audio_s += other.audio_s
        for name in ("first_partial_s", "final_s", "after_last_word_s", "sending_lag_s", "errors"):
            getattr(self, name).extend(getattr(other, name))
        for name in ("num_turns", "num_deltas", "num_corrections", "num_drops", "num_backpressure"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.word_errors += other.word_errors


async def run_round(client: AsyncClient, plan: RealtimePlan, num_streams: int, *, seed: int) -> RealtimeRound:
    """N streams side by side, with the engine's work counted before and after."""
    total = RealtimeRound(num_streams)
    before = await read_metrics(client)
    async with anyio.create_task_group() as tasks:

        async def one(index: int, stream: _Stream) -> None:
            await anyio.sleep(STAGGER_S * index / num_streams)
            total.add(await stream.run())

        streams = [
            _Stream(client, plan.of_stream(index), hash((seed, index))) for index in range(num_streams)
        ]
        for index, stream in enumerate(streams):
            tasks.start_soon(one, index, stream)
    total.work = work_between(before, await read_metrics(client), total.audio_s)
    return total


async def warm_up(client: AsyncClient, plan: RealtimePlan) -> None:
    """A first stretch of the recording that is not counted."""
    start = msgspec.structs.replace(
        plan.recording.audio, pcm=plan.recording.audio.pcm[: 2 * 5 * plan.recording.audio.rate]
    )
    stream = _Stream(client, msgspec.structs.replace(plan, recording=Recording(start), seconds=0.0), seed=-1)
    result = await stream.run()
    if result.errors:
        raise SDKError(f"{client.options.root_url} failed while warming up: {result.errors[0]}")


async def read_metrics(client: AsyncClient) -> dict[str, float]:
    """The server's counters; empty if it has none to show."""
    try:
        return await client.metrics()
    except SDKError:
        return {}


def session_arguments(plan: RealtimePlan) -> dict[str, Any]:
    """How a stream's session is opened: the openai dialect sends audio as JSON, ours as binary frames.

    A lost connection is a drop that counts: it is not resumed.
    """
    return {
        "model": plan.model,
        "language": plan.language,
        "delay": plan.delay,
        "left_context_ms": plan.left_context_ms,
        "sample_rate": plan.recording.audio.rate,
        "turn_detection": None if plan.manual_turns else "server_vad",
        "binary": plan.dialect == "sensorium",
        "resume": False,
    }


def open_session(
    client: AsyncClient, plan: RealtimePlan
) -> AbstractAsyncContextManager[AsyncRealtimeSession | FlatSession]:
    """One stream's session, in the plan's dialect."""
    if plan.dialect == "vllm":
        rate = plan.recording.audio.rate
        return flat_session(client.options, model=plan.model, language=plan.language, rate=rate)
    return client.realtime(**session_arguments(plan))


class _Stream:
    """One speaker."""

    def __init__(self, client: AsyncClient, plan: RealtimePlan, seed: int) -> None:
        self._client = client
        self._plan = plan
        self._log = TurnLog()
        self._result = RealtimeRound(1)
        self._pcm, self._spoken = plan.recording.passes(plan.seconds, seed)

    async def run(self) -> RealtimeRound:
        """Speak, listen, and sum up. A session that breaks is counted, not raised."""
        try:
            async with open_session(self._client, self._plan) as session:
                self._log.configure(session.updated)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._send, session)
                    await self._listen(session)
        except* SDKError as group:
            self._result.errors.append(str(group.exceptions[0]))
        return self._sum_up()

    async def _send(self, session: AsyncRealtimeSession | FlatSession) -> None:
        audio = Audio(self._pcm, self._plan.recording.audio.rate)
        commits = self._commit_positions()
        self._log.audio_start_at = anyio.current_time()
        pacer = Pacer(start=self._log.audio_start_at)
        turn_start_ms = 0
        for chunk in audio.chunks(self._plan.chunk_ms):
            due = pacer.next_time(len(chunk) / audio.format.bytes_per_second)
            await anyio.sleep_until(due)
            await session.send(chunk)
            self._result.sending_lag_s.append(anyio.current_time() - due)
            sent_ms = round(1000 * pacer.sent_s)
            if commits and sent_ms >= commits[0]:
                commits.pop(0)
                self._log.commit_sent(anyio.current_time(), turn_start_ms, sent_ms)
                turn_start_ms = sent_ms
                await session.commit()
        self._result.audio_s = pacer.sent_s
        await session.finish()

    async def _listen(self, session: AsyncRealtimeSession | FlatSession) -> None:
        async for event in session:
            self._log.observe(event, anyio.current_time())
            match event:
                case Backpressure():
                    self._result.num_backpressure += 1
                case ErrorEvent():
                    self._result.errors.append(event.error.message or event.error.code or "error event")
                case _:
                    pass

    def _commit_positions(self) -> list[int]:
        if not self._plan.manual_turns and self._plan.dialect != "vllm":
            return []
        return [turn.end_ms + COMMIT_AFTER_MS for turn in self._spoken]

    def _sum_up(self) -> RealtimeRound:
        result, log = self._result, self._log
        turns = list(log.turns.values())
        result.num_turns = sum(turn.transcript is not None for turn in turns)
        result.num_deltas = sum(turn.num_deltas for turn in turns)
        result.num_corrections = sum(turn.corrected for turn in turns)
        result.num_drops = sum(turn.transcript is None for turn in turns)
        result.final_s = _known(turn.final_s for turn in turns)
        if self._spoken:
            received = [(spoken, log.turns_of(spoken)) for spoken in self._spoken]
            result.num_drops += sum(not items for _, items in received)
            result.first_partial_s = _known(
                log.first_partial_s(items[0], spoken) for spoken, items in received if items
            )
            result.after_last_word_s = _known(
                log.after_last_word_s(items[-1], spoken) for spoken, items in received if items
            )
            result.word_errors = log.word_errors(self._spoken)
        else:
            result.first_partial_s = _known(log.first_partial_s(turn) for turn in turns)
        return result


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
