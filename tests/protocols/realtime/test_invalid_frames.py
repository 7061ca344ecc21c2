"""What OpenAI's beta called otherwise is refused with its name of today."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sensorium.protocols.realtime.codec import decode_client_event
from sensorium.protocols.realtime.events import InvalidEvent

OF_THE_BETA: list[tuple[str, Any]] = [
    ("input_audio_format", "pcm16"),
    ("input_audio_transcription", {"model": "whisper-1"}),
    ("input_audio_noise_reduction", {"type": "near_field"}),
    ("turn_detection", {"type": "server_vad"}),
]


@pytest.mark.parametrize("answers", [False, True])
@pytest.mark.parametrize(("name", "value"), OF_THE_BETA)
def test_a_field_that_lay_flat_is_told_where_it_is_now(name: str, value: object, *, answers: bool) -> None:
    frame = {"type": "session.update", "session": {name: value}}
    event = decode_client_event(json.dumps(frame), answers=answers)
    assert isinstance(event, InvalidEvent)
    assert (event.code, event.param) == ("unknown_parameter", f"session.{name}")
    assert f"`session.audio.input.{name.removeprefix('input_audio_')}` now" in event.message


@pytest.mark.parametrize("answers", [False, True])
@pytest.mark.parametrize(
    ("name", "value", "now"),
    [("modalities", ["text"], "output_modalities"), ("max_response_output_tokens", 9, "max_output_tokens")],
)
def test_a_field_of_answers_is_told_its_name_of_today(
    name: str, value: object, now: str, *, answers: bool
) -> None:
    frame = {"type": "session.update", "session": {name: value}}
    event = decode_client_event(json.dumps(frame), answers=answers)
    assert isinstance(event, InvalidEvent)
    assert event.message.endswith(f"not a known field; it is `session.{now}` now, in sessions that answer")
