"""Qwen3-ASR's recipe for the segments of one recording: language found once, segments answered in parallel.

Files and live turns differ only in where the windows come from (`SegmentSource`) and in what is remembered
between calls (`SegmentMemory`), so a live turn's final transcript is the offline one by construction. One
segment: `actors/speech/segments.py`. Files: `actors/speech/asr.py`. Live: `actors/speech/live_asr.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import trio

from ...engine.models.qwen3_asr.text import check_language, language_code
from ...media.word_times import time_words
from ...protocols.messages import EncoderItem, Lane, SessionKey
from ...protocols.transcript import Transcript, TranscriptionOptions
from .recording import (
    RANGES_AT_ONCE,
    DeltaJoiner,
    Part,
    Range,
    RangeMemory,
    Recording,
    answer_side_by_side,
    joined,
    run,
    separator,
)
from .segment_times import sentences, shifted
from .segments import SILENCE, Choice, SegmentAnswer, SegmentDecoder, SegmentWish, context_of


class SegmentSource(Protocol):
    """Where segments come from: a file in memory, or a turn that is still being spoken."""

    @property
    def recording(self) -> Recording:
        """What they are segments of."""
        ...

    async def items(self, segment: Range) -> tuple[EncoderItem, ...]:
        """The segment's windows."""
        ...

    def session(self, segment: Range) -> SessionKey | None:
        """What the engine shall keep the segment's KV under."""
        ...


SegmentMemory = RangeMemory[Choice, SegmentAnswer]


async def transcribe_segments(
    decoder: SegmentDecoder,
    segments: list[Range],
    source: SegmentSource,
    memory: SegmentMemory,
    options: TranscriptionOptions,
    *,
    lane: Lane,
    pinned: str | None = None,
    is_timed: bool = True,
    on_delta: Callable[[str], None] | None = None,
) -> Transcript:
    """Transcribe contiguous segments of one recording.

    The first with speech decides the language of all behind it, unless `options` do. With `pinned` the last
    segment is not asked for its language; that is what makes a partial result differ from the final one.
    Without `is_timed` the last segment, which may still grow, is not timed.
    """
    deltas = (
        None if on_delta is None else DeltaJoiner(len(segments), " ", on_delta, context=context_of(options))
    )
    work = _Work(decoder, source, memory, options, lane, deltas)
    language, is_decided = _given_language(options)
    probability = 1.0
    forced: list[str | None] = []
    for index, segment in enumerate(segments):
        if not is_decided and pinned is not None and index == len(segments) - 1:
            language, is_decided = pinned, True
        elif not is_decided and options.languages and not await source.recording.is_silent(segment):
            choice = await work.choose(segment)
            language, probability, is_decided = choice.language, choice.probability, True
        forced.append(language)
        if not is_decided:
            answer = await work.answer(index, segment, None)
            if answer.text:
                is_decided = True
                if answer.choice is not None:
                    language, probability = answer.choice.language, answer.choice.probability
    if deltas is not None:
        deltas.separator = separator(language)

    async def answer_one(index: int, segment: Range) -> None:
        await work.answer(index, segment, forced[index])
        if is_timed or index + 1 < len(segments):
            await work.time(segment, forced[index])

    await answer_side_by_side(segments, answer_one)

    def assemble() -> Transcript:
        parts = [work.part(segment, forced[index], segments[0][0]) for index, segment in enumerate(segments)]
        num_samples = segments[-1][1] - segments[0][0] if segments else 0
        duration_s = num_samples / decoder.features.sampling_rate
        return joined(parts, language=language or "", duration_s=duration_s, language_probability=probability)

    return assemble() if len(segments) <= RANGES_AT_ONCE else await trio.to_thread.run_sync(assemble)


def _given_language(options: TranscriptionOptions) -> tuple[str | None, bool]:
    """The code that the options name or leave as the only one; whether they do."""
    if options.language is not None:
        check_language(options.language)
        return language_code(options.language), True
    for each in options.languages:
        check_language(each, param="languages")
    codes = {language_code(each) for each in options.languages}
    return (codes.pop(), True) if len(codes) == 1 else (None, False)


