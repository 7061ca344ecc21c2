"""What providers of telephone calls send to `/v1/calls`, each in its documented shape, sound included.

Facts from the providers' public documents. `peers/telephone_frames.py` plays them to a server,
`tests/protocols/test_phone_streams.py` to the machine of a call.
"""

from __future__ import annotations

import base64
import json
import wave
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import telephone_call

Frame = str | bytes
SPEECH: Final = Path(telephone_call.__file__).parent / "data" / "kitchen_lights.wav"
SILENCE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Stream:
    """One provider's. `media` gives the frame of a piece of sound by its number; `call` is its name of it."""

    opening: tuple[object, ...]
    media: Callable[[int, bytes], object]
    closing: tuple[object, ...] = ()
    sound: Literal["pcmu", "pcm8", "pcm16"] = "pcmu"
    call: str = "c-1"
    subprotocol: str | None = None

    def frames(self) -> Iterator[Frame]:
        """A sentence and a silence, 20 ms a frame, without the closing frames."""
        yield from map(_frame, self.opening)
        audio = sound(self.sound)
        size = {"pcmu": 160, "pcm8": 320, "pcm16": 640}[self.sound]
        for number, at in enumerate(range(0, len(audio), size), 1):
            yield _frame(self.media(number, audio[at : at + size]))


def sound(kind: str) -> bytes:
    """The sentence with silence behind it, as a provider carries it."""
    if kind == "pcmu":
        return telephone_call.recording(SPEECH)
    with wave.open(str(SPEECH), "rb") as file:
        samples = array("h", file.readframes(file.getnframes()))
    step = 2 if kind == "pcm8" else 1
    return samples[::step].tobytes() + bytes(2 * round(16_000 / step * SILENCE_S))


def _frame(value: object) -> Frame:
    return value if isinstance(value, str | bytes) else json.dumps(value)


def _text(audio: bytes) -> str:
    return base64.b64encode(audio).decode()


def _binary(_: int, audio: bytes) -> bytes:
    return audio


