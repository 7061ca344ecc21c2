"""Text of sessions that comes otherwise than decoders expect it: base64 in lines, events in binary frames."""

from __future__ import annotations

import base64
import json

import pytest
from sensorium.protocols.calls.frames import decode_call_frame
from sensorium.protocols.realtime.codec import ClientDecoder, decode_client_event
from sensorium.protocols.realtime.events import InputAudioBufferAppend
from sensorium.protocols.realtime.video import InputImageBufferAppend
from sensorium.protocols.shared.lenient_json import is_event


@pytest.mark.parametrize("text", ["AAAA\n", "AA AA", "AA\r\nA=", "AA\tAA\n"])
@pytest.mark.parametrize("answers", [False, True])
def test_base64_may_have_line_breaks(text: str, answers: bool) -> None:
    """As MIME's encoders write it, escaped as JSON's encoders like."""
    whole = base64.b64decode("".join(text.split()))
    frame = json.dumps({"type": "input_audio_buffer.append", "audio": text, "event_id": "e 7"})
    for written in (frame, frame.encode(), frame.replace("\\n", "\\u000a")):
        event = decode_client_event(written, answers=answers)
        assert isinstance(event, InputAudioBufferAppend)
        assert (event.audio, event.event_id) == (whole, "e 7")


def test_base64_of_other_frames_may_have_line_breaks() -> None:
    image = decode_client_event('{"type": "input_image_buffer.append", "image": "AA\\nAA"}', answers=True)
    assert isinstance(image, InputImageBufferAppend)
    assert image.image == b"\0\0\0"
    flat = ClientDecoder()
    flat.decode('{"type": "session.update", "model": ""}')
    append = flat.decode('{"type": "input_audio_buffer.append", "audio": "AA\\r\\nAA"}')
    assert isinstance(append, InputAudioBufferAppend)
    media = decode_call_frame('{"event": "media", "media": {"payload": "AA AA", "track": "in bound"}}').media
    assert media is not None
    assert (media.payload, media.track) == (b"\0\0\0", "in bound")


@pytest.mark.parametrize(
    ("frame", "is_text"),
    [
        (b'{"type":"input_audio_buffer.commit"}', True),
        (b' \r\n{ "event" : "start"} ', True),
        (b'\xef\xbb\xbf{"type": "session.update"}', True),
        (b'[{"type": "session.update"}]', True),
        (b'{"type": "cut off', True),
        (b'{"anything": [1, 2]}', True),
        (b'{"' + bytes(range(256)), False),
        (b"{" * 960, False),
        (b"\x7b\x00\x22\x00" * 100, False),
        (bytes(3200), False),
        (b"", False),
    ],
)
def test_events_in_binary_frames_are_told_from_sound(frame: bytes, is_text: bool) -> None:
    assert is_event(frame) == is_text
