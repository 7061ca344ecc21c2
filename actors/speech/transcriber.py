"""Whisper as a speech model: whole recordings here, cut into windows; live turns in `live_transcriber.py`.

Both follow one recipe, `actors/speech/window_work.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from ...media.voice_activity import VoiceActivityModel
from ...protocols.errors import BadRequestError
from ...protocols.messages import EncoderItem, Lane
from ...protocols.transcript import Task, Transcript, TranscriptionOptions
from .live_transcriber import LiveTranscriber
from .model import FILE, ReadAudio, Samples
from .recording import Range, Recording
from .window_work import WindowMemory, transcribe_windows
from .windows import WindowDecoder


class FileWindows:
    """Windows of samples that are all there. Features are computed in a thread."""

    def __init__(self, decoder: WindowDecoder, recording: Recording) -> None:
        self.recording = recording
        self._decoder = decoder

    async def item(self, window: Range) -> EncoderItem:
        """The window's features and their hash."""
        return await trio.to_thread.run_sync(self._decoder.item, self.recording.read(*window))


class Transcriber:
    """Transcribes with one Whisper model (a `SpeechModel`). Holds no state of any request."""

    def __init__(self, decoder: WindowDecoder, activity: VoiceActivityModel | None = None) -> None:
        """Windows in which `activity` hears nobody are not transcribed."""
        self.decoder = decoder
        self._activity = activity

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO codes it can be told."""
        return self.decoder.text.info.languages or ("en",)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What it can do with speech."""
        return self.decoder.text.info.tasks

    def check(self, options: TranscriptionOptions) -> None:
        """Raise BadRequestError, naming the field, for a language or task it does not know."""
        text = self.decoder.text
        if options.task not in self.tasks:
            raise BadRequestError(f"this model cannot {options.task}", param="task", code="unsupported_task")
        if options.language is not None:
            text.check_language(options.language)
        for language in options.languages:
            text.check_language(language, param="languages")

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
        windows = await trio.to_thread.run_sync(self.decoder.cut_rule.split, samples)
        recording = Recording(lambda start, end: samples[start:end], self._activity)
        source = FileWindows(self.decoder, recording)
        return await transcribe_windows(
            self.decoder, windows, source, WindowMemory(), options, lane=lane, on_delta=on_delta
        )

    def live(self, read: ReadAudio, options: TranscriptionOptions, *, start: int) -> LiveTranscriber:
        """A turn whose audio begins at sample `start` of what `read` gives."""
        return LiveTranscriber(self.decoder, read, options, start=start, activity=self._activity)
