"""The one recipe for speech: languages are found, ranges are answered side by side, or in order where each
shall know what was said before, and joined.

Files and live turns differ only in the recording they give and in what is remembered between calls
(`Memory`), so a live turn's final transcript is the offline one by construction; models differ only in how
they answer (`actors/speech/family.py`). Files: `actors/speech/transcriber.py`. Live: `actors/speech/live.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec
import trio
from msgspec import UNSET

from ...protocols.audio import INTERNAL_RATE
from ...protocols.languages import check_language
from ...protocols.messages import EncoderItem, Lane, SessionKey
from ...protocols.transcript import Transcript, TranscriptionOptions
from ..kernel.nursery import open_work
from .answer_guard import is_alike, is_made_of
from .family import DetectedLanguage, Range, RangeAnswer, RangeRequest, SpeechFamily
from .joining import DeltaJoiner, Part, join_texts, joined, shifted
from .languages import MIN_RANGE, Piece, clear_language, cut_at_pauses, likely_language, merged
from .memory import Memory
from .plausibility import is_implausible, is_trustworthy
from .recording import Recording

RANGES_AT_ONCE: Final = 8
"""Ranges of one recording in hand at once: enough to fill the engine's batches, few enough to share it."""
MAX_CONTEXT: Final = 1500
"""Characters of what was said before; models take the last of them that they have room for."""


