"""Plays a recording as a telephone provider streams it: mu-law, 20 ms at a time, base64 in JSON.

    sensorium serve tiny-whisper
    python examples/telephone_call.py

Prints what the server tells of the call, and how long after the beginning of speech its first text came. With
`--frames FILE` it plays the frames of a bridge's own recording instead, one JSON frame a line.
"""

from __future__ import annotations

import argparse
import base64
import json
import sys
import threading
import time
import wave
from array import array
from collections.abc import Iterator
from pathlib import Path

from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.sync.client import ClientConnection, connect

FRAME_MS = 20
DEFAULT = Path(__file__).parent / "data" / "conversation.wav"


def mu_law(sample: int) -> int:
    """The code of a 16-bit sample (ITU-T G.711)."""
    sign, magnitude = (0x80, -sample) if sample < 0 else (0, sample)
    magnitude = min(magnitude, 32_635) + 132
    exponent = magnitude.bit_length() - 8
    return ~(sign | exponent << 4 | magnitude >> exponent + 3 & 15) & 0xFF


def recording(path: Path) -> bytes:
    """A WAV file of 16 kHz as a telephone carries it; every second sample is left out."""
    with wave.open(str(path), "rb") as file:
        if (file.getframerate(), file.getsampwidth(), file.getnchannels()) != (16_000, 2, 1):
            raise SystemExit(f"{path} is not 16-bit mono WAV at 16000 samples per second")
        samples = array("h", file.readframes(file.getnframes()))
    halves = ((first + second) // 2 for first, second in zip(samples[::2], samples[1::2], strict=False))
    return bytes(map(mu_law, halves)) + b"\xff" * 8_000


def frames(audio: bytes) -> Iterator[str]:
    """The call as a provider would send it."""
    step = 8 * FRAME_MS
    media_format = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
    start = {"callSid": "CA-example", "tracks": ["inbound"], "mediaFormat": media_format}
    yield json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"})
    yield json.dumps({"event": "start", "sequenceNumber": "1", "start": start, "streamSid": "MZ-example"})
    for chunk, at in enumerate(range(0, len(audio), step), 1):
        payload = base64.b64encode(audio[at : at + step]).decode()
        media = {"track": "inbound", "chunk": str(chunk), "timestamp": str(at // 8), "payload": payload}
        yield json.dumps({"event": "media", "sequenceNumber": str(chunk + 1), "media": media})
    yield json.dumps({"event": "stop", "stop": {"callSid": "CA-example"}})


def play(socket: ClientConnection, call: list[str], began: list[float]) -> None:
    """Send the frames as they would come; the audio begins at `began`."""
    began.append(time.monotonic())
    num_media = 0
    for frame in call:
        if '"media"' in frame and '"payload"' in frame:
            time.sleep(max(0.0, began[0] + num_media * FRAME_MS / 1000 - time.monotonic()))
            num_media += 1
        try:
            socket.send(frame)
        except ConnectionClosed:
            return  # the server ended the call, and has said why


def main() -> None:
    """Play one call and show it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("recording", nargs="?", type=Path, default=DEFAULT, help="16 kHz mono WAV")
    parser.add_argument("--frames", type=Path, help="a bridge's frames, one JSON a line, instead")
    parser.add_argument("--url", default="ws://127.0.0.1:8000/v1/calls", help="ws://HOST:PORT/v1/calls")
    parser.add_argument("--key", help="API key of the server")
    arguments = parser.parse_args()
    if not arguments.url.startswith(("ws://", "wss://")):
        parser.error(f"--url is {arguments.url}: expected ws://HOST:PORT/v1/calls, or wss://")
    if arguments.frames is not None:
        call = arguments.frames.read_text("utf-8").splitlines()
    else:
        call = list(frames(recording(arguments.recording)))
    headers = {"Authorization": f"Bearer {arguments.key}"} if arguments.key else {}
    began: list[float] = []
    starts: dict[str, float] = {}
    waits: list[float] = []
    with connect(arguments.url, additional_headers=headers) as socket:
        player = threading.Thread(target=play, args=(socket, call, began), daemon=True)
        player.start()
        try:
            while True:
                event = json.loads(socket.recv())
                now = time.monotonic()
                if event["event"] == "speech.started":
                    starts[event["item"]] = began[0] + event["at_ms"] / 1000
                elif event["event"] == "transcript.delta" and event["item"] in starts:
                    waits.append(now - starts.pop(event["item"]))
                elif event["event"] == "transcript.completed":
                    print(f"{event.get('at_ms', 0) / 1000:7.2f} s  {event['track']}: {event.get('text', '')}")
                elif event["event"] in ("error", "transcript.failed"):
                    print(f"           error: {event['message']}")
                elif event["event"] == "call.summary":
                    print(f"{event['duration_s']:7.2f} s  the call is over ({event['reason']})")
        except ConnectionClosed:
            player.join()
    if waits:
        longest, typical = max(waits), sorted(waits)[len(waits) // 2]
        print(f"first text {typical:.2f} s after the beginning of speech (p50), {longest:.2f} s (max)")


if __name__ == "__main__":
    try:
        main()
    except (OSError, InvalidHandshake) as error:
        sys.exit(f"no call: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
