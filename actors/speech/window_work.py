"""Whisper's recipe for the windows of one recording: language found once, windows decoded side by side.

Files and live turns differ only in where the windows' features come from (`WindowSource`) and in what is
remembered between calls (`WindowMemory`), so a live turn's final transcript is the offline one by
construction. One window: `actors/speech/windows.py`. Files: `actors/speech/transcriber.py`. Live:
`actors/speech/live_transcriber.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import trio

from ...media.sentences import retimed
from ...protocols.messages import EncoderItem, Lane
from ...protocols.transcript import TokenLogProb, Transcript, TranscriptionOptions, Word
from ..kernel.nursery import open_work
from .recording import (
    RANGES_AT_ONCE,
    DeltaJoiner,
    Part,
    Range,
    RangeMemory,
    Recording,
    answer_side_by_side,
    joined,
    separator,
)
from .windows import SILENCE, Detection, WindowAnswer, WindowDecoder, previous_text


class WindowSource(Protocol):
    """Where windows come from: a file in memory, or a turn that is still being spoken."""

    @property
    def recording(self) -> Recording:
        """What they are windows of."""
        ...

    async def item(self, window: Range) -> EncoderItem:
        """The window's features and their hash."""
        ...


WindowMemory = RangeMemory[Detection, WindowAnswer]


async def transcribe_windows(
    decoder: WindowDecoder,
    windows: list[Range],
    source: WindowSource,
    memory: WindowMemory,
    options: TranscriptionOptions,
    *,
    lane: Lane,
    guess: str | None = None,
    is_timed: bool = True,
    on_delta: Callable[[str], None] | None = None,
) -> Transcript:
    """Transcribe contiguous windows of one recording.

    Without `is_timed` the last window, which may still grow, has no words, and its segments have the
    model's own rough times.
    With `guess`, windows are decoded in that language while it is being detected; if the guess was wrong
    they are decoded again, so it never changes the result.
    """
    work = _Work(decoder, source, memory, options, lane, is_timed)
    language: str | None
    if not decoder.text.is_multilingual:
        if options.language is not None:
            decoder.text.check_language(options.language)
        language = None
    elif options.language is not None:
        language = decoder.text.check_language(options.language)
    elif len(options.languages) == 1:
        language = decoder.text.check_language(options.languages[0], param="languages")
    elif guess is not None:
        async with open_work() as nursery:
            nursery.start_soon(work.decode_all, windows, guess, None)
            language = await work.language(windows)
            if language != guess:
                nursery.cancel_scope.cancel()
    else:
        language = await work.language(windows)
    deltas = None
    if on_delta is not None:
        context = previous_text(options)
        deltas = DeltaJoiner(len(windows), separator(language), on_delta, context=context)
    await work.decode_all(windows, language, deltas)

    def assemble() -> Transcript:
        parts = []
        for window in windows:
            key = (window, language, (window, language) in memory.words)
            if key not in memory.parts:
                memory.parts[key] = _part(decoder, window, windows[0][0], memory, options, language)
            parts.append(memory.parts[key])
        known = language or ("" if decoder.text.is_multilingual else "en")
        found = (memory.choices[window] for window in windows if window in memory.choices)
        probability = next((each.probability for each in found if each.language == language), 1.0)
        return joined(
            parts,
            language=known,
            duration_s=_duration_s(decoder, windows),
            language_probability=probability,
        )

    return assemble() if len(windows) <= RANGES_AT_ONCE else await trio.to_thread.run_sync(assemble)


