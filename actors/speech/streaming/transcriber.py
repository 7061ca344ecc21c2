"""A speech model that streams: live turns are runs that are fed, and a recording is one in large steps.

So a file's transcript is that of a turn with the same audio and the same delay. It has the default delay:
no one waits for its first word. Read `actors/speech/model.py` for what is promised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import msgspec
import trio

from ....media.speech.voice_activity import VoiceActivityModel
from ....media.transcript.joining import Passage, join_texts, separator, shifted
from ....media.transcript.range_answer import Range, Samples, clip_ranges
from ....media.transcript.silence_removal import Restorer, splice
from ....protocols.engine.messages import Lane
from ....protocols.engine.statistics import SpeechStatistics
from ....protocols.errors import BadRequestError
from ....protocols.shared.audio_format import INTERNAL_RATE
from ....protocols.transcription.streaming import ChunkDelay
from ....protocols.transcription.transcript import (
    SpokenText,
    Task,
    TimedSegment,
    Transcript,
    TranscriptionOptions,
)
from ...runtime.compute_pool import compute, give_way, working_for
from ..channels import transcribe_channels
from ..model import FILE, ReadAudio, check_task
from ..statistics import SpeechCounts
from .captions import StreamedCaptions
from .family import StreamingFamily
from .feed import MOST_ROWS, Feed
from .reader import TokenReader
from .run import request_of
from .turn import StreamedTurn

_DEFAULTS: Final = TranscriptionOptions()
_UNSUPPORTED: Final = {
    "prompt": "takes no text before the audio",
    "keywords": "takes no keywords",
    "numerals": "writes numbers as it has learned to",
    "beam_size": "has one answer only",
    "temperature": "draws no answers",
    "best_of": "draws no answers",
}
"""Options that change nothing here, with the reason that the error gives."""


@dataclass(frozen=True, slots=True)
class _Heard:
    """The transcript of one range of a recording, whose times count from the recording's start."""

    transcript: Transcript
    passage: Passage


