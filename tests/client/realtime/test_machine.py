"""What both machines of live sessions have in common: the pace of audio, and how an end is told."""

from __future__ import annotations

from array import array
from typing import cast

import pytest
from sensorium.client.realtime.machine import AudioChunk
from sensorium.client.realtime.transcription_machine import SessionCore, SessionOptions
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close

SAMPLES = array("h", bytes(32_000))


@pytest.mark.parametrize("chunk", [SAMPLES.tobytes(), bytearray(SAMPLES.tobytes()), memoryview(SAMPLES)])
def test_a_second_of_audio_takes_a_second_in_every_shape(chunk: AudioChunk) -> None:
    core = SessionCore(sample_rate=16_000)
    due = core.pacer(start=0.0, speed=1.0)
    assert [due(chunk), due(chunk)] == [1.0, 2.0]
    assert b"".join(frame for frame in core.append(chunk) if isinstance(frame, bytes)) == bytes(32_000)
    assert core.audio_s == 1.0


@pytest.mark.parametrize("audio", [SAMPLES.tobytes(), bytearray(2), memoryview(SAMPLES)])
def test_a_whole_recording_is_no_iterable_of_chunks(audio: AudioChunk) -> None:
    """Iterating it gives numbers."""
    with pytest.raises(TypeError, match=rf"^chunks is {type(audio).__name__}: .*write \[audio\]$"):
        SessionCore.check_chunks(audio)
    SessionCore.check_chunks([audio])


@pytest.mark.parametrize(
    ("options", "chunk"),
    [
        ({}, array("f", [0.5])),
        ({}, array("i", [5])),
        ({"encoding": "pcmu"}, SAMPLES),
        ({"audio_format": "audio/webm"}, SAMPLES),
        ({}, 2),
    ],
)
def test_numbers_that_are_no_samples_are_not_sent_as_noise(options: SessionOptions, chunk: object) -> None:
    core = SessionCore(**options)
    with pytest.raises(TypeError, match="bytes"):
        list(core.append(cast("AudioChunk", chunk)))
    assert not core.audio_s


OURS = Close(1009, "frame too big")
SERVERS = Close(1011, "boom")


@pytest.mark.parametrize(
    ("error", "by_us", "message"),
    [
        (ConnectionClosedError(None, OURS), True, "the client closed the session: code 1009"),
        (ConnectionClosedError(Close(1009, ""), OURS, False), True, "the client .* reason: frame too big"),
        (ConnectionClosedError(SERVERS, None), False, "the server closed the session: code 1011"),
        (ConnectionClosedError(SERVERS, SERVERS, True), False, "the server .* reason: boom"),
        (ConnectionClosedError(None, None), False, "the server closed the session: code 1006"),
    ],
)
def test_an_end_says_who_closed(error: ConnectionClosedError, by_us: bool, message: str) -> None:
    closed = SessionCore().closed(error)
    assert closed.by_us == by_us
    with pytest.raises(type(closed), match=message):
        raise closed
