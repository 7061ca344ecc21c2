"""The one recipe for speech: the language is found once, ranges are answered side by side, and joined.

Files and live turns differ only in the recording they give and in what is remembered between calls
(`Memory`), so a live turn's final transcript is the offline one by construction; models differ only in how
they answer (`actors/speech/family.py`). Files: `actors/speech/transcriber.py`. Live: `actors/speech/live.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from ...protocols.audio import INTERNAL_RATE
from ...protocols.messages import Lane, SessionKey
from ...protocols.transcript import Transcript, TranscriptionOptions, Word
from ..kernel.nursery import open_work
from .family import DetectedLanguage, Range, RangeAnswer, RangeRequest, SpeechFamily, language_code
from .joining import DeltaJoiner, Part, joined, separator, shifted
from .plausibility import is_implausible
from .recording import Recording

RANGES_AT_ONCE: Final = 8
"""Ranges of one recording in hand at once: enough to fill the engine's batches, few enough to share it."""


@dataclass(slots=True)
class Memory:
    """What is already known about ranges by where they lie; anything forgotten is computed again."""

    detected: dict[Range, DetectedLanguage] = field(default_factory=dict)
    answers: dict[tuple[Range, str | None], RangeAnswer] = field(default_factory=dict)
    """By range and the language that was asked for."""
    words: dict[tuple[Range, str | None], tuple[Word, ...]] = field(default_factory=dict)
    parts: dict[tuple[Range, str | None, bool], Part] = field(default_factory=dict)
    """By range, language, and whether it is timed."""
    previous: dict[int, RangeAnswer] = field(default_factory=dict)
    """Last answer about the range that starts at a sample, however long it was."""

    def forget_provisional(self) -> None:
        """Forget what was answered about ranges that might grow and did not, but for their last answers."""
        self.detected = {key: value for key, value in self.detected.items() if not value.is_provisional}
        passed = {key for key, value in self.answers.items() if value.is_provisional}
        self.answers = {key: value for key, value in self.answers.items() if key not in passed}
        self.words = {key: value for key, value in self.words.items() if key not in passed}
        self.parts = {key: value for key, value in self.parts.items() if key[:2] not in passed}

    def keep_only(self, ranges: Sequence[Range]) -> None:
        """Forget every range that is not in `ranges`, and previous answers that start nowhere."""
        kept, starts = set(ranges), {start for start, _ in ranges}
        self.detected = {key: value for key, value in self.detected.items() if key in kept}
        self.answers = {key: value for key, value in self.answers.items() if key[0] in kept}
        self.words = {key: value for key, value in self.words.items() if key[0] in kept}
        self.parts = {key: value for key, value in self.parts.items() if key[0] in kept}
        self.previous = {key: value for key, value in self.previous.items() if key in starts}


@dataclass(frozen=True, slots=True)
class Prior:
    """What a recording's language is expected to be."""

    language: str
    is_pinned: bool
    """It is taken without asking, where a later answer will ask; that makes a partial result differ from the
    final one. Else ranges are answered in it while it is asked for, and again if it was wrong."""