@dataclass(slots=True)
class _Work:
    """One call of `transcribe_windows`: the steps that fill its memory."""

    decoder: WindowDecoder
    source: WindowSource
    memory: WindowMemory
    options: TranscriptionOptions
    lane: Lane
    is_timed: bool
    detected: dict[Range, EncoderItem] = field(default_factory=dict)
    """The window whose language was detected last, until it is decoded."""

    async def language(self, windows: list[Range]) -> str | None:
        """Language of the first window that holds speech; of the first with any sound if none does.

        None: all are silent, and none will be decoded.
        """
        first: str | None = None
        for window in windows:
            if window not in self.memory.choices:
                if await self.source.recording.is_silent(window):
                    continue
                item = await self.source.item(window)
                self.memory.choices[window] = await self.decoder.detect(
                    item, languages=self.options.languages, lane=self.lane
                )
                self.detected = {window: item}
            detection = self.memory.choices[window]
            if detection.is_speech:
                return detection.language
            first = first or detection.language
        return first

    async def decode_all(
        self, windows: list[Range], language: str | None, deltas: DeltaJoiner | None
    ) -> None:
        """Answer every window that has no answer in this language yet."""

        async def one(index: int, window: Range) -> None:
            is_timed = self.is_timed or index + 1 < len(windows)
            await self._decode(index, window, language, deltas, is_timed=is_timed)

        await answer_side_by_side(windows, one)

    @property
    def _needs_words(self) -> bool:
        """Segments get their times from words, but not a translation's: it orders them as it likes."""
        options = self.options
        return options.word_timestamps or (options.segment_timestamps and options.task == "transcribe")

    async def _decode(
        self, index: int, window: Range, language: str | None, deltas: DeltaJoiner | None, *, is_timed: bool
    ) -> None:
        key = (window, language)
        item: EncoderItem | None = None
        if key not in self.memory.answers:
            if await self.source.recording.is_silent(window):
                self.memory.answers[key] = SILENCE
            else:
                item = self.detected.pop(window, None) or await self.source.item(window)
                answer = await self.decoder.decode(
                    item,
                    self.options,
                    language=language,
                    draft=self.memory.drafts.get(window[0], ()),
                    lane=self.lane,
                    on_text=None if deltas is None else deltas.feeder(index),
                )
                self.memory.drafts[window[0]] = answer.token_ids
                text = self.decoder.text_of(answer)
                is_echo = await self.source.recording.is_echo(text, previous_text(self.options), window)
                self.memory.answers[key] = SILENCE if is_echo else answer
        answer = self.memory.answers[key]
        if deltas is not None:
            deltas.finish(index, self.decoder.text_of(answer))
        if is_timed and self._needs_words and key not in self.memory.words and answer.token_ids:
            self.memory.words[key] = await self.decoder.words(
                item or await self.source.item(window),
                answer,
                language=language,
                num_samples=window[1] - window[0],
                lane=self.lane,
            )


def _duration_s(decoder: WindowDecoder, windows: list[Range]) -> float:
    return (windows[-1][1] - windows[0][0]) / decoder.features.sampling_rate if windows else 0.0


def _part(
    decoder: WindowDecoder,
    window: Range,
    begin: int,
    memory: WindowMemory,
    options: TranscriptionOptions,
    language: str | None,
) -> Part:
    answer = memory.answers[(window, language)]
    rate = decoder.features.sampling_rate
    offset_s = (window[0] - begin) / rate
    segments = decoder.text.parse(
        answer.token_ids,
        duration_s=(window[1] - window[0]) / rate,
        logprobs=answer.logprobs,
        offset_s=offset_s,
        temperature=options.temperature,
        no_speech_prob=answer.no_speech_prob,
    )
    words = [
        Word(word.word, round(word.start + offset_s, 3), round(word.end + offset_s, 3))
        for word in memory.words.get((window, language), ())
    ]
    return Part(
        text=decoder.text_of(answer),
        segments=retimed(segments, words) if options.task == "transcribe" else segments,
        words=tuple(words) if options.word_timestamps else (),
        logprobs=answer.logprobs,
        num_input_tokens=decoder.num_positions(window[1] - window[0]) + answer.num_prompt,
        num_output_tokens=len(answer.token_ids),
        no_speech_prob=answer.no_speech_prob,
        tokens=tuple(_token_logprobs(decoder, answer)) if options.logprobs else (),
    )


def _token_logprobs(decoder: WindowDecoder, answer: WindowAnswer) -> Iterator[TokenLogProb]:
    for token_id, logprob in zip(answer.token_ids, answer.logprobs, strict=False):
        if decoder.text.is_text(token_id):
            data = decoder.text.tokenizer.token_bytes(token_id)
            yield TokenLogProb(data.decode("utf-8", errors="replace"), data, logprob)
