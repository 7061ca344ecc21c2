"""A speech model: whole recordings here, cut into ranges; live turns in `actors/speech/live.py`.

Both follow one recipe, `actors/speech/recipe.py`, whatever the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import msgspec
import trio

from ...media.speech.voice_activity import VoiceActivityModel
from ...media.transcript.joining import Passage
from ...media.transcript.range_answer import Range, Samples, clip_ranges
from ...media.transcript.silence_removal import Restorer, Splice, splice
from ...protocols.engine.messages import Lane
from ...protocols.engine.statistics import SpeechStatistics
from ...protocols.errors import BadRequestError
from ...protocols.transcription.numerals import check_numerals
from ...protocols.transcription.streaming import ChunkDelay
from ...protocols.transcription.transcript import Task, TimedSegment, Transcript, TranscriptionOptions
from ..runtime.compute_pool import compute, give_way, working_for
from .channels import transcribe_channels
from .families.family import SpeechFamily
from .live import LiveTranscriber
from .model import FILE, LiveStream, ReadAudio, check_task
from .recipe import transcribe_ranges
from .recording import Recording
from .recording_state import Memory
from .statistics import SpeechCounts


class Transcriber:
    """Transcribes with one model (a `SpeechModel`). Holds no state of any request."""

    def __init__(self, family: SpeechFamily, activity: VoiceActivityModel | None = None) -> None:
        """Ranges in which `activity` hears nobody are not transcribed."""
        self.family = family
        self._activity = activity
        self._counts = SpeechCounts()

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO codes that may be asked for."""
        return self.family.facts.languages

    @property
    def tasks(self) -> tuple[Task, ...]:
        """What it can do with speech."""
        return self.family.facts.tasks

    @property
    def supports_left_context(self) -> bool:
        """Whether a turn can be heard behind what was before it."""
        return self.family.facts.behind is not None

    @property
    def spells_numbers(self) -> bool:
        """Whether it can be told to write numbers as words."""
        return self.family.facts.spells_numbers

    @property
    def delays(self) -> tuple[ChunkDelay, ...]:
        """None: it is asked again about a turn that grows."""
        return ()

    @property
    def takes_hints(self) -> bool:
        """Whether `prompt` and `keywords` mean anything to it."""
        return True

    def check(self, options: TranscriptionOptions) -> None:
        """Raise BadRequestError, naming the field, for a language or task it does not know, or for what it
        cannot do with numbers, or several answers."""
        if options.beam_size > 1 and not self.family.facts.searches:
            raise BadRequestError(
                "this model has one answer only", param="beam_size", code="unsupported_parameter"
            )
        check_task(options, self.tasks, self.languages)
        written = [options.language] if options.language else options.languages
        check_numerals(
            options.numerals,
            written if options.task == "transcribe" else (),
            spells_numbers=self.spells_numbers,
        )

    async def transcribe(
        self,
        samples: Samples,
        options: TranscriptionOptions,
        *,
        lane: Lane = FILE,
        on_delta: Callable[[str], None] | None = None,
        on_segment: Callable[[TimedSegment], None] | None = None,
    ) -> Transcript:
        """The transcript of `samples`, of any length: see `SpeechModel.transcribe`."""
        self.check(options)
        if options.multichannel:
            return await transcribe_channels(partial(self.transcribe, lane=lane), samples, options)
        report = None if on_segment is None else partial(_report, on_segment)
        if options.speech_filter is None or self._activity is None:
            transcript = await self._transcribe(samples, options, lane, on_delta, report)
        else:
            look = partial(splice, samples, self._activity, options.speech_filter, check=give_way)
            with working_for(lane):
                kept = await compute(look)
            transcript = await self._transcribe_kept(kept, options, lane, on_delta, report)
        self._counts.count(transcript)
        return transcript

    def statistics(self) -> SpeechStatistics:
        """What came of all transcripts so far."""
        return self._counts.statistics()

    async def _transcribe(
        self,
        samples: Samples,
        options: TranscriptionOptions,
        lane: Lane,
        on_delta: Callable[[str], None] | None,
        on_passage: Callable[[Passage], None] | None,
    ) -> Transcript:
        with working_for(lane):
            ranges = await compute(self._ranges, samples, options.clips)
            recording = Recording(self.family, lambda start, end: samples[start:end], self._activity)
            return await transcribe_ranges(
                self.family,
                recording,
                ranges,
                Memory(),
                options,
                lane=lane,
                whole=(0, len(samples)),
                on_delta=on_delta,
                on_passage=on_passage,
            )

    def _ranges(self, samples: Samples, clips: Sequence[float]) -> list[Range]:
        """What is asked about: all of the recording, or each of its clips, cut where it is too long."""
        rule = self.family.facts.cut_rule
        return [
            (start + first, start + last)
            for start, end in clip_ranges(len(samples), clips)
            for first, last in rule.split(samples[start:end], self._activity, give_way)
        ]

    async def _transcribe_kept(
        self,
        kept: Splice,
        options: TranscriptionOptions,
        lane: Lane,
        on_delta: Callable[[str], None] | None,
        on_passage: Callable[[Passage], None] | None,
    ) -> Transcript:
        """The transcript of what is kept of a recording, with the times of the whole."""
        is_timed = options.segment_timestamps or options.word_timestamps
        timed = msgspec.structs.replace(options, word_timestamps=is_timed)
        restorer = Restorer(kept, self.family.facts.bytes_of, options.cue_layout)

        def restore(passage: Passage) -> None:
            passage = restorer.push(passage)
            if on_passage is not None:
                on_passage(passage if options.word_timestamps else replace(passage, words=()))

        transcript = restorer.whole(await self._transcribe(kept.samples, timed, lane, on_delta, restore))
        if not transcript.language and options.language is not None:  # nobody speaks
            transcript = msgspec.structs.replace(
                transcript, language=options.language, language_probability=1.0
            )
        return transcript if options.word_timestamps else msgspec.structs.replace(transcript, words=())

    def live(
        self,
        read: ReadAudio,
        options: TranscriptionOptions,
        *,
        start: int,
        before: Sequence[int] = (),
        spoken: str | None = None,
        caller: str = "",
        delay_ms: int | None = None,
        nursery: trio.Nursery | None = None,
    ) -> LiveTranscriber:
        """See `SpeechModel.live`."""
        return LiveTranscriber(
            self.family,
            read,
            options,
            start=start,
            before=before,
            spoken=spoken,
            activity=self._activity,
            caller=caller,
            on_final=self._counts.count,
        )

    def stream(
        self,
        read: ReadAudio,
        options: TranscriptionOptions,
        *,
        start: int,
        nursery: trio.Nursery,
        caller: str = "",
        delay_ms: int | None = None,
    ) -> LiveStream:
        """See `SpeechModel.stream`."""
        raise BadRequestError("this model does not stream", code="unsupported_parameter")


def _report(on_segment: Callable[[TimedSegment], None], passage: Passage) -> None:
    for segment in passage.timed_segments():
        on_segment(segment)
