"""A client of vLLM's realtime dialect: `python vllm_realtime.py recording.wav [URL [MODEL]]`.

    pip install websockets
    sensorium serve tiny-whisper

Sends what vLLM's own example sends, as fast as the socket takes it: the model, a commit that starts, 4 KB of
16 kHz PCM16 at a time, a final commit. Then reads deltas until `transcription.done`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import wave
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

CHUNK_BYTES = 4096


async def main(path: str, url: str = "ws://127.0.0.1:8000/v1/realtime", model: str = "tiny-whisper") -> str:
    """Print the text as it comes; return all of it. Raises RuntimeError with the server's error."""
    with wave.open(path) as file:
        if file.getframerate() != 16_000 or file.getnchannels() != 1 or file.getsampwidth() != 2:
            raise ValueError(f"{path} is not 16 kHz mono PCM16")
        audio = file.readframes(file.getnframes())
    async with connect(url) as socket:
        created = await receive(socket)
        print(f"{created['type']} {created['id']}")
        await send(socket, type="session.update", model=model)
        await send(socket, type="input_audio_buffer.commit")
        for start in range(0, len(audio), CHUNK_BYTES):
            chunk = base64.b64encode(audio[start : start + CHUNK_BYTES]).decode()
            await send(socket, type="input_audio_buffer.append", audio=chunk)
        await send(socket, type="input_audio_buffer.commit", final=True)
        while True:
            event = await receive(socket)
            match event["type"]:
                case "transcription.delta":
                    print(event["delta"], end="", flush=True)
                case "transcription.done":
                    print(f"\n{event['usage']}")
                    return str(event["text"])
                case "error":
                    raise RuntimeError(f"{event['code']}: {event['error']}")


async def send(socket: ClientConnection, **event: object) -> None:
    """Send one event."""
    await socket.send(json.dumps(event))


async def receive(socket: ClientConnection) -> dict[str, Any]:
    """The next event."""
    event: dict[str, Any] = json.loads(await socket.recv())
    return event


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