async def transcribe_ranges(
    family: SpeechFamily,
    recording: Recording,
    ranges: list[Range],
    memory: Memory,
    options: TranscriptionOptions,
    *,
    lane: Lane,
    prior: Prior | None = None,
    is_timed: bool = True,
    on_delta: Callable[[str], None] | None = None,
) -> Transcript:
    """Transcribe contiguous ranges of one recording.

    The first range with speech decides the language, unless `options` do. Without `is_timed` the last range,
    which may still grow, has no words, and is one segment. `on_delta` goes
    without a `prior`: what is streamed is not answered again.
    """
    deltas = None
    context = " ".join((*options.keywords, options.prompt)).strip()
    if on_delta is not None:
        deltas = DeltaJoiner(len(ranges), " ", on_delta, context=context)
    work = _Work(family, recording, ranges, memory, options, lane, is_timed, context, deltas)
    named = _named_language(family, options)
    if named is not None:
        languages = _Languages(named)
    elif prior is not None and family.facts.language_from == "detection":
        languages = await work.expect(prior)
    else:
        languages = await work.find(pinned=prior.language if prior is not None and prior.is_pinned else None)
    if deltas is not None:
        deltas.separator = separator(languages.code)
    await work.answer_all(languages)

    def assemble() -> Transcript:
        known = (memory.detected[part] for part in ranges if part in memory.detected)
        return joined(
            [work.part(part, languages.asked(index)) for index, part in enumerate(ranges)],
            language=languages.code or "",
            duration_s=(ranges[-1][1] - ranges[0][0]) / INTERNAL_RATE if ranges else 0.0,
            language_probability=next(
                (each.probability for each in known if each.code == languages.code), 1.0
            ),
        )

    return assemble() if len(ranges) <= RANGES_AT_ONCE else await trio.to_thread.run_sync(assemble)


def _named_language(family: SpeechFamily, options: TranscriptionOptions) -> str | None:
    """The code that needs no asking: the client names it, allows no other, or the model knows no other."""
    facts = family.facts
    if options.language is not None:
        return language_code(facts, options.language, param="language")
    if facts.language_from == "model":
        return facts.languages[0]
    codes = {language_code(facts, each, param="languages") for each in options.languages}
    return codes.pop() if len(codes) == 1 else None


@dataclass(frozen=True, slots=True)
class _Languages:
    """The language of a recording, if any was found."""

    code: str | None
    num_unasked: int = 0
    """So many ranges in front are not asked for it: their answers name it."""

    def asked(self, index: int) -> str | None:
        """What the range is asked for."""
        return self.code if index >= self.num_unasked else None


