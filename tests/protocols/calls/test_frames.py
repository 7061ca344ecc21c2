"""Frames of calls: what is bounded of them before anything is built."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from sensorium.protocols.calls.frames import (
    MAX_PARAMETERS,
    MAX_START_CHARS,
    audio_format,
    decode_call_frame,
)
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.shared.audio_format import AudioFormat


def start(**fields: object) -> str:
    return json.dumps({"event": "start", "start": {"callSid": "CA1", **fields}})


def test_parameters_of_a_call_come_whole() -> None:
    given = {f"name {number}": "v" * 500 for number in range(MAX_PARAMETERS)}
    read = decode_call_frame(start(customParameters=given)).start
    assert read is not None
    assert read.customParameters == given


@pytest.mark.parametrize("name", ["customParameters", "custom_parameters"])
@pytest.mark.parametrize(
    "given",
    [
        {str(number): "" for number in range(MAX_PARAMETERS + 1)},
        {"long": "v" * 501},
        {"n" * 201: ""},
        {"number": 1},
    ],
)
def test_parameters_beyond_bounds_are_refused(name: str, given: dict[str, object]) -> None:
    with pytest.raises(BadRequestError) as refused:
        decode_call_frame(start(**{name: given}))
    assert refused.value.code == "invalid_frame"
    assert (refused.value.param or "").startswith(f"start.{name}")


def test_a_start_of_millions_of_parameters_is_not_built() -> None:
    frame = start(customParameters={str(number): "" for number in range(500_000)})
    tracemalloc.start()
    try:
        with pytest.raises(BadRequestError, match=str(MAX_START_CHARS)) as refused:
            decode_call_frame(frame)
        assert tracemalloc.get_traced_memory()[1] < 3 * len(frame)
    finally:
        tracemalloc.stop()
    assert refused.value.param == "start"


@pytest.mark.parametrize(
    ("media_format", "expected"),
    [
        ({"encoding": "base64", "sample_rate": "8000", "bit_rate": "128kbps"}, AudioFormat("pcm16", 8_000)),
        ({"encoding": "audio/x-mulaw", "sampleRate": "8000", "channels": "1"}, AudioFormat("pcmu", 8_000)),
        ({"encoding": "PCMA", "sampleRate": None, "channels": None}, AudioFormat("pcma", 8_000)),
        ({"encoding": "l16", "sample_rate": 16_000.0}, AudioFormat("pcm16", 16_000)),
        ({"encoding": "l16", "sample_rate": 16_000.5}, None),
        ({"encoding": "l16", "sample_rate": "16k"}, None),
        ({"encoding": "l16", "sample_rate": 16_000, "channels": "2"}, None),
    ],
)
def test_formats_as_providers_write_them(
    media_format: dict[str, object], expected: AudioFormat | None
) -> None:
    def found() -> AudioFormat:
        read = decode_call_frame(start(media_format=media_format)).start
        assert read is not None
        assert read.media_format is not None
        return audio_format(read.media_format, param="start.mediaFormat")

    if expected is None:
        with pytest.raises(BadRequestError) as refused:
            found()
        assert "ormat" in (refused.value.param or "")
    else:
        assert found() == expected


def test_what_there_is_not_may_be_null() -> None:
    frame = start(tracks=None, mediaFormat=None, customParameters=None, client_state=None)
    read = decode_call_frame(frame).start
    assert read is not None
    assert (read.tracks, read.mediaFormat, read.customParameters) == (None, None, None)


def test_large_frames_of_sound_are_as_they_were() -> None:
    frame = {"event": "media", "media": {"payload": "AAAA" * 50_000}}
    media = decode_call_frame(json.dumps(frame)).media
    assert media is not None
    assert media.payload == bytes(150_000)