@dataclass(slots=True)
class _Work:
    """One call of `transcribe_segments`: the steps that fill its memory."""

    decoder: SegmentDecoder
    source: SegmentSource
    memory: SegmentMemory
    options: TranscriptionOptions
    lane: Lane
    deltas: DeltaJoiner | None
    chosen: dict[Range, tuple[EncoderItem, ...]] = field(default_factory=dict)
    """The windows of the segment whose language was chosen, until it is answered."""

    async def choose(self, segment: Range) -> Choice:
        """The language of a segment, out of those allowed."""
        if segment not in self.memory.choices:
            codes = [code for each in self.options.languages if (code := language_code(each)) is not None]
            items = await self.source.items(segment)
            self.memory.choices[segment] = await self.decoder.choose(items, codes, self._wish(segment, None))
            self.chosen = {segment: items}
        return self.memory.choices[segment]

    async def answer(self, index: int, segment: Range, language: str | None) -> SegmentAnswer:
        """What was said in a segment, unless that is known already."""
        key = (segment, language)
        if key not in self.memory.answers:
            self.memory.answers[key] = await self._ask(index, segment, language)
        answer = self.memory.answers[key]
        if self.deltas is not None:
            self.deltas.finish(index, answer.text)
        return answer

    async def _ask(self, index: int, segment: Range, language: str | None) -> SegmentAnswer:
        if await self.source.recording.is_silent(segment):
            return SILENCE
        answer = await self.decoder.decode(
            self.chosen.pop(segment, ()) or await self.source.items(segment),
            self._wish(segment, language),
            duration_s=(segment[1] - segment[0]) / self.decoder.features.sampling_rate,
            on_text=None if self.deltas is None else self.deltas.feeder(index),
        )
        self.memory.drafts[segment[0]] = answer.token_ids
        is_echo = await self.source.recording.is_echo(answer.text, context_of(self.options), segment)
        return SILENCE if is_echo else answer

    async def time(self, segment: Range, language: str | None) -> None:
        """Find when the answer's words were said, if that is asked for."""
        key = (segment, language)
        is_wanted = self.options.word_timestamps or self.options.segment_timestamps
        if is_wanted and key not in self.memory.words:
            samples = self.source.recording.read(*segment)
            find = partial(time_words, self.memory.answers[key].text, samples)
            self.memory.words[key] = await run(find, len(samples))

    def part(self, segment: Range, language: str | None, begin: int) -> Part:
        """A segment's share of a transcript that begins at sample `begin`."""
        key = (segment, language, (segment, language) in self.memory.words)
        if key not in self.memory.parts:
            self.memory.parts[key] = self._make_part(segment, language, begin)
        return self.memory.parts[key]

    def _make_part(self, segment: Range, language: str | None, begin: int) -> Part:
        answer = self.memory.answers[(segment, language)]
        if not answer.text:
            return Part(text="", num_input_tokens=answer.num_prompt, num_output_tokens=answer.num_generated)
        rate = self.decoder.features.sampling_rate
        start_s, end_s = ((place - begin) / rate for place in segment)
        words = self.memory.words.get((segment, language), ())
        return Part(
            text=answer.text,
            segments=sentences(
                answer,
                words,
                bytes_of=self.decoder.bytes_of,
                temperature=self.options.temperature,
                start_s=start_s,
                end_s=end_s,
            ),
            words=shifted(words, start_s) if self.options.word_timestamps else (),
            logprobs=answer.logprobs,
            num_input_tokens=answer.num_prompt,
            num_output_tokens=answer.num_generated,
            no_speech_prob=0.0,
            tokens=tuple(self.decoder.token_logprobs(answer)) if self.options.logprobs else (),
        )

    def _wish(self, segment: Range, language: str | None) -> SegmentWish:
        return SegmentWish(
            options=self.options,
            language=language,
            draft=self.memory.drafts.get(segment[0], ()),
            session=self.source.session(segment),
            lane=self.lane,
        )
