"""Ends of utterances by real models over real sockets: behind silence, behind music, and in the SDK."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import numpy as np
import pytest
from sensorium import AsyncClient, Client
from sensorium.client import Completed, Event, UtteranceEnded
from support.raw_socket import RawSession, pcm, raw_session, silence
from support.server import Server

pytestmark = pytest.mark.slow

ENDED = "utterance_ended"
WAIT_MS = 1000
VAD = {"type": "server_vad", "silence_duration_ms": 300}


def spoken_ms(audio: bytes) -> tuple[int, int]:
    """Where the sound of a recording without noise begins and ends."""
    samples = np.abs(np.frombuffer(audio, "<i2").astype(np.int32))
    (loud,) = np.nonzero(samples > samples.max() // 50)
    return int(loud[0]) // 16, int(loud[-1]) // 16


def order(session: RawSession) -> list[str]:
    """Where turns and utterances end."""
    names = [event["type"].rpartition(".")[2] for event in session.events]
    return [name for name in names if name in ("completed", "utterance_ended")]


def paced(session: RawSession, audio: bytes) -> None:
    """As it is spoken, in pieces of 20 ms."""
    began = time.monotonic()
    for at in range(0, len(audio), 640):
        time.sleep(max(0.0, began + at / 32_000 - time.monotonic()))
        session.append_binary(audio[at : at + 640])


@pytest.mark.parametrize("granularities", [[], ["word"]])
def test_silence_ends_it_once_behind_the_answer(
    server: Server, lights: bytes, granularities: list[str]
) -> None:
    audio = pcm(lights)
    with raw_session(server.realtime) as session:
        session.configure(turn_detection=VAD, utterance_end_ms=WAIT_MS, timestamp_granularities=granularities)
        session.append(audio + silence(3.0))
        ended = session.until(ENDED)
        session.send({"type": "input_audio_buffer.clear"})
        session.until("cleared")
        assert order(session) == ["completed", "utterance_ended"]
        (completed,) = session.seen("completed")
        assert ended["item_id"] == completed["item_id"]
        assert ended["last_word_end_ms"] == pytest.approx(spoken_ms(audio)[1], abs=150)


def test_a_pause_ends_a_turn_and_not_the_utterance(server: Server, lights: bytes) -> None:
    audio = pcm(lights)
    begin, end = spoken_ms(audio)
    word = audio[begin * 32 : end * 32]
    with raw_session(server.realtime) as session:
        session.configure(turn_detection=VAD, utterance_end_ms=1500)
        session.append(silence(0.5) + word + silence(1.0) + word + silence(2.5))
        ended = session.until(ENDED)
        assert order(session) == ["completed", "completed", "utterance_ended"]
        assert ended["item_id"] == session.seen("completed")[1]["item_id"]
        session.append(silence(1.0) + word + silence(2.5))
        session.until(ENDED)
        assert order(session)[3:] == ["completed", "utterance_ended"]


def test_music_keeps_the_turn_open_and_not_the_utterance(server: Server, lights: bytes) -> None:
    """A client whose threshold is so low that its turns do not end by themselves."""
    speech = np.frombuffer(pcm(lights), "<i2").astype(np.float64)
    _, end_ms = spoken_ms(pcm(lights))
    speech = np.concatenate([speech[: end_ms * 16], np.zeros(4 * 16_000)])
    times = np.arange(len(speech)) / 16_000
    notes = np.array([220, 277, 330, 440, 392, 330])[(4 * times).astype(int) % 6]
    phase = 2 * np.pi * np.cumsum(notes) / 16_000
    music = sum(np.sin(k * phase) / k for k in range(1, 8)) * (0.6 + 0.4 * np.sin(10 * np.pi * times))
    music *= 0.18 * np.std(speech[: end_ms * 16]) / np.std(music)
    audio = (speech + music).astype("<i2").tobytes()
    with raw_session(server.realtime) as session:
        detection = {"type": "server_vad", "threshold": 0.02}
        session.configure(turn_detection=detection, utterance_end_ms=WAIT_MS)
        sender = threading.Thread(target=paced, args=(session, audio))
        sender.start()
        ended = session.until(ENDED, 20)
        assert session.deltas(ended["item_id"]) == "Set the kitchen lights to ninety percent"
        assert not session.seen("speech_stopped")
        # By when the word was first there in a hypothesis: later on a busy machine.
        assert end_ms - 500 < ended["last_word_end_ms"] < end_ms + 1500
        sender.join()
        session.commit()
        completed = session.until("completed", 20)
        assert completed["item_id"] == ended["item_id"]
        assert order(session) == ["utterance_ended", "completed"]


def kinds(events: list[Event]) -> list[Any]:
    return [type(event) for event in events if isinstance(event, Completed | UtteranceEnded)]


def test_the_sdk_waits_for_an_end_that_comes_behind_the_last_answer(server: Server, lights: bytes) -> None:
    """Also where a file is sent at once."""
    options: dict[str, Any] = {"sample_rate": 16_000, "utterance_end_ms": WAIT_MS}
    chunks = [pcm(lights), silence(2.0)]
    with Client(server.url) as client:
        with client.realtime(**options) as session:
            events = list(session.transcribe(chunks))
        assert kinds(events) == [Completed, UtteranceEnded]
        with client.realtime(**options) as session:
            assert kinds(list(session.transcribe([pcm(lights)[: 3 * 32_000]]))) == [Completed]

    async def listen() -> list[Event]:
        async with AsyncClient(server.url) as client, client.realtime(**options) as session:
            return [event async for event in session.transcribe(chunks)]

    events = asyncio.run(listen())
    assert kinds(events) == [Completed, UtteranceEnded]
