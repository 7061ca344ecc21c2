"""Writes the seeds, small inputs of every target: `python -m fuzz.make_seeds` in the folder of the tests."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Final

from PIL import Image
from sensorium.protocols.chat.frame_list import pack_frames
from support.audio_files import encoded
from support.sound_streams import FRAGMENTED, ogg, voice, webm
from support.vision_files import picture, saved

SEEDS: Final = Path(__file__).parent / "seeds"
_HEADS: Final = (
    b"GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer k\r\n\r\n",
    (
        b"POST /v1/chat/completions?x=%20 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
        b"GET / HTTP/1.1\r\nHost: b\r\n\r\n"
    ),
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: 1\r\n\r\n",
    (
        b"GET http://h:1/v1/realtime?m HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: realtime, x\r\n\r\n"
    ),
)
_CALL: Final = "\n".join(
    json.dumps(frame)
    for frame in (
        {"event": "connected", "protocol": "Call"},
        {
            "event": "start",
            "start": {
                "callSid": "CA1",
                "tracks": ["inbound", "outbound"],
                "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
                "customParameters": {"a": "b"},
            },
        },
        {"event": "media", "media": {"track": "inbound", "chunk": "2", "payload": "AAECAw=="}},
        {"event": "dtmf", "dtmf": {"track": "inbound_track", "digit": "5"}},
        {"event": "mark", "mark": {"name": "m"}},
        {"event": "stop"},
    )
)
_EVENTS: Final = (
    {
        "type": "session.update",
        "session": {
            "type": "transcription",
            "audio": {
                "input": {
                    "format": {"type": "audio/pcm", "rate": 16000, "channels": 2},
                    "multichannel": True,
                    "turn_detection": {"type": "server_vad", "threshold": 0.5},
                    "transcription": {"model": "m", "language": "de", "delay": "low"},
                }
            },
        },
    },
    {"type": "input_audio_buffer.append", "audio": "AAAA", "event_id": "e"},
    {"type": "response.create", "response": {"instructions": "x", "max_output_tokens": 5}},
    {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": []}},
    {"type": "session.update", "model": "m"},
    {"type": "transcription.delta", "delta": "x"},
    {"type": "input_audio_buffer.committed", "event_id": "e", "server_event_seq": 3, "item_id": "i"},
)


def _frame(opcode: int, payload: bytes, *, is_final: bool = True) -> bytes:
    """A client's WebSocket frame (RFC 6455), masked with zeros."""
    length = len(payload)
    size = bytes([0x80 | length]) if length < 126 else b"\xfe" + struct.pack(">H", length)
    return bytes([0x80 * is_final | opcode]) + size + bytes(4) + payload


def seeds() -> dict[str, list[bytes]]:
    """By target."""
    sound, low = voice(0.1), voice(0.15, rate=16_000)
    made = {
        "webm": [
            webm(sound),
            encoded(low, container="matroska", codec="pcm_s16le", options={}, layout="stereo"),
        ],
        "ogg": [ogg(sound), ogg(voice(0.1)) + ogg(voice(0.1, hz=500.0), serial=2)],
        "mp4": [encoded(low, container="mp4", codec="aac", format_options=FRAGMENTED)],
        "mp3": [encoded(low, container="mp3", codec="libmp3lame")],
        "flac": [encoded(low[:2_000], container="flac", codec="flac")],
        "aac": [encoded(low, container="adts", codec="aac")],
    }
    made["auto"] = [each[0] for each in made.values()]
    small = Image.fromarray(picture(12, 16))
    pictures = [
        saved(small, kind) for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "QOI", "PPM", "TGA")
    ]
    jpeg = base64.b64encode(pictures[1]).decode()
    urls = (
        f"data:image/jpeg;base64,{jpeg}",
        f"data:video/jpeg;fps=2.5;base64,{jpeg[:64]},{jpeg[:32]}",
        "https://example.com/a.png?b=c",
        "data:video/mp4;codecs=avc1;base64,AAAA",
        "file:///tmp/a.wav",
    )
    frames = [
        _frame(1, b"text") + _frame(9, b"ping") + _frame(2, bytes(200)),
        _frame(1, b"te", is_final=False) + _frame(0, "\u00e4".encode()) + _frame(8, b"\x03\xe8bye"),
    ]
    kinds = ("audio/webm;codecs=opus", 'audio/mp4; codecs="mp4a.40.2"', "auto", "10.0.0.1", "64:ff9b::a00:1")
    return made | {
        "http_heads": list(_HEADS),
        "websocket_frames": frames,
        "data_urls": [url.encode() for url in urls],
        "frame_lists": [pack_frames([b"abc", b""], 2.5), pack_frames([bytes(300)])],
        "picture_headers": pictures,
        "call_frames": [_CALL.encode(), b'{"content-type": "audio/l16;rate=16000"}\n\0\1\2\3'],
        "events": [json.dumps(event).encode() for event in _EVENTS],
        "names": [kind.encode() for kind in kinds],
    }


def main() -> None:
    """Write them all."""
    for target, each in seeds().items():
        folder = SEEDS / target
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(each):
            (folder / f"{number}").write_bytes(data)


if __name__ == "__main__":
    main()
