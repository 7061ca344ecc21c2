"""Voice activity in batches: the scores are those of a stream alone, nobody waits for another's backlog, and
a session hears exactly what it would hear frame by frame."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
import trio
from sensorium.actors.live import voice_activity as voice_activity
from sensorium.actors.live.voice_activity import OpenVadStream, VadStream, VoiceActivityActor
from sensorium.media.speech.voice_activity import (
    FRAME_SAMPLES,
    FloatArray,
    VoiceActivityModel,
    VoiceActivityStream,
)
from sensorium.media.transcript.range_answer import Samples
from sensorium.protocols.errors import InternalError, UnavailableError
from support.fake_sessions import Event, FakeSocket, Sessions
from support.no_threads import refusing_threads
from support.vad_streams import network_vad
from trio.testing import MockClock, wait_all_tasks_blocked

pytestmark = pytest.mark.slow

DATA = Path(__file__).resolve().parents[3] / "examples" / "data"
Scores = list[tuple[int, float]]


@pytest.fixture(scope="module")
def model() -> VoiceActivityModel:
    return VoiceActivityModel()


@pytest.fixture(scope="module")
def speech() -> Samples:
    samples, rate = soundfile.read(DATA / "kitchen_lights.wav", dtype="float32")
    assert rate == 16_000
    return np.asarray(samples, dtype=np.float32)


@asynccontextmanager
async def running(model: VoiceActivityModel) -> AsyncIterator[VoiceActivityActor]:
    actor = VoiceActivityActor(model)
    async with trio.open_nursery() as nursery:
        await nursery.start(actor.run)
        yield actor
        nursery.cancel_scope.cancel()


class SteppedModel(VoiceActivityModel):
    """Each call waits for leave; a frame's score is its first sample. Remembers what came together."""

    def __init__(self) -> None:
        self.rows: list[list[float]] = []
        self._leave = threading.Semaphore(0)
        self.is_broken = False

    def score(self, frames: FloatArray, states: FloatArray) -> tuple[FloatArray, FloatArray]:
        self._leave.acquire()
        if self.is_broken:
            raise RuntimeError("a defect")
        marks = frames[:, 64]
        self.rows.append(marks.tolist())
        return marks, states + 1

    def let(self, num_calls: int = 1_000) -> None:
        """Give leave to so many calls."""
        self._leave.release(num_calls)


def marked(mark: int, num_frames: int) -> Samples:
    return np.full(num_frames * FRAME_SAMPLES, mark, np.float32)


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while not condition():  # noqa: ASYNC110 (a thread makes it true)
            await trio.sleep(0.001)


async def test_scores_are_those_of_a_stream_alone(model: VoiceActivityModel, speech: Samples) -> None:
    """However many there are, whatever each is cut into, and also behind a reset."""
    scores_by_stream: dict[int, Scores] = {}

    async def listen(vad_stream: VadStream, index: int) -> None:
        rng = np.random.default_rng(index)
        audio, scores = np.roll(speech, 5_000 * index)[:40_000], Scores()
        for number, part in enumerate(np.split(audio, np.sort(rng.integers(0, 40_000, 12)))):
            if number == 6:
                vad_stream.reset()
            scores += await vad_stream.score(part)
        scores_by_stream[index] = scores

    def alone(index: int) -> Scores:
        rng = np.random.default_rng(index)
        stream, scores = VoiceActivityStream(model), Scores()
        audio = np.roll(speech, 5_000 * index)[:40_000]
        for number, part in enumerate(np.split(audio, np.sort(rng.integers(0, 40_000, 12)))):
            if number == 6:
                stream.reset()
            scores += stream.push(part)
        return scores

    async with running(model) as actor, trio.open_nursery() as nursery:
        for index in range(voice_activity.MAX_STREAMS + 6):
            nursery.start_soon(listen, actor.open_vad_stream(), index)
    for index, scores in scores_by_stream.items():
        expected = alone(index)
        assert [end for end, _ in scores] == [end for end, _ in expected]
        np.testing.assert_allclose([p for _, p in scores], [p for _, p in expected], rtol=0, atol=1e-6)


async def test_a_backlog_delays_nobody_by_more_than_a_batch() -> None:
    model = SteppedModel()
    num_backlogs = voice_activity.BATCH_FRAMES
    async with running(model) as actor, trio.open_nursery() as nursery:
        done: list[int] = []

        async def push(mark: int, num_frames: int) -> None:
            scores = await actor.open_vad_stream().score(marked(mark, num_frames))
            assert scores == [(FRAME_SAMPLES * index, mark) for index in range(1, num_frames + 1)]
            done.append(mark)

        for mark in range(1, num_backlogs + 1):
            nursery.start_soon(push, mark, 64)
        await wait_all_tasks_blocked()
        nursery.start_soon(push, 100, 3)
        await wait_all_tasks_blocked()
        # One batch may run already, with fewer; the next one holds the paced session.
        model.let(2 * voice_activity.BATCH_FRAMES + voice_activity.MIN_FRAMES)
        await until(lambda: done == [100])
        assert sum(100 in row for row in model.rows) == 3
        model.let()
        await until(lambda: len(done) == num_backlogs + 1)
        assert max(map(len, model.rows)) <= num_backlogs + 1


