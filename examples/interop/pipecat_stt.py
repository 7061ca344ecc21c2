"""Pipecat's `OpenAIRealtimeSTTService` on this server: `python pipecat_stt.py recording.wav [URL [MODEL]]`.

    pip install 'pipecat-ai[openai]'
    sensorium serve tiny-whisper

With `turn_detection` given, as here, the server finds the turns. Without it the service sends a commit when
the pipeline's own voice activity detection says that the user has stopped.
"""

from __future__ import annotations

import asyncio
import sys
import wave

from pipecat.frames.frames import (
    EndFrame,
    Frame,
    InputAudioRawFrame,
    InterimTranscriptionFrame,
    TranscriptionFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.runner import PipelineRunner
from pipecat.pipeline.task import PipelineParams, PipelineTask
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.openai.stt import OpenAIRealtimeSTTService

FRAME_S = 0.02
SILENCE_S = 1.0
"""Behind the recording, so that the server hears its last turn end."""
QUIET_S = 3.0
"""Nothing came for so long: that was all."""


class Printer(FrameProcessor):  # type: ignore[misc]  # not installed here
    """Prints what was heard."""

    def __init__(self) -> None:
        super().__init__()
        self.finals: list[str] = []
        self.received = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Look at a frame and hand it on."""
        await super().process_frame(frame, direction)
        match frame:
            case InterimTranscriptionFrame():
                print("…", frame.text)
            case TranscriptionFrame():
                print("→", frame.text)
                self.finals.append(frame.text)
        self.received.set()
        await self.push_frame(frame, direction)


async def main(
    path: str, url: str = "ws://127.0.0.1:8000/v1/realtime", model: str = "tiny-whisper"
) -> list[str]:
    """Print interim and final transcripts; return the final ones."""
    with wave.open(path) as file:
        rate, samples = file.getframerate(), file.readframes(file.getnframes())
    service = OpenAIRealtimeSTTService(
        api_key="none",
        base_url=url,
        turn_detection={"type": "server_vad"},
        settings=OpenAIRealtimeSTTService.Settings(model=model, language=None),
    )
    printer = Printer()
    task = PipelineTask(
        Pipeline([service, printer]), params=PipelineParams(audio_in_sample_rate=rate), enable_rtvi=False
    )

    async def speak() -> None:
        size = 2 * round(rate * FRAME_S)
        audio = samples + bytes(2 * round(rate * SILENCE_S))
        for start in range(0, len(audio) - size + 1, size):
            await task.queue_frame(InputAudioRawFrame(audio[start : start + size], rate, 1))
            await asyncio.sleep(FRAME_S)
        num_received = -1
        while num_received < len(printer.finals):
            num_received = len(printer.finals)
            await asyncio.sleep(QUIET_S)
        await task.queue_frame(EndFrame())

    await asyncio.gather(PipelineRunner(handle_sigint=False).run(task), speak())
    return printer.finals


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
