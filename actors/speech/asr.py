"""Qwen3-ASR as a speech model: whole recordings here, cut into segments; live turns in `live_asr.py`.

Both follow one recipe, `actors/speech/segment_work.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from ...engine.models.qwen3_asr.text import check_language
from ...media.voice_activity import VoiceActivityModel
from ...protocols.errors import BadRequestError
from ...protocols.messages import EncoderItem, Lane
from ...protocols.transcript import Task, Transcript, TranscriptionOptions
from .live_asr import LiveAsr
from .model import FILE, ReadAudio, Samples
from .recording import Range, Recording
from .segment_work import SegmentMemory, transcribe_segments
from .segments import SegmentDecoder


class FileSegments:
    """Segments of samples that are all there. Features are computed in a thread."""

    def __init__(self, decoder: SegmentDecoder, recording: Recording) -> None:
        self.recording = recording
        self._decoder = decoder

    async def items(self, segment: Range) -> tuple[EncoderItem, ...]:
        """The segment's windows."""
        return await trio.to_thread.run_sync(self._decoder.items, self.recording.read(*segment))

    def session(self, segment: Range) -> None:
        """A file's segment is asked about once; nothing is kept for it."""


class AsrTranscriber:
    """Transcribes with one Qwen3-ASR model (a `SpeechModel`). Holds no state of any request."""

    def __init__(self, decoder: SegmentDecoder, activity: VoiceActivityModel | None = None) -> None:
        """Segments in which `activity` hears nobody are not transcribed."""
        self.decoder = decoder
        self._activity = activity

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO codes it can be told."""
        return self.decoder.text.info.languages

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What it can do with speech."""
        return ("transcribe",)

    def check(self, options: TranscriptionOptions) -> None:
        """Raise BadRequestError, naming the field, for a language or task it does not know."""
        if options.task not in self.tasks:
            raise BadRequestError(f"this model cannot {options.task}", param="task", code="unsupported_task")
        if options.language is not None:
            check_language(options.language, known=self.languages)
        for language in options.languages:
            check_language(language, param="languages", known=self.languages)

    async def transcribe(
        self,
        samples: Samples,
        options: TranscriptionOptions,
        *,
        lane: Lane = FILE,
        on_delta: Callable[[str], None] | None = None,
    ) -> Transcript:
        """The transcript of `samples`, of any length: see `SpeechModel.transcribe`."""
        self.check(options)
        segments = await trio.to_thread.run_sync(self.decoder.cut_rule.split, samples)
        recording = Recording(lambda start, end: samples[start:end], self._activity)
        source = FileSegments(self.decoder, recording)
        return await transcribe_segments(
            self.decoder, segments, source, SegmentMemory(), options, lane=lane, on_delta=on_delta
        )

    def live(self, read: ReadAudio, options: TranscriptionOptions, *, start: int) -> LiveAsr:
        """A turn whose audio begins at sample `start` of what `read` gives."""
        return LiveAsr(self.decoder, read, options, start=start, activity=self._activity)