async def test_callers_push_in_turn() -> None:
    """However many sessions of one of them do."""
    model = SteppedModel()
    async with running(model) as actor, trio.open_nursery() as nursery:
        done: list[str] = []

        async def push(name: str, mark: int) -> None:
            await actor.open_vad_stream(name).score(marked(mark, 2), is_pushed=True)
            done.append(name)

        for mark in range(1, 9):
            nursery.start_soon(push, "ada", mark)
        await wait_all_tasks_blocked()
        nursery.start_soon(push, "bob", 9)
        await wait_all_tasks_blocked()
        model.let()
    assert done == ["ada", "ada", "bob", *["ada"] * 6]


async def test_pushed_audio_is_heard_one_session_at_a_time_and_beside_what_is_spoken() -> None:
    model = SteppedModel()
    async with running(model) as actor, trio.open_nursery() as nursery:
        done: list[int] = []

        async def push(mark: int) -> None:
            await actor.open_vad_stream().score(marked(mark, 2), is_pushed=True)
            done.append(mark)

        async def speak(mark: int) -> None:
            await actor.open_vad_stream().score(marked(mark, 1))
            done.append(mark)

        for mark in range(1, 6):
            nursery.start_soon(push, mark)
        await wait_all_tasks_blocked()  # one is being heard
        for mark in range(11, 15):
            nursery.start_soon(speak, mark)
        await wait_all_tasks_blocked()
        model.let(3)
        await until(lambda: len(model.rows) == 3)
        assert sorted(model.rows[2]) == [11, 12, 13, 14]
        model.let()
        await until(lambda: len(done) == 9)
        assert all(sum(mark < 10 for mark in row) <= 1 for row in model.rows)


async def test_a_lone_backlog_gets_long_batches_and_a_bound_of_streams_holds() -> None:
    model = SteppedModel()
    model.let()
    async with running(model) as actor:
        async with trio.open_nursery() as nursery:
            for mark in range(voice_activity.MAX_STREAMS * 2):
                nursery.start_soon(actor.open_vad_stream().score, marked(mark, 2))
        assert max(map(len, model.rows)) <= voice_activity.MAX_STREAMS
        assert sum(map(len, model.rows)) == voice_activity.MAX_STREAMS * 4
        scores = await actor.open_vad_stream().score(marked(3, 2 * voice_activity.BATCH_FRAMES))
        assert len(scores) == 2 * voice_activity.BATCH_FRAMES


async def test_what_was_heard_leaves_nothing_to_the_garbage_collector(model: VoiceActivityModel) -> None:
    """A full collection holds the loop, and a cycle for every piece of sound brings it about."""
    async with running(model) as actor:
        vad_stream = actor.open_vad_stream()
        gc.collect()
        gc.disable()
        try:
            for _ in range(4):
                await vad_stream.score(np.zeros(FRAME_SAMPLES, np.float32))
            left = [each for each in gc.get_objects() if isinstance(each, voice_activity._Frames)]
        finally:
            gc.enable()
    assert len(left) <= 1, "but the last, which the actor has in hand until the next"


async def test_audio_without_a_whole_frame_asks_nobody() -> None:
    async with running(SteppedModel()) as actor:
        vad_stream = actor.open_vad_stream()
        with trio.fail_after(1):
            assert await vad_stream.score(np.zeros(FRAME_SAMPLES - 1, np.float32)) == []


async def test_what_a_closed_session_had_waiting_is_dropped() -> None:
    model = SteppedModel()
    async with running(model) as actor, trio.open_nursery() as nursery:
        gone = trio.CancelScope()

        async def leave() -> None:
            with gone:
                await actor.open_vad_stream().score(marked(7, 200))

        nursery.start_soon(leave)
        await wait_all_tasks_blocked()
        model.let(3)
        await until(lambda: len(model.rows) == 3)
        nursery.start_soon(partial(actor.open_vad_stream().score, marked(8, 2)))
        await wait_all_tasks_blocked()
        gone.cancel()
        await wait_all_tasks_blocked()
        model.let(voice_activity.BATCH_FRAMES - 3)
        model.let(2)
        await until(lambda: sum(8.0 in row for row in model.rows) == 2)
        assert sum(7.0 in row for row in model.rows) == voice_activity.BATCH_FRAMES


async def test_a_defect_is_told_to_those_it_met_and_the_next_are_heard() -> None:
    model = SteppedModel()
    model.is_broken = True
    model.let()
    async with running(model) as actor:
        with pytest.raises(InternalError):
            await actor.open_vad_stream().score(marked(1, 1))
        model.is_broken = False
        assert await actor.open_vad_stream().score(marked(2, 1)) == [(FRAME_SAMPLES, 2.0)]


