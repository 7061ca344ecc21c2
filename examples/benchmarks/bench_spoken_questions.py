"""Spoken questions over running frames, alone and beside sessions that transcribe, on a server of our own.

    python examples/benchmarks/bench_spoken_questions.py FOLDER [--sessions 8] [--streams 8] [--seconds 24]

FOLDER is of a vision model (`examples/make_random_qwen3_vl.py`, or one that was trained); speech is heard by
`--speech`. Each session shows two frames a second in real time and speaks `examples/data/conversation.wav`,
whose turns are answered unasked. Printed is, in milliseconds, how long after the end of speech the first text
of its answer came: behind the last word as the recording has it (which includes the silence that ends a
turn), behind the server's `speech_stopped`, and behind the transcript. Then what `bench_lanes.py` prints of
the sessions that transcribe, without and with the others beside them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
from bench_lanes import TALK, compared, serving
from bench_watching import FPS, film
from sensorium.client import (
    AnswerDelta,
    AsyncClient,
    AsyncDialogueSession,
    Completed,
    ErrorEvent,
    Event,
    SpeechStopped,
)
from sensorium.client.audio import Audio, read_wav
from sensorium.client.bench import realtime
from sensorium.client.bench.realtime import RealtimePlan, RealtimeRound, Recording
from sensorium.client.bench.report import table
from sensorium.client.bench.statistics import percentile
from sensorium.client.bench.turns import SpokenTurn, read_spoken_turns

CHUNK_MS: Final = 40
SIZE: Final = (224, 168)


@dataclass
class Session:
    """One that watches and listens; times are seconds of the loop's clock."""

    number: int
    audio: Audio
    turns: Sequence[SpokenTurn]
    seconds: float
    ends: list[float] = field(default_factory=list)
    """Of spoken turns."""
    events: list[tuple[float, Event]] = field(default_factory=list)

    async def run(self, client: AsyncClient, model: str, speech: str, turns: str) -> None:
        """Show and speak to the end."""
        async with (
            client.realtime(
                model,
                type="realtime",
                sample_rate=self.audio.rate,
                transcription={"model": speech},
                turn_detection={"type": turns},
                video={"retention_s": 20},
                max_output_tokens=8,
                temperature=0,
            ) as session,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(self._listen, session)
            tasks.start_soon(self._show, session)
            await self._speak(session)
            await anyio.sleep(1.5)  # the last answer
            tasks.cancel_scope.cancel()

    async def _listen(self, session: AsyncDialogueSession) -> None:
        async for event in session.events():
            self.events.append((anyio.current_time(), event))

    async def _show(self, session: AsyncDialogueSession) -> None:
        began = anyio.current_time()
        for index, frame in enumerate(film(SIZE, 1000 * self.number)):
            await anyio.sleep_until(began + index / FPS)
            await session.send_frame(frame, round(1000 * index / FPS))

    async def _speak(self, session: AsyncDialogueSession) -> None:
        began, spoken_s = anyio.current_time(), 0.0
        while spoken_s < self.seconds:
            self.ends += [began + spoken_s + turn.end_ms / 1000 for turn in self.turns]
            for chunk in self.audio.chunks(CHUNK_MS):
                spoken_s += len(chunk) / self.audio.format.bytes_per_second
                await anyio.sleep_until(began + spoken_s)
                await session.send_audio(chunk)

    def latencies(self) -> Iterator[tuple[float, float, float]]:
        """Of each turn that was answered, before the next one ended."""
        for end, until in zip(self.ends, [*self.ends[1:], float("inf")], strict=True):
            mine = [(at, event) for at, event in self.events if end <= at < until]
            first = next((at for at, event in mine if isinstance(event, AnswerDelta)), None)
            if first is None:
                continue
            before = [(at, event) for at, event in mine if at <= first]
            stopped = next((at for at, event in before if isinstance(event, SpeechStopped)), end)
            transcribed = next((at for at, event in before if isinstance(event, Completed)), end)
            yield first - end, first - stopped, first - transcribed


async def speak(client: AsyncClient, options: argparse.Namespace, model: str) -> list[Session]:
    """All sessions side by side."""
    audio, turns = read_wav(TALK), read_spoken_turns(TALK.with_suffix(".json"))
    sessions = [Session(number, audio, turns, options.seconds) for number in range(options.sessions)]
    async with anyio.create_task_group() as tasks:
        for session in sessions:
            tasks.start_soon(session.run, client, model, options.speech, options.turns)
            await anyio.sleep(CHUNK_MS * 7 / 1000)
    return sessions


def print_row(sessions: Sequence[Session], name: str) -> None:
    """Print what they met."""
    found = [each for session in sessions for each in session.latencies()]
    num_turns = sum(len(session.ends) for session in sessions)
    errors = [
        event.error.code
        for session in sessions
        for _, event in session.events
        if isinstance(event, ErrorEvent)
    ]
    rows = []
    for place, what in enumerate(("last word", "speech_stopped", "transcript")):
        values = [1000 * each[place] for each in found]
        rows.append(
            [f"behind the {what}", *(f"{percentile(values, percent):.0f}" for percent in (50, 95, 100))]
        )
    print(f"{name}: {len(found)} of {num_turns} turns answered; errors: {errors[:3] or 'none'}")
    print(table(["first text, ms", "p50", "p95", "longest"], rows), flush=True)


async def measure(url: str, options: argparse.Namespace) -> None:
    """Alone, then beside each other."""
    recording = Recording(read_wav(TALK), tuple(read_spoken_turns(TALK.with_suffix(".json"))))
    plan = RealtimePlan(recording, options.seconds, model=options.speech)
    rounds: list[list[RealtimeRound]] = [[], []]
    async with AsyncClient(url) as client:
        model = next(each.id for each in (await client.models()) if each.id != options.speech)
        await realtime.warm_up(client, plan)
        if options.streams:
            rounds[0].append(await realtime.run_round(client, plan, options.streams, seed=1))
        else:
            print_row(await speak(client, options, model), f"{options.sessions} sessions")
            return

        async def transcribe() -> None:
            rounds[1].append(await realtime.run_round(client, plan, options.streams, seed=2))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(transcribe)
            sessions = await speak(client, options, model)
    print_row(sessions, f"{options.sessions} sessions beside {options.streams} that transcribe")
    rows = [row for name in ("first_partial_s", "final_s") for row in compared(name, *rounds)]
    print(table(["transcribing, ms", "turns", "alone", "beside", "ratio"], rows))


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="of a vision model")
    parser.add_argument("--speech", default="tiny-qwen3-asr")
    parser.add_argument("--sessions", type=int, default=8, help="that watch, listen and answer")
    parser.add_argument("--streams", type=int, default=0, help="sessions that transcribe, beside them")
    parser.add_argument("--seconds", type=float, default=20.0, help="of speech, at least")
    parser.add_argument("--turns", default="server_vad", help="server_vad or semantic_vad")
    options = parser.parse_args()
    serve = [options.speech, str(options.folder), "--max-context", "4096", "--kv-memory", "512MiB"]
    with serving([*serve, "--max-sessions", "64"]) as (url, _):
        anyio.run(measure, url, options)


if __name__ == "__main__":
    main()
