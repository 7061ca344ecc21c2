"""LiveKit's OpenAI speech-to-text plugin on this server: `python livekit_stt.py recording.wav [URL [MODEL]]`.

    pip install livekit-plugins-openai
    sensorium serve tiny-whisper

The plugin adds `/realtime?intent=transcription&model=…` to the base URL, sends 24 kHz audio, and leaves the
turns to the server.
"""

from __future__ import annotations

import asyncio
import sys
import wave

from livekit import rtc
from livekit.agents import stt
from livekit.agents.utils import http_context
from livekit.plugins import openai

FRAME_S = 0.02
SILENCE_S = 1.0
"""Behind the recording, so that the server hears its last turn end."""
QUIET_S = 3.0
"""Nothing came for so long: that was all."""


async def main(path: str, url: str = "http://127.0.0.1:8000/v1", model: str = "tiny-whisper") -> list[str]:
    """Print interim and final transcripts; return the final ones."""
    finals: list[str] = []
    received = asyncio.Event()
    async with http_context.open():
        plugin = openai.STT(
            model=model, base_url=url, api_key="none", use_realtime=True, detect_language=True
        )
        stream = plugin.stream()
        printing = asyncio.create_task(show(stream, finals, received))
        await push(stream, path)
        while received.is_set():
            received.clear()
            await asyncio.sleep(QUIET_S)
        printing.cancel()
        await stream.aclose()
        await plugin.aclose()
    return finals


async def show(stream: stt.RecognizeStream, finals: list[str], received: asyncio.Event) -> None:
    """Print events as they come, and collect final texts."""
    async for event in stream:
        received.set()
        match event.type:
            case stt.SpeechEventType.START_OF_SPEECH:
                print("(speech starts)")
            case stt.SpeechEventType.END_OF_SPEECH:
                print("(speech ends)")
            case stt.SpeechEventType.INTERIM_TRANSCRIPT:
                print("…", event.alternatives[0].text)
            case stt.SpeechEventType.FINAL_TRANSCRIPT:
                final = event.alternatives[0]
                print(f"→ [{final.language}] {final.text}")
                finals.append(final.text)
            case _:
                pass


async def push(stream: stt.RecognizeStream, path: str) -> None:
    """Send a mono PCM16 file at the pace it was spoken."""
    with wave.open(path) as file:
        rate, samples = file.getframerate(), file.readframes(file.getnframes())
    size = 2 * round(rate * FRAME_S)
    samples += bytes(2 * round(rate * SILENCE_S))
    for start in range(0, len(samples) - size + 1, size):
        stream.push_frame(rtc.AudioFrame(samples[start : start + size], rate, 1, size // 2))
        await asyncio.sleep(FRAME_S)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
