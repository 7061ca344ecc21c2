"""What one range of a recording holds: asked of the family once, judged, timed, remembered.

Knows no other range and no order of them: `actors/speech/recipe.py` has all of a recording, and
`actors/speech/languages/resolution.py` says in which language a range is asked about. What an answer has to
be to be kept is decided by `media/transcript/answer_guard.py` and `media/transcript/plausibility.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, TypeVar

import msgspec
import trio
from msgspec import UNSET

from ...media.speech.coverage import coverage
from ...media.speech.gate import SPEECH_PROBABILITY
from ...media.transcript.answer_guard import ALIKE_INLINE, is_alike, is_made_of
from ...media.transcript.joining import Part, shifted
from ...media.transcript.language_detection import CLEAR_OTHER
from ...media.transcript.numerals import answer_in_digits, in_digits, in_digits_so_far
from ...media.transcript.plausibility import is_implausible, is_laughter, is_trustworthy
from ...media.transcript.range_answer import DetectedLanguage, Range, RangeAnswer
from ...media.transcript.segments import CUT_INLINE, sentences
from ...media.transcript.silence_filter import silences, without_silent_sentences
from ...media.transcript.word_probabilities import tokens_of_text, with_probabilities
from ...protocols.engine.messages import EncoderItem, Lane, SessionKey
from ...protocols.shared.audio_format import INTERNAL_RATE
from ...protocols.shared.languages import check_language
from ...protocols.transcription.transcript import (
    USUAL_LAYOUT,
    Coverage,
    CueLayout,
    Segment,
    TranscriptionOptions,
    Word,
)
from ..runtime.off_loop import off_loop
from .families.family import RangeRequest, SpeechFamily
from .recording import Recording
from .recording_state import Memory
from .retries.temperature_fallback import best_answer, may_be_replaced

CLEAR_WITH_CONTEXT: Final = 0.7
"""Where the language of a range is less clear behind what was before, which may be in another, it is heard
alone: of 14 turns, each behind others in other languages, 4 were at most 0.56 sure and misheard, the others
at least 0.9; of 180 turns of one language 3 are less sure than this."""
SESSION_SHARE: Final = 0.2
"""Of two languages, how likely that of the session must be to count rather than a doubtful other one."""
SPEECH_PADDING: Final = INTERNAL_RATE // 5
"""Words begin and end so many samples around where voice activity is sure of speech, at most."""
Found = TypeVar("Found", DetectedLanguage, RangeAnswer)


@dataclass(slots=True)
class RangeDecoder:
    """Decodes ranges of one recording. What the memory knows is not decoded again."""

    family: SpeechFamily
    recording: Recording
    memory: Memory
    options: TranscriptionOptions
    lane: Lane
    growing: Range | None
    """The range that may still grow, if any."""
    _asking: dict[Range, trio.Lock] = field(default_factory=lambda: defaultdict(trio.Lock))

    @property
    def context(self) -> str:
        """What the model knows beforehand; only its letters count."""
        return " ".join((*self.options.keywords, self.options.prompt)).strip()

    async def language(self, part: Range) -> DetectedLanguage | None:
        """The language of a range; None if it is silent."""
        async with self._asking[part]:
            if part not in self.memory.detected:
                items = await self._items(part)
                if not items:
                    return None
                known = self.family.facts.languages
                codes = [check_language(each, known, param="languages") for each in self.options.languages]
                request = self._request(part, None, session=self.recording.session(part))
                detected = await self.family.language(items, codes, request)
                if self._follows_context(part) and detected.probability < CLEAR_WITH_CONTEXT:
                    self.memory.transcribe_alone(part)
                    detected = await self.family.language(await self._items(part), codes, request)
                self.memory.detected[part] = self._for_now(part, detected)
                if not detected.is_speech:
                    self.recording.release(part)  # others come first
            return self.memory.detected[part]

    async def with_session(self, part: Range, detected: DetectedLanguage, spoken: str) -> DetectedLanguage:
        """The language of a range, or that of its session where the model doubts and may mean it as well."""
        is_sure = not detected.is_speech or detected.probability >= CLEAR_OTHER
        if is_sure or detected.code == spoken or self.family.facts.language_from != "detection":
            return detected
        codes = (detected.code, spoken)
        found = await self.family.language(await self._items(part), codes, self._request(part, None))
        share = found.probability if found.code == spoken else 1.0 - found.probability
        if share >= SESSION_SHARE:
            detected = replace(detected, code=spoken, probability=share)
            self.memory.detected[part] = detected
        return detected

    async def second_language(self, part: Range, first: str) -> str:
        """The likeliest language of a range but the `first` and those that nobody speaks; that, if there is
        no other."""
        known = self.options.languages or self.family.facts.languages
        codes = [check_language(each, self.family.facts.languages, param="languages") for each in known]
        codes = [code for code in codes if code != first and code not in self.family.facts.odd_languages]
        if not codes or self.family.facts.language_from != "detection":
            return first
        found = await self.family.language(await self._items(part), codes, self._request(part, None))
        return found.code

    async def speech(self, part: Range) -> list[Range]:
        """Where somebody speaks in a range, parted by pauses."""
        if part not in self.memory.regions:
            self.memory.regions[part] = await self.recording.speech(part)
        return self.memory.regions[part]

    async def answer(
        self,
        part: Range,
        language: str | None,
        on_text: Callable[[str], None] | None = None,
        *,
        previous_transcript: str = "",
    ) -> RangeAnswer:
        """What was said in a range, of which a model may know the `previous_transcript`, unless that is known
        already."""
        key = (part, language)
        while key not in self.memory.answers:
            follows_context = self._follows_context(part)
            answer = await self._decode_part(part, language, on_text, previous_transcript)
            if answer.text and self.options.max_silence_s is not None:
                answer = await self._without_unheard(part, language, answer, self.options.max_silence_s)
            if follows_context != self._follows_context(part):
                continue  # its language has been asked for meanwhile
            answer = replace(answer, tokens=tokens_of_text(answer.tokens, answer.text))
            self.memory.answers[key] = answer = self._for_now(part, answer)
            if language is None and answer.language is not None and answer.text:
                self.memory.detected[part] = answer.language
        return self.memory.answers[key]

    async def _items(self, part: Range) -> tuple[EncoderItem, ...]:
        return await self.recording.items(part, follows_context=self._follows_context(part))

    def _follows_context(self, part: Range) -> bool:
        """Whether the range is heard behind what is in front of it: once it grows no more."""
        is_alone = part == self.growing or part in self.memory.halves or self.memory.is_alone(part)
        return not is_alone and self.recording.num_before(part) > 0

    def _for_now(self, part: Range, found: Found) -> Found:
        """What is found out about a range while it is heard alone will have to be asked again."""
        is_for_now = part == self.growing and self.recording.num_before(part) > 0
        return replace(found, is_provisional=True) if is_for_now else found

    @property
    def _may_take_back(self) -> bool:
        """Whether what was said may not be what counts: an answer is held against the speech, where that is
        known, once it is there as a whole."""
        is_compared = self.recording.detects_speech
        return is_compared or may_be_replaced(self.options) or self.options.max_silence_s is not None

    async def _decode_part(
        self,
        part: Range,
        language: str | None,
        on_text: Callable[[str], None] | None,
        previous_transcript: str,
    ) -> RangeAnswer:
        """What was said, asked without a context where that gave only itself, or nothing to rely on."""
        items = await self._items(part)
        if not items:
            return self.family.silence(part[1] - part[0])
        is_half = part in self.memory.halves
        request = self._request(part, language, session=self.recording.session(part))
        request = replace(request, previous_transcript=previous_transcript, has_context=not is_half)
        if on_text is not None and (self._may_take_back or not await self.recording.is_clear(part)):
            on_text = None
        answer = await best_answer(self.family, items, request, on_text)
        known_context = "" if is_half else f"{self.context} {previous_transcript}".strip()
        is_echo = bool(known_context) and await self.recording.is_echo(answer.text, self.context, part)
        is_doubtful = bool(previous_transcript) and not is_trustworthy(answer)
        if known_context and not is_echo and (is_doubtful or is_made_of(answer.text, known_context)):
            answer = await self._decode_without_context(items, request, answer)
        self.memory.previous[part[0]] = answer
        if is_echo or await self._is_invented(answer, part, language):
            return self.family.silence(part[1] - part[0])
        return answer

    async def _decode_without_context(
        self, items: Sequence[EncoderItem], request: RangeRequest, answer: RangeAnswer
    ) -> RangeAnswer:
        """The same without any context, unless `answer` says that, too."""
        request = replace(request, has_context=False, previous_transcript="", previous=None)
        independent = await best_answer(self.family, items, request)
        compare = partial(is_alike, answer.text, independent.text)
        size = len(answer.text) + len(independent.text)
        return answer if await off_loop(compare, size=size, most_inline=ALIKE_INLINE) else independent

    async def answer_without_context(self, part: Range, language: str | None) -> RangeAnswer | None:
        """The answer about a range without any context; None if none was given."""
        has_context = bool(self.context) or self.options.condition_on_previous_text
        items = await self._items(part)
        if not has_context or not items or part in self.memory.halves:
            return None
        request = replace(self._request(part, language), has_context=False, previous=None)
        answer = await best_answer(self.family, items, request)
        return None if await self._is_invented(answer, part, language) else answer

    async def check_named_language(self, part: Range, language: str | None) -> None:
        """Have the model say how sure it is of a language that a client named, where it detects any."""
        if language is None or self.family.facts.language_from != "detection":
            return
        found = await self.family.language(await self._items(part), (), self._request(part, None))
        probability = found.probability if found.code == language else 1.0 - found.probability
        self.memory.detected[part] = replace(found, code=language, probability=probability)

    async def speech_s(self, part: Range) -> float:
        """How long somebody speaks in a range, without pauses."""
        return (
            sum(end - start for start, end in await self.recording.speech(part, min_silence=0))
            / INTERNAL_RATE
        )

    async def _is_invented(self, answer: RangeAnswer, part: Range, language: str | None) -> bool:
        """Whether it is laughter, or no answer one would expect, and hardly anybody speaks."""
        if self.recording.detects_speech and is_laughter(answer):
            return True
        is_named = self.options.language is not None or bool(self.options.languages)
        is_odd = not is_named and language in self.family.facts.odd_languages
        return is_implausible(answer, is_language_odd=is_odd) and not await self.recording.is_clear(part)

    async def _without_unheard(
        self, part: Range, language: str | None, answer: RangeAnswer, silence_s: float
    ) -> RangeAnswer:
        """The answer without what was said in long silences; its words are remembered."""
        speech = await self.recording.speech(
            part, min_silence=round(silence_s * INTERNAL_RATE), threshold=SPEECH_PROBABILITY
        )
        quiet = silences(speech, part, silence_s)
        if not quiet:
            return answer
        words = await self._words(part, language, answer)
        cut = partial(self._sentences, part, answer, words)
        removed = await off_loop(cut, size=len(answer.text), most_inline=CUT_INLINE)
        kept, self.memory.words[part, language] = without_silent_sentences(answer, words, removed, quiet)
        return kept

    async def words(self, part: Range, language: str | None) -> tuple[Word, ...]:
        """When the words of a range's answer were said, from its start, which is remembered."""
        key = (part, language)
        if key not in self.memory.words:
            self.memory.words[key] = await self._words(part, language, self.memory.answers[key])
        return self.memory.words[key]

    async def _words(self, part: Range, language: str | None, answer: RangeAnswer) -> tuple[Word, ...]:
        """When the answer's words were said, from the range's start."""
        items, samples = await self._items(part), await self.recording.samples(part)
        speech = await self.recording.speech(part, padding=SPEECH_PADDING)
        within = [(start - part[0], end - part[0]) for start, end in speech]
        words = await self.family.times(items, answer, self._request(part, language), samples, within)
        return tuple(with_probabilities(words, answer.tokens))

    async def time(self, part: Range, language: str | None) -> None:
        """Find when the answer's words were said, if that is asked for; segments need it, too."""
        options, key = self.options, (part, language)
        is_wanted = options.word_timestamps or options.segment_timestamps
        answer = self.memory.answers[key]
        if is_wanted and answer.text:
            await self.words(part, language)
        has_speech = self.recording.detects_speech and bool(await self._items(part))
        if is_wanted and has_speech and key not in self.memory.coverage:
            speech = await self.recording.speech(part, min_silence=0)
            within = [(start - part[0], end - part[0]) for start, end in speech]
            compare = partial(coverage, self.memory.words.get(key, ()), within)
            size = len(answer.text)
            self.memory.coverage[key] = await off_loop(compare, size=size, most_inline=CUT_INLINE)

    def part(self, part: Range, language: str | None, *, offset_s: float) -> Part:
        """The share of the transcript of a range that begins at `offset_s` of it. It has been answered."""
        key = (part, language, (part, language) in self.memory.words)
        if key not in self.memory.parts:
            answer, words = self.memory.answers[key[:2]], self.memory.words.get(key[:2], ())
            named = answer.language.code if answer.language is not None else language
            if self.is_in_digits:
                answer, words = answer_in_digits(answer, words, self._written_in(named))
            segments = tuple(
                msgspec.structs.replace(segment, language=named or UNSET)
                for segment in self._sentences(part, answer, words, offset_s, self.options.cue_layout)
            )
            timed = shifted(words, offset_s) if self.options.word_timestamps else ()
            covered = self.memory.coverage.get(key[:2], Coverage())
            self.memory.parts[key] = Part(answer, segments, timed, named, covered)
        return self.memory.parts[key]

    def _sentences(
        self,
        part: Range,
        answer: RangeAnswer,
        words: Sequence[Word],
        offset_s: float = 0.0,
        layout: CueLayout = USUAL_LAYOUT,
    ) -> tuple[Segment, ...]:
        """The answer in pieces, by the times of its words, which count from the range's start."""
        return sentences(
            answer,
            words,
            token_ids=self.family.text_tokens(answer),
            bytes_of=self.family.facts.bytes_of,
            start_s=offset_s,
            duration_s=(part[1] - part[0]) / INTERNAL_RATE,
            layout=layout,
        )

    @property
    def is_in_digits(self) -> bool:
        """Whether numbers are written in digits."""
        return self.options.numerals == "digits"

    def written(self, text: str, language: str | None) -> str:
        """What was said in a language as it is shown."""
        return in_digits(text, self._written_in(language)) if self.is_in_digits else text

    def written_so_far(self, text: str, language: str | None) -> str:
        """Of a text that grows what is shown, which stays."""
        return in_digits_so_far(text, self._written_in(language)) if self.is_in_digits else text

    def _written_in(self, language: str | None) -> str | None:
        return "en" if self.options.task == "translate" else language

    def _request(
        self, part: Range, language: str | None, *, session: SessionKey | None = None
    ) -> RangeRequest:
        num_samples = part[1] - part[0]
        return RangeRequest(
            options=self.options,
            num_samples=num_samples,
            lane=self.lane,
            language=language,
            previous=self.memory.previous.get(part[0]),
            may_grow=part == self.growing,
            session=session,
            most_s=num_samples / INTERNAL_RATE if self.recording.detects_speech else math.inf,
        )