class StreamingTranscriber:
    """Transcribes with one model (a `SpeechModel`). Holds no state of any request."""

    supports_left_context = False
    spells_numbers = False
    takes_hints = False
    tasks: tuple[Task, ...] = ("transcribe",)

    def __init__(self, family: StreamingFamily, activity: VoiceActivityModel | None = None) -> None:
        """`activity` finds what `TranscriptionOptions.speech_filter` leaves out."""
        self.family = family
        self._activity = activity
        self._counts = SpeechCounts()

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO codes that may be asked for."""
        return self.family.languages

    @property
    def delays(self) -> tuple[ChunkDelay, ...]:
        """Of which a live turn has one, the default first."""
        return self.family.delays

    def statistics(self) -> SpeechStatistics:
        """What came of all transcripts so far."""
        return self._counts.statistics()

    def check(self, options: TranscriptionOptions) -> None:
        """Raise BadRequestError, naming the field, for a language or task it does not know, or an option that
        it could only ignore."""
        check_task(options, self.tasks, self.languages)
        for name, reason in _UNSUPPORTED.items():
            if getattr(options, name) != getattr(_DEFAULTS, name):
                raise BadRequestError(
                    f"this model {reason}: leave out `{name}`", param=name, code="unsupported_parameter"
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
        with working_for(lane):
            restorer = None
            if options.speech_filter is not None and self._activity is not None:
                look = partial(splice, samples, self._activity, options.speech_filter, check=give_way)
                kept = await compute(look)
                samples = kept.samples
                restorer = Restorer(kept, self.family.text.bytes_of, options.cue_layout)
            heard: list[_Heard] = []
            for part in clip_ranges(len(samples), options.clips):
                found = await self._transcribe(samples, part, options, lane, heard, on_delta)
                passage = found.passage if restorer is None else restorer.push(found.passage)
                heard.append(replace(found, passage=passage))
                if on_segment is not None:
                    shown = passage if options.word_timestamps else replace(passage, words=())
                    for segment in shown.timed_segments():
                        on_segment(segment)
        transcript = _joined(heard, len(samples) / INTERNAL_RATE, options)
        if restorer is not None:
            transcript = restorer.whole(transcript)
        self._counts.count(transcript)
        return transcript if options.word_timestamps else msgspec.structs.replace(transcript, words=())

    async def _transcribe(
        self,
        samples: Samples,
        part: Range,
        options: TranscriptionOptions,
        lane: Lane,
        before: Sequence[_Heard],
        on_delta: Callable[[str], None] | None,
    ) -> _Heard:
        """One part of a recording, as a stream of its own."""
        start, end = part
        family, delay = self.family, self.family.delays[0]
        reader = TokenReader(family, options)
        feed = Feed(family, lambda first, last: samples[first:last], delay, start, reader)
        sent_before = join_texts(each.transcript.text for each in before)
        num_sent = num_tokens = 0

        def send() -> None:
            nonlocal num_sent, num_tokens
            text = reader.text.strip()
            if on_delta is None or len(text) == num_sent:
                return
            space = separator(sent_before, text) if sent_before and not num_sent else ""
            tokens = reader.tokens_from(num_tokens) if options.logprobs else ()
            on_delta(SpokenText(space + text[num_sent:], tokens))
            num_sent, num_tokens = len(text), num_tokens + len(tokens)

        async with (
            family.engine.placed(lane=lane) as place,
            place.run(request_of(family, options, delay, lane)) as run,
        ):
            step = MOST_ROWS * family.row_samples
            for position in range(start, end, step):
                await feed.advance(run, min(position + step, end))
                send()
            await feed.conclude(run, end)
        send()

        def assemble() -> _Heard:
            transcript = reader.transcript(end - start)
            segments = reader.segments((end - start) / INTERNAL_RATE)
            num_before, by_s = sum(len(each.passage.segments) for each in before), start / INTERNAL_RATE
            space = separator(sent_before, transcript.text) if sent_before and transcript.text else ""
            return _Heard(
                transcript,
                Passage(
                    tuple(
                        msgspec.structs.replace(
                            segment,
                            id=num_before + number,
                            text=segment.text if number else space + segment.text.lstrip(),
                            seek=segment.seek + round(by_s * 100),
                            start=round(segment.start + by_s, 3),
                            end=round(segment.end + by_s, 3),
                        )
                        for number, segment in enumerate(segments)
                    ),
                    shifted(transcript.words, by_s),
                ),
            )

        return await compute(assemble)

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
    ) -> StreamedTurn:
        """See `SpeechModel.live`; a stream begins with its turn, and recognises the language by itself."""
        assert nursery is not None, "a stream is held by a task"
        return StreamedTurn(
            self.family,
            read,
            options,
            start=start,
            delay=self.family.delay(delay_ms),
            nursery=nursery,
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
    ) -> StreamedCaptions:
        """See `SpeechModel.stream`."""
        return StreamedCaptions(
            self.family,
            read,
            options,
            start=start,
            delay=self.family.delay(delay_ms),
            nursery=nursery,
            caller=caller,
            on_final=self._counts.count,
        )


def _joined(heard: Sequence[_Heard], duration_s: float, options: TranscriptionOptions) -> Transcript:
    """One transcript of the parts of a recording, in order."""
    found = [each.transcript for each in heard]
    codes = [code for each in found for code in each.languages]
    language = max(codes, key=codes.count, default=options.language or "")
    logprobs = [(each.avg_logprob, each.num_output_tokens) for each in found if each.avg_logprob is not None]
    num_tokens = sum(count for _, count in logprobs)
    return Transcript(
        text=join_texts(each.text for each in found),
        language=language,
        duration=duration_s,
        languages=tuple(dict.fromkeys((language, *codes))) if language else (),
        language_probability=1.0 if language else 0.0,
        segments=tuple(segment for each in heard for segment in each.passage.segments),
        words=tuple(word for each in heard for word in each.passage.words),
        num_input_tokens=sum(each.num_input_tokens for each in found),
        num_output_tokens=sum(each.num_output_tokens for each in found),
        avg_logprob=sum(mean * count for mean, count in logprobs) / num_tokens if num_tokens else None,
        no_speech_prob=min((each.no_speech_prob for each in found), default=1.0),
        tokens=tuple(token for each in found for token in each.tokens),
        num_audio_tokens=sum(each.num_audio_tokens for each in found),
    )