async def test_sessions_wait_where_the_system_has_no_thread(
    monkeypatch: pytest.MonkeyPatch, model: VoiceActivityModel, autojump_clock: MockClock
) -> None:
    refused = refusing_threads(monkeypatch, until_s=60)
    async with running(model) as actor:
        assert len(await actor.open_vad_stream().score(np.zeros(FRAME_SAMPLES, np.float32))) == 1
    assert len(refused) > 100


async def test_who_waits_is_told_when_the_actor_stops() -> None:
    model = SteppedModel()
    actor = VoiceActivityActor(model)
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await actor.run()

        async def wait() -> None:
            with pytest.raises(UnavailableError):
                await actor.open_vad_stream().score(marked(2, 1))

        nursery.start_soon(run)
        nursery.start_soon(actor.open_vad_stream().score, marked(1, 1))
        await wait_all_tasks_blocked()
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        scope.cancel()
        model.let()


class WatchedVadStream:
    """Knows whether it is waiting."""

    def __init__(self, vad_stream: VadStream) -> None:
        self._vad_stream = vad_stream
        self.is_busy = False

    async def score(self, samples: FloatArray, *, is_pushed: bool = False) -> Scores:
        self.is_busy = True
        try:
            return await self._vad_stream.score(samples, is_pushed=is_pushed)
        finally:
            self.is_busy = False

    def reset(self) -> None:
        self._vad_stream.reset()


class CrowdedVadStream:
    """With others that hear the half of what it hears."""

    def __init__(self, vad_stream: VadStream, others: Sequence[VadStream]) -> None:
        self._vad_stream, self._others = vad_stream, others
        self.reset = vad_stream.reset

    async def score(self, samples: FloatArray, *, is_pushed: bool = False) -> Scores:
        async with trio.open_nursery() as nursery:
            for other in self._others:
                nursery.start_soon(other.score, samples[::-2])
            return await self._vad_stream.score(samples, is_pushed=is_pushed)


def deeds(speech: Samples) -> Iterator[Event | bytes]:
    """A client that uses all there is, at 24 and at 8 kHz, in pieces of every size."""
    rng = np.random.default_rng(0)
    for rate, kind in ((24_000, "audio/pcm"), (8_000, "audio/pcmu")):
        form: Event = {"type": kind, "rate": rate} if kind == "audio/pcm" else {"type": kind}
        audio: Event = {"format": form, "turn_detection": {"type": "server_vad", "silence_duration_ms": 300}}
        yield {"type": "session.update", "session": {"type": "transcription", "audio": {"input": audio}}}
        for deed in ("commit", "clear", "flush", "commit"):
            spoken = np.concatenate((speech, speech[: rng.integers(20_000, 60_000)]))
            wave = soxr.resample(spoken, 16_000, rate)
            pcm = (np.clip(wave, -1, 1) * 32_767).astype("<i2")
            data = pcm.tobytes() if kind == "audio/pcm" else (pcm >> 8).astype(np.int8).tobytes()
            start = 0
            while start < len(data):
                size = 2 * int(rng.integers(1, rate))
                yield data[start : start + size]
                start += size
            yield {"type": f"input_audio_buffer.{deed}"}


async def events_of(open_vad_stream: OpenVadStream, script: Iterator[Event | bytes]) -> list[str]:
    """What a client reads that waits behind each deed until nothing happens any more."""
    streams: list[WatchedVadStream] = []

    def open_watched(caller: str) -> VadStream:
        streams.append(WatchedVadStream(open_vad_stream(caller)))
        return streams[-1]

    sessions = Sessions(work_s=0.0, open_vad_stream=open_watched)
    async with trio.open_nursery() as nursery:
        await nursery.start(sessions.registry.run)
        socket: FakeSocket = await sessions.connect(nursery)
        for deed in script:
            socket.client_sends(deed)
            await wait_all_tasks_blocked()
            while streams[0].is_busy:
                await trio.sleep(0.001)
                await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    names: dict[str, str] = {}
    texts = []
    for event in socket.received[1:]:
        event.pop("event_id")
        if event["type"] == "session.updated":
            event.pop("session")
        text = json.dumps(event)
        for word in text.split('"'):
            if word.startswith("item_"):
                text = text.replace(word, names.setdefault(word, f"item {len(names)}"))
        texts.append(text)
    return texts


async def test_a_session_hears_the_same_however_frames_are_batched(
    model: VoiceActivityModel, speech: Samples
) -> None:
    """Beside others, and with everything in the order in which the client did it."""
    alone = await events_of(lambda _: network_vad(model), deeds(speech))
    assert sum("completed" in event for event in alone) >= 8
    async with running(model) as actor:
        others = [actor.open_vad_stream() for _ in range(3)]
        batched = await events_of(
            lambda caller: CrowdedVadStream(actor.open_vad_stream(caller), others), deeds(speech)
        )
    assert batched == alone