@dataclass(slots=True)
class _Work:
    """One call of `transcribe_ranges`: the steps that fill its memory."""

    family: SpeechFamily
    recording: Recording
    ranges: list[Range]
    memory: Memory
    options: TranscriptionOptions
    lane: Lane
    is_timed: bool
    context: str
    """What the model knows beforehand; only its letters count."""
    deltas: DeltaJoiner | None

    async def expect(self, prior: Prior) -> _Languages:
        """The languages, of a model that must be asked for them before it answers."""
        expected = _Languages(prior.language)
        if prior.is_pinned:
            return expected
        async with open_work() as nursery:
            nursery.start_soon(self.answer_all, expected)
            languages = await self.find()
            if languages != expected:
                nursery.cancel_scope.cancel()
        return languages

    async def find(self, *, pinned: str | None = None) -> _Languages:
        """Ask, or answer, range by range until one with speech decides; the last one is taken as `pinned`.

        Where nobody speaks in any, what was detected in the first with sound counts. None: all are silent.
        """
        is_in_answer = self.family.facts.language_from == "answer" and not self.options.languages
        fallback: str | None = None
        for index, part in enumerate(self.ranges):
            if pinned is not None and index + 1 == len(self.ranges):
                return _Languages(pinned, index)
            if is_in_answer:
                answer = await self.answer(index, None)
                if answer.text:
                    if answer.language is None:
                        return _Languages(None)
                    self.memory.detected[part] = answer.language
                    return _Languages(answer.language.code, index + 1)
            else:
                detected = await self._detect(part)
                if detected is not None and detected.is_speech:
                    return _Languages(detected.code)
                if detected is not None:
                    fallback = fallback or detected.code
        return _Languages(fallback)

    async def _detect(self, part: Range) -> DetectedLanguage | None:
        """The language of a range; None if it is silent."""
        if part not in self.memory.detected:
            items = await self.recording.items(part)
            if not items:
                return None
            facts = self.family.facts
            codes = [language_code(facts, each, param="languages") for each in self.options.languages]
            request = self._request(part, None, session=self.recording.session(part))
            detected = await self.family.language(items, codes, request)
            self.memory.detected[part] = detected
            if not detected.is_speech:
                self.recording.release(part)  # others come first
        return self.memory.detected[part]

    async def answer_all(self, languages: _Languages) -> None:
        """Answer, and time, every range of which that is not known yet. `RANGES_AT_ONCE`, from the front."""
        limit = trio.CapacityLimiter(RANGES_AT_ONCE)

        async def one(index: int) -> None:
            try:
                language = languages.asked(index)
                await self.answer(index, language)
                if self.is_timed or index + 1 < len(self.ranges):
                    await self._time(self.ranges[index], language)
                self.recording.release(self.ranges[index])
            finally:
                limit.release_on_behalf_of(index)

        # From the front, so that text to stream comes soon; trio begins those of one moment in any order.
        async with open_work() as nursery:
            for index in range(len(self.ranges)):
                await limit.acquire_on_behalf_of(index)
                nursery.start_soon(one, index)

    async def answer(self, index: int, language: str | None) -> RangeAnswer:
        """What was said in a range, unless that is known already."""
        key = (self.ranges[index], language)
        if key not in self.memory.answers:
            self.memory.answers[key] = await self._ask(index, language)
        answer = self.memory.answers[key]
        if self.deltas is not None:
            self.deltas.finish(index, answer.text)
        return answer

    async def _ask(self, index: int, language: str | None) -> RangeAnswer:
        part = self.ranges[index]
        items = await self.recording.items(part)
        if items:
            on_text = None
            if self.deltas is not None and await self.recording.is_clear(part):
                on_text = self.deltas.feeder(index)  # what is not clear may be taken back
            request = self._request(part, language, session=self.recording.session(part))
            answer = await self.family.answer(items, request, on_text)
            self.memory.previous[part[0]] = answer
            is_echo = await self.recording.is_echo(answer.text, self.context, part)
            if not is_echo and not await self._is_invented(answer, part, language):
                return answer
        return self.family.silence(part[1] - part[0])

    async def _is_invented(self, answer: RangeAnswer, part: Range, language: str | None) -> bool:
        """Whether it is no answer one would expect, and hardly anybody speaks."""
        is_named = self.options.language is not None or bool(self.options.languages)
        is_odd = not is_named and language in self.family.facts.odd_languages
        return is_implausible(answer, is_language_odd=is_odd) and not await self.recording.is_clear(part)

    async def _time(self, part: Range, language: str | None) -> None:
        """Find when the answer's words were said, if that is asked for; segments need it, too."""
        options, key = self.options, (part, language)
        is_wanted = options.word_timestamps or options.segment_timestamps
        answer = self.memory.answers[key]
        if is_wanted and answer.text and key not in self.memory.words:
            items, samples = await self.recording.items(part), await self.recording.samples(part)
            request = self._request(part, language)
            self.memory.words[key] = await self.family.times(items, answer, request, samples)

    def part(self, part: Range, language: str | None) -> Part:
        """A range's share of the transcript."""
        key = (part, language, (part, language) in self.memory.words)
        if key not in self.memory.parts:
            answer, words = self.memory.answers[key[:2]], self.memory.words.get(key[:2], ())
            offset_s = (part[0] - self.ranges[0][0]) / INTERNAL_RATE
            request = self._request(part, language)
            segments = self.family.segments(answer, words, request, offset_s=offset_s)
            timed = shifted(words, offset_s) if self.options.word_timestamps else ()
            self.memory.parts[key] = Part(answer, segments, timed)
        return self.memory.parts[key]

    def _request(
        self, part: Range, language: str | None, *, session: SessionKey | None = None
    ) -> RangeRequest:
        return RangeRequest(
            options=self.options,
            num_samples=part[1] - part[0],
            lane=self.lane,
            language=language,
            previous=self.memory.previous.get(part[0]),
            may_grow=not self.is_timed and part == self.ranges[-1],
            session=session,
        )
