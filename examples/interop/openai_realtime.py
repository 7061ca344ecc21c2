"""OpenAI's Python SDK on this server: `python openai_realtime.py recording.wav [URL [MODEL [KEY]]]`.

    pip install 'openai[realtime]'
    sensorium serve tiny-whisper

With a key, asks for an ephemeral one first, as a web server would for a browser, and connects with that: its
session begins as configured. The turns are found by the server.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import wave
from typing import TYPE_CHECKING

from openai import AsyncOpenAI

if TYPE_CHECKING:
    from openai.types.realtime import RealtimeTranscriptionSessionCreateRequestParam

CHUNK_S = 0.1
SILENCE_S = 1.0
"""Behind the recording, so that the server hears its last turn end."""


async def main(
    path: str, url: str = "http://127.0.0.1:8000/v1", model: str = "tiny-whisper", key: str = "none"
) -> list[str]:
    """Print deltas and transcripts; return the transcripts."""
    with wave.open(path) as file:
        rate, samples = file.getframerate(), file.readframes(file.getnframes())
    if rate not in (8_000, 16_000, 24_000, 48_000):
        raise ValueError(f"{path} has {rate} samples per second")
    session: RealtimeTranscriptionSessionCreateRequestParam = {
        "type": "transcription",
        "audio": {
            "input": {
                # The SDK's type knows 24 kHz only; the server takes the others by name.
                "format": {"type": "audio/pcm", "rate": rate},
                "transcription": {"model": model},
                "turn_detection": {"type": "server_vad"},
            }
        },
    }
    async with AsyncOpenAI(base_url=url, api_key=key) as client:
        secret = await client.realtime.client_secrets.create(session=session)
    async with (
        AsyncOpenAI(base_url=url, api_key=secret.value) as client,
        client.realtime.connect(extra_query={"intent": "transcription"}) as connection,
    ):
        size = 2 * round(rate * CHUNK_S)
        samples += bytes(2 * round(rate * SILENCE_S))
        for start in range(0, len(samples), size):
            chunk = base64.b64encode(samples[start : start + size]).decode()
            await connection.input_audio_buffer.append(audio=chunk)
        await connection.input_audio_buffer.commit()  # the last item: empty, as nobody speaks any more
        finals: list[str] = []
        async for event in connection:
            match event.type:
                case "conversation.item.input_audio_transcription.delta":
                    print(event.delta or "", end="", flush=True)
                case "conversation.item.input_audio_transcription.completed":
                    print(f"\n→ {event.transcript}")
                    finals.append(event.transcript)
                    if not event.transcript:
                        break
                case "error":
                    raise RuntimeError(event.error.message)
        return finals[:-1]


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