@dataclass(frozen=True, slots=True)
class Prior:
    """What a recording's language is expected to be."""

    language: str
    is_pinned: bool
    """The last range is answered in it without asking, where a later answer will ask; that makes a partial
    result differ from the final one. Else it is answered in it while it is asked for, and again if it was
    wrong."""


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

    Where `options` name no language each range is asked for its own, if that is clear (see
    `actors/speech/languages.py`); of a model whose answers name it the first range with speech decides.
    Without `is_timed` the last range, which may still grow, has no words, and is one segment. `on_delta`
    goes without a `prior`: what is streamed is not answered again.
    """
    deltas = None
    context = " ".join((*options.keywords, options.prompt)).strip()
    if on_delta is not None:
        deltas = DeltaJoiner(len(ranges), on_delta, context=context)
    work = _Work(family, recording, ranges, memory, options, lane, is_timed, context, deltas)
    work.named = _named_language(family, options)
    if work.named is None and family.facts.language_from == "answer":
        await work.find_in_answers(pinned=prior.language if prior is not None and prior.is_pinned else None)
    await work.answer_all(prior)

    def assemble() -> Transcript:
        pieces = [piece for index in range(len(ranges)) for piece in work.pieces[index]]
        parts = [work.part(*piece) for piece in pieces]
        language = _main_language(parts, pieces)
        known = (memory.detected.get(part) for part in (*ranges, *(part for part, _ in pieces)))
        return joined(
            parts,
            language=language,
            duration_s=(ranges[-1][1] - ranges[0][0]) / INTERNAL_RATE if ranges else 0.0,
            language_probability=next(
                (each.probability for each in known if each is not None and each.code == language), 1.0
            ),
        )

    return assemble() if len(ranges) <= RANGES_AT_ONCE else await trio.to_thread.run_sync(assemble)


def _main_language(parts: Sequence[Part], pieces: Sequence[Piece]) -> str:
    """The language of most of what was said, else the first that was asked for, if any."""
    shares: dict[str, int] = {}
    for said, ((start, end), _) in zip(parts, pieces, strict=True):
        if said.answer.text and said.language:
            shares[said.language] = shares.get(said.language, 0) + end - start
    asked = next((language for _, language in pieces if language), "")
    return max(shares, key=lambda code: shares[code], default=asked)


def _named_language(family: SpeechFamily, options: TranscriptionOptions) -> str | None:
    """The code that needs no asking: the client names it, allows no other, or the model knows no other."""
    facts = family.facts
    if options.language is not None:
        return check_language(options.language, facts.languages)
    if facts.language_from == "model":
        return facts.languages[0]
    codes = {check_language(each, facts.languages, param="languages") for each in options.languages}
    return codes.pop() if len(codes) == 1 else None


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
    named: str | None = None
    """The language of everything, where it needs no asking."""
    pieces: dict[int, tuple[Piece, ...]] = field(default_factory=dict)
    """Of each range, once its languages are settled."""
    _base: str | None = None
    _before: str = ""
    """What was said last, where the next range shall know it."""
    _settled: dict[int, trio.Event] = field(default_factory=lambda: defaultdict(trio.Event))
    _answered: dict[int, trio.Event] = field(default_factory=lambda: defaultdict(trio.Event))
    _asking: dict[Range, trio.Lock] = field(default_factory=lambda: defaultdict(trio.Lock))

    @property
    def is_detected(self) -> bool:
        """Whether ranges are asked for their languages before they are answered."""
        if self.named is not None:
            return False
        return self.family.facts.language_from == "detection" or bool(self.options.languages)

    async def find_in_answers(self, *, pinned: str | None = None) -> None:
        """Answer range by range until one names its language, which is that of all behind it; the last one
        is taken as `pinned`. A model that may choose among a few is asked before."""
        for index, part in enumerate(self.ranges):
            if pinned is not None and index + 1 == len(self.ranges):
                self.named = pinned
                return
            if self.options.languages:
                detected = await self._detect(part)
                if detected is not None and detected.is_speech:
                    self.named = detected.code
                    return
                continue
            answer = await self._answer(part, None, self._feeder(index, None))
            self.pieces[index] = ((part, None),)
            if answer.text:
                if answer.language is not None:
                    self.memory.detected[part] = answer.language
                    self.named = answer.language.code
                return

    async def base_language(self) -> str | None:
        """The language of the first range with speech; where nobody speaks, of the first with sound.

        None: all are silent, or answers name none."""
        if self._base is None and self.is_detected:
            for part in self.ranges:
                detected = await self._detect(part)
                if detected is not None:
                    self._base = detected.code if detected.is_speech else self._base or detected.code
                    if detected.is_speech:
                        break
        return self._base

    async def _detect(self, part: Range) -> DetectedLanguage | None:
        """The language of a range; None if it is silent."""
        async with self._asking[part]:
            if part not in self.memory.detected:
                items = await self.recording.items(part)
                if not items:
                    return None
                known = self.family.facts.languages
                codes = [check_language(each, known, param="languages") for each in self.options.languages]
                request = self._request(part, None, session=self.recording.session(part))
                detected = await self.family.language(items, codes, request)
                self.memory.detected[part] = detected
                if not detected.is_speech:
                    self.recording.release(part)  # others come first
            return self.memory.detected[part]

    async def _settle(self, index: int) -> tuple[Piece, ...]:
        """A range's languages, once those before it are known."""
        part = self.ranges[index]
        if not self.is_detected:
            return self.pieces.get(index, ((part, self.named),))
        is_short = part[1] - part[0] < MIN_RANGE
        detected = None if is_short and index else await self._detect(part)
        if index:
            await self._settled[index - 1].wait()
        before = self.pieces[index - 1][-1][1] if index else None
        if is_short and index and before is None:
            detected = await self._detect(part)
        if detected is None:
            return ((part, before),)
        clear = clear_language(part, detected)
        if clear is not None:
            return ((part, clear),)
        pieces = [part]
        if detected.is_speech and (self.is_timed or index + 1 < len(self.ranges)):
            pieces = cut_at_pauses(part, await self.recording.speech(part))
        settled: list[Piece] = []
        for piece in pieces:
            own = likely_language(piece, await self._detect(piece) if len(pieces) > 1 else detected)
            before = own or before or await self.base_language()
            settled.append((piece, before))
        return merged(settled)

    async def _settle_ahead(self, index: int, expected: str) -> tuple[Piece, ...]:
        """A range's languages, while it is being answered as expected."""
        part = self.ranges[index]
        async with open_work() as nursery:
            nursery.start_soon(self._answer, part, expected)
            pieces = await self._settle(index)
            if pieces != ((part, expected),):
                nursery.cancel_scope.cancel()
        return pieces

    async def answer_all(self, prior: Prior | None) -> None:
        """Answer, and time, every range of which that is not known yet. `RANGES_AT_ONCE`, from the front."""
        limit = trio.CapacityLimiter(RANGES_AT_ONCE)
        last = len(self.ranges) - 1

        async def one(index: int) -> None:
            try:
                part = self.ranges[index]
                if prior is not None and self.is_detected and index == last:
                    if prior.is_pinned:
                        self.pieces[index] = ((part, prior.language),)
                    elif part not in self.memory.detected and not self._is_in_order:
                        self.pieces[index] = await self._settle_ahead(index, prior.language)
                if index not in self.pieces:
                    self.pieces[index] = await self._settle(index)
                self._settled[index].set()
                if index and self._is_in_order:
                    await self._answered[index - 1].wait()
                await self._answer_pieces(index)
                self._answered[index].set()
                for piece in self.pieces[index] if self.is_timed or index < last else ():
                    await self._time(*piece)
                for (start, _), _ in self.pieces[index]:
                    self.recording.release((start, part[1]))
            finally:
                limit.release_on_behalf_of(index)

        # From the front, so that text to stream comes soon; trio begins those of one moment in any order.
        async with open_work() as nursery:
            for index in range(len(self.ranges)):
                await limit.acquire_on_behalf_of(index)
                nursery.start_soon(one, index)

    @property
    def _is_in_order(self) -> bool:
        return self.options.condition_on_previous_text and self.family.facts.takes_previous_text

    async def _answer_pieces(self, index: int) -> None:
        pieces = self.pieces[index]
        feeder = self._feeder(index, pieces[0][1]) if len(pieces) == 1 and not self._before else None
        texts: list[tuple[str, str | None]] = []
        for part, language in pieces:
            if texts and language != texts[-1][1]:
                self._before = ""
            answer = await self._answer(part, language, feeder)
            texts.append((answer.text, language if answer.language is None else answer.language.code))
            if self._is_in_order and answer.text:
                said = f"{self._before} {answer.text}"[-MAX_CONTEXT:].strip()
                self._before = said if is_trustworthy(answer) else ""
        if self.deltas is not None:
            self.deltas.finish(index, join_texts(texts), texts[0][1], texts[-1][1])

    def _feeder(self, index: int, language: str | None) -> Callable[[str], None] | None:
        return None if self.deltas is None else self.deltas.feeder(index, language)

    async def _answer(
        self, part: Range, language: str | None, on_text: Callable[[str], None] | None = None
    ) -> RangeAnswer:
        """What was said in a range, unless that is known already."""
        key = (part, language)
        if key not in self.memory.answers:
            self.memory.answers[key] = await self._ask(part, language, on_text)
        return self.memory.answers[key]

    async def _ask(
        self, part: Range, language: str | None, on_text: Callable[[str], None] | None
    ) -> RangeAnswer:
        """What was said, asked without a context where that gave only itself, or nothing to rely on."""
        items = await self.recording.items(part)
        if not items:
            return self.family.silence(part[1] - part[0])
        request = self._request(part, language, session=self.recording.session(part))
        request = replace(request, before=self._before)
        if on_text is not None and not await self.recording.is_clear(part):
            on_text = None  # what is not clear may be taken back
        answer = await self.family.answer(items, request, on_text)
        is_echo = await self.recording.is_echo(answer.text, self.context, part)
        is_doubtful = bool(self._before) and not is_trustworthy(answer)
        if not is_echo and (is_doubtful or is_made_of(answer.text, f"{self.context} {self._before}")):
            answer = await self._ask_alone(items, request, answer)
        self.memory.previous[part[0]] = answer
        if is_echo or await self._is_invented(answer, part, language):
            return self.family.silence(part[1] - part[0])
        return answer

    async def _ask_alone(
        self, items: Sequence[EncoderItem], request: RangeRequest, answer: RangeAnswer
    ) -> RangeAnswer:
        """The same without any context, unless `answer` says that, too."""
        options = msgspec.structs.replace(request.options, prompt="", keywords=())
        alone = await self.family.answer(items, replace(request, options=options, before="", previous=None))
        return answer if is_alike(answer.text, alone.text) else alone

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
            named = answer.language.code if answer.language is not None else language
            segments = tuple(
                msgspec.structs.replace(segment, language=named or UNSET)
                for segment in self.family.segments(answer, words, request, offset_s=offset_s)
            )
            timed = shifted(words, offset_s) if self.options.word_timestamps else ()
            self.memory.parts[key] = Part(answer, segments, timed, named)
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
