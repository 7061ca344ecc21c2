"""A recording by a model that gives tokens with frames: its clips one after the other, and what they join to.

A model gives the tokens of a clip to a `TokenReader` (`ReadPart`); channels, silence that is left out, deltas
and segments are the same whatever the model. Read `actors/speech/streaming/transcriber.py` and
`actors/speech/windowed/transcriber.py` for who calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import msgspec

from ...media.speech.voice_activity import VoiceActivityModel
from ...media.transcript.joining import Passage, join_texts, separator, shifted
from ...media.transcript.range_answer import Range, Samples, clip_ranges
from ...media.transcript.silence_removal import Restorer, splice
from ...protocols.engine.messages import Lane
from ...protocols.errors import BadRequestError
from ...protocols.shared.audio_format import INTERNAL_RATE
from ...protocols.transcription.transcript import SpokenText, TimedSegment, Transcript, TranscriptionOptions
from ..runtime.compute_pool import compute, give_way, working_for
from .streaming.family import TokenFamily
from .streaming.reader import TokenReader

ReadPart = Callable[[Samples, Range, TokenReader, Callable[[], None]], Awaitable[None]]
"""Gives a reader the tokens of a part of a recording, and calls whenever it has given some."""

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


def check_supported(options: TranscriptionOptions) -> None:
    """Raise BadRequestError, naming the field, for an option that such a model could only ignore."""
    for name, reason in _UNSUPPORTED.items():
        if getattr(options, name) != getattr(_DEFAULTS, name):
            raise BadRequestError(
                f"this model {reason}: leave out `{name}`", param=name, code="unsupported_parameter"
            )


@dataclass(frozen=True, slots=True)
class _Part:
    """The transcript of one part of a recording, and its segments and words by the recording's times."""

    transcript: Transcript
    passage: Passage


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTranscriber:
    """Transcribes recordings of one channel with a model whose tokens `read` gives."""

    family: TokenFamily
    activity: VoiceActivityModel | None
    """Finds what `TranscriptionOptions.speech_filter` leaves out."""
    read: ReadPart
    options: TranscriptionOptions
    on_delta: Callable[[str], None] | None = None
    on_segment: Callable[[TimedSegment], None] | None = None
    _parts: list[_Part] = field(default_factory=list)

    async def transcribe(self, samples: Samples, lane: Lane) -> Transcript:
        """See `SpeechModel.transcribe`. Called once."""
        options = self.options
        with working_for(lane):
            restorer = None
            if options.speech_filter is not None and self.activity is not None:
                look = partial(splice, samples, self.activity, options.speech_filter, check=give_way)
                kept = await compute(look)
                samples = kept.samples
                restorer = Restorer(kept, self.family.text.bytes_of, options.cue_layout)
            for part in clip_ranges(len(samples), options.clips):
                found = await self._transcribe(samples, part)
                passage = found.passage if restorer is None else restorer.push(found.passage)
                self._parts.append(replace(found, passage=passage))
                if self.on_segment is not None:
                    shown = passage if options.word_timestamps else replace(passage, words=())
                    for segment in shown.timed_segments():
                        self.on_segment(segment)
        transcript = _joined(self._parts, len(samples) / INTERNAL_RATE, options)
        if restorer is not None:
            transcript = restorer.whole(transcript)
        return transcript if options.word_timestamps else msgspec.structs.replace(transcript, words=())

    async def _transcribe(self, samples: Samples, part: Range) -> _Part:
        """One part, which begins anew."""
        start, end = part
        reader = TokenReader(self.family, self.options)
        sent_before = join_texts(each.transcript.text for each in self._parts)
        num_sent = num_tokens = 0

        def send() -> None:
            nonlocal num_sent, num_tokens
            text = reader.text.strip()
            if self.on_delta is None or len(text) == num_sent:
                return
            space = separator(sent_before, text) if sent_before and not num_sent else ""
            tokens = reader.tokens_from(num_tokens) if self.options.logprobs else ()
            self.on_delta(SpokenText(space + text[num_sent:], tokens))
            num_sent, num_tokens = len(text), num_tokens + len(tokens)

        await self.read(samples, part, reader, send)
        send()

        def assemble() -> _Part:
            transcript = reader.transcript(end - start)
            segments = reader.segments((end - start) / INTERNAL_RATE)
            num_before, by_s = sum(len(each.passage.segments) for each in self._parts), start / INTERNAL_RATE
            space = separator(sent_before, transcript.text) if sent_before and transcript.text else ""
            return _Part(
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


def _joined(parts: Sequence[_Part], duration_s: float, options: TranscriptionOptions) -> Transcript:
    """One transcript of the parts of a recording, in order."""
    found = [each.transcript for each in parts]
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
        segments=tuple(segment for each in parts for segment in each.passage.segments),
        words=tuple(word for each in parts for word in each.passage.words),
        num_input_tokens=sum(each.num_input_tokens for each in found),
        num_output_tokens=sum(each.num_output_tokens for each in found),
        avg_logprob=sum(mean * count for mean, count in logprobs) / num_tokens if num_tokens else None,
        no_speech_prob=min((each.no_speech_prob for each in found), default=1.0),
        tokens=tuple(token for each in found for token in each.tokens),
        num_audio_tokens=sum(each.num_audio_tokens for each in found),
    )