_MU_LAW: Final = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
_TWILIO: Final = Stream(
    (
        {"event": "connected", "protocol": "Call", "version": "1.0.0"},
        {
            "event": "start",
            "sequenceNumber": "1",
            "streamSid": "MZ1",
            "start": {
                "accountSid": "AC1",
                "streamSid": "MZ1",
                "callSid": "c-1",
                "tracks": ["inbound"],
                "mediaFormat": _MU_LAW,
                "customParameters": {},
            },
        },
    ),
    lambda number, audio: {
        "event": "media",
        "sequenceNumber": str(number + 1),
        "streamSid": "MZ1",
        "media": {
            "track": "inbound",
            "chunk": str(number),
            "timestamp": str(20 * number),
            "payload": _text(audio),
        },
    },
    ({"event": "stop", "streamSid": "MZ1", "stop": {"accountSid": "AC1", "callSid": "c-1"}},),
)
STREAMS: Final[dict[str, Stream]] = {
    "Twilio": _TWILIO,
    "SignalWire": _TWILIO,
    "Telnyx": Stream(
        (
            {"event": "connected", "version": "1.0.0"},
            {
                "event": "start",
                "sequence_number": "1",
                "stream_id": "s-1",
                "start": {
                    "user_id": "u-1",
                    "call_control_id": "c-1",
                    "client_state": "aGk=",
                    "media_format": {"encoding": "PCMU", "sample_rate": 8000, "channels": 1},
                },
            },
        ),
        lambda number, audio: {
            "event": "media",
            "sequence_number": str(number + 1),
            "stream_id": "s-1",
            "media": {"track": "inbound", "chunk": str(number), "payload": _text(audio)},
        },
        ({"event": "stop", "stream_id": "s-1", "stop": {"user_id": "u-1", "call_control_id": "c-1"}},),
    ),
    "Plivo": Stream(
        (
            {
                "sequenceNumber": 0,
                "event": "start",
                "start": {
                    "callId": "c-1",
                    "streamId": "s-1",
                    "accountId": "1",
                    "tracks": ["inbound"],
                    "mediaFormat": {"encoding": "audio/x-l16", "sampleRate": 8000},
                },
                "extra_headers": "{}",
            },
        ),
        lambda number, audio: {
            "sequenceNumber": number,
            "streamId": "s-1",
            "event": "media",
            "media": {"track": "inbound", "timestamp": "1", "chunk": number, "payload": _text(audio)},
            "extra_headers": "",
        },
        ({"sequenceNumber": 9999, "streamId": "s-1", "event": "stop", "extra_headers": ""},),
        sound="pcm8",
    ),
    "Exotel": Stream(
        (
            {"event": "connected"},
            {
                "event": "start",
                "sequence_number": "1",
                "stream_sid": "s-1",
                "start": {
                    "stream_sid": "s-1",
                    "call_sid": "c-1",
                    "account_sid": "1",
                    "from": "0",
                    "to": "1",
                    "custom_parameters": {},
                    "media_format": {"encoding": "base64", "sample_rate": "8000", "bit_rate": "128kbps"},
                },
            },
        ),
        lambda number, audio: {
            "event": "media",
            "sequence_number": str(number + 1),
            "stream_sid": "s-1",
            "media": {"chunk": str(number), "timestamp": str(20 * number), "payload": _text(audio)},
        },
        ({"event": "stop", "stop": {"call_sid": "c-1", "account_sid": "1", "reason": "callended"}},),
        sound="pcm8",
    ),
    "Voximplant": Stream(
        (
            {
                "event": "start",
                "sequenceNumber": 0,
                "start": {
                    "tag": "c-1",
                    "mediaFormat": {"encoding": "PCM16", "sampleRate": 16000},
                    "customParameters": {},
                },
            },
        ),
        lambda number, audio: {
            "event": "media",
            "sequenceNumber": number,
            "media": {"tag": "c-1", "chunk": number, "timestamp": 20 * number, "payload": _text(audio)},
        },
        ({"event": "stop", "sequenceNumber": 9999, "stop": {"tag": "c-1"}},),
        sound="pcm16",
        call="",
    ),
    "Vonage": Stream(
        ({"event": "websocket:connected", "content-type": "audio/l16;rate=16000", "uuid": "c-1"},),
        _binary,
        sound="pcm16",
        call="",
    ),
    "Bandwidth": Stream(
        (
            {
                "eventType": "start",
                "metadata": {
                    "accountId": "1",
                    "callId": "c-1",
                    "streamId": "s-1",
                    "streamName": "live",
                    "tracks": [{"name": "inbound", "mediaFormat": {"encoding": "PCMU", "sampleRate": 8000}}],
                },
                "streamParams": {},
            },
        ),
        lambda _, audio: {"eventType": "media", "track": "inbound", "payload": _text(audio)},
        ({"eventType": "stop", "metadata": {"accountId": "1", "callId": "c-1", "streamId": "s-1"}},),
    ),
    "jambonz": Stream(
        (
            {
                "callSid": "c-1",
                "direction": "inbound",
                "from": "0",
                "to": "1",
                "callId": "sip-1",
                "sampleRate": 16000,
                "mixType": "mono",
                "callStatus": "in-progress",
            },
        ),
        _binary,
        sound="pcm16",
        subprotocol="audio.jambonz.org",
    ),
    "Asterisk": Stream(
        (
            {
                "event": "MEDIA_START",
                "connection_id": "m-1",
                "channel": "WebSocket/m-1/0x1",
                "channel_id": "c-1",
                "format": "ulaw",
                "optimal_frame_size": 160,
                "ptime": 20,
            },
        ),
        _binary,
        subprotocol="media",
    ),
    "Asterisk, plain text": Stream(
        (
            (
                "MEDIA_START connection_id:m-1 channel:WebSocket/m-1/0x1 channel_id:c-1 format:slin16 "
                "optimal_frame_size:640 ptime:20"
            ),
        ),
        _binary,
        sound="pcm16",
        subprotocol="media",
    ),
}
OTHERS: Final[dict[str, object]] = {
    "Genesys AudioHook": {"version": "2", "type": "open", "seq": 1, "parameters": {"media": []}},
    "AudioCodes": {"type": "session.initiate", "conversationId": "a"},
    "Azure Communication Services": {"kind": "AudioMetadata", "audioMetadata": {"encoding": "PCM"}},
    "Zoom": {"msg_type": 1, "protocol_version": 1, "meeting_uuid": "a"},
}
"""First frames of streams that are not read."""
