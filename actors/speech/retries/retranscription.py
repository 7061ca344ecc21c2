"""A doubtful range is transcribed again: without context, then in halves, each in its own language.

What makes an answer doubtful, and others better, is in `media/transcript/coverage_checks.py`;
`actors/speech/recipe.py` asks for each range that grows no more, so files and live finals are treated alike.
A range is cut at the best pause of its middle half, or else where it is quiet near its middle, and halves
that are still doubtful are cut again. The first answer stays where none is better. What is
said again and again is counted in the sound (`media/speech/repetition.py`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from ....media.transcript.coverage_checks import (
    MEASURED_INLINE,
    SURER,
    doubt_of,
    is_better,
    is_next_to_nothing,
    is_other_text,
    may_be_babble,
    may_gain_by_cuts,
)
from ....media.transcript.language_detection import CLEAR, CLEAR_OTHER, MIN_RANGE, Piece
from ....media.transcript.plausibility import mean_logprob
from ....media.transcript.range_answer import Range, RangeAnswer
from ....media.transcript.repetition import rows
from ....media.transcript.word_probabilities import tokens_of_text
from ....protocols.shared.audio_format import INTERNAL_RATE
from ....protocols.transcription.transcript import Doubt
from ...runtime.nursery import all_of
from ...runtime.off_loop import off_loop
from ..range_decoder import RangeDecoder

LEAST_HALF: Final = INTERNAL_RATE
"""Samples of the shortest half: models make little of half a word."""
LEAST_PAUSE, LONG_PAUSE = INTERNAL_RATE // 10, INTERNAL_RATE // 2
"""Samples of a pause to cut in; of longer ones than the second the one nearest to the middle is the best."""
MOST_OFF_MIDDLE: Final = 0.25
"""Of a range's length."""
MOST_CUTS: Final = 3
"""Times that a range is halved: half a minute in pieces of 4 s."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Retranscriber:
    """Second questions about the ranges of one recording; its memory keeps what came of them."""

    decoder: RangeDecoder
    is_language_found: bool
    """Whether languages are detected."""

    async def pieces(self, part: Range, language: str | None) -> tuple[Piece, ...]:
        """The pieces whose answers count for a range that has been answered: mostly the range itself."""
        piece, memory = (part, language), self.decoder.memory
        if part == self.decoder.growing or not self.decoder.recording.detects_speech:
            return (piece,)
        if piece not in memory.pieces:
            memory.pieces[piece] = await self._again(piece, MOST_CUTS)
        return memory.pieces[piece]

    async def _again(self, piece: Piece, num_cuts: int) -> tuple[Piece, ...]:
        decoder, (part, language) = self.decoder, piece
        await self._count(piece)
        silence = decoder.family.silence(part[1] - part[0])
        answer = decoder.memory.answers[piece]
        speech_s = await decoder.speech_s(part) if answer.text else 0.0
        doubt = await self._doubt(answer, speech_s)
        is_half = num_cuts < MOST_CUTS
        if doubt is None or (doubt == "language" and is_half):
            return (piece,)
        if not is_half:
            answer = await self._untold(piece, answer, doubt, speech_s)
            doubt = await self._doubt(answer, speech_s)
            if not self.is_language_found:
                await decoder.check_named_language(part, language)
        if doubt is not None and not is_half and await self._is_babble(doubt, piece):
            decoder.memory.replace(piece, silence, doubt)
            return (piece,)
        if doubt == "language":
            other = await self._in_its_language(part, language, is_doubted=True)
            if await self._is_better(doubt, piece, [other], speech_s):
                decoder.memory.doubts[part] = doubt
                return (other,)
        if doubt is None or not num_cuts or part[1] - part[0] < 2 * LEAST_HALF:
            return (piece,)
        halves = await self._halves(piece)
        if may_gain_by_cuts(doubt, answer, speech_s) or await self._is_better(doubt, piece, halves, speech_s):
            deeper = await all_of(partial(self._again, num_cuts=num_cuts - 1), halves)
            halves = [each for found in deeper for each in found]
        if await self._is_better(doubt, piece, halves, speech_s):
            decoder.memory.doubts[part] = doubt
            return tuple(halves)
        if is_next_to_nothing(doubt, answer, speech_s):
            decoder.memory.replace(piece, silence, doubt)
        return (piece,)

    async def _count(self, piece: Piece) -> None:
        """Leave out copies of an utterance that the sound does not have; a cut may double one, too."""
        part, memory = piece[0], self.decoder.memory
        answer = memory.answers[piece]
        text = answer.text
        if answer.is_cut:
            return
        find = partial(lambda spoken: list(rows(spoken)), text)
        for row in await off_loop(find, size=len(text), most_inline=MEASURED_INLINE):
            span = None
            if not row.is_all(answer.text):
                span = row.times_s(answer.text, await self.decoder.words(*piece))
                if span is None:
                    continue
            count = await self.decoder.recording.count_copies(part, len(row.ends), span)
            text = text if count is None else row.shortened(text, count)
        if text != answer.text:
            tokens = tokens_of_text(answer.tokens, text)
            memory.replace(piece, replace(answer, text=text, tokens=tokens), "cut")

    async def _untold(self, piece: Piece, answer: RangeAnswer, doubt: Doubt, speech_s: float) -> RangeAnswer:
        """The answer without the context that it was given, if that is better."""
        independent = await self.decoder.answer_without_context(*piece)
        if independent is None:
            return answer
        compare = partial(is_better, doubt, answer, [independent], speech_s)
        if not await _measured(compare, answer, independent):
            return answer
        self.decoder.memory.replace(piece, independent, doubt)
        return independent

    async def _halves(self, piece: Piece) -> list[Piece]:
        """Both halves of a piece, answered each in its language."""
        part, language = piece
        return await all_of(partial(self._in_its_language, language=language), await self._cut(part))

    async def _cut(self, part: Range) -> tuple[Range, Range]:
        """A range in two, each of them to be answered by itself."""
        recording = self.decoder.recording
        cut = middle_pause(part, await recording.speech(part, min_silence=0))
        cut = await recording.cut(part) if cut is None else cut
        halves = (part[0], cut), (cut, part[1])
        self.decoder.memory.halves.update(halves)
        return halves

    async def _is_babble(self, doubt: Doubt, piece: Piece) -> bool:
        """Whether models make up the text: in a crowd, or of voices played backwards, no language is clear.

        Short ranges, and models that detect none, do not tell.
        """
        part, memory = piece[0], self.decoder.memory
        answer, found = memory.answers[piece], memory.detected.get(part)
        if found is None or not may_be_babble(doubt, answer, found):
            return False
        parts = await self._cut(part)
        languages = await all_of(self.decoder.language, parts)
        if any(half is not None and half.probability >= CLEAR for half in languages):
            return False
        halves = await all_of(partial(self.decoder.answer, language=piece[1]), parts)
        return await _measured(partial(is_other_text, answer, halves), answer, *halves)

    async def _in_its_language(self, part: Range, language: str | None, *, is_doubted: bool = False) -> Piece:
        """A range, answered in `language`, or in another one that is clear or in which the model is surer.

        Where the language of an answer `is_doubted` none is clear.
        """
        decoder = self.decoder
        found = None
        if self.is_language_found and language is not None:
            found = await decoder.language(part)
        if found is None or language is None:
            await decoder.answer(part, language)
            return part, language
        if found.is_speech and found.probability >= CLEAR_OTHER and not is_doubted:
            await decoder.answer(part, found.code)
            return part, found.code
        codes = dict.fromkeys((language, found.code, await decoder.second_language(part, found.code)))
        answers = {code: await decoder.answer(part, code) for code in codes}

        is_long = part[1] - part[0] >= MIN_RANGE
        likely = found.code if is_long and not is_doubted else language

        def sureness(code: str) -> tuple[bool, float]:
            bonus = SURER if code == likely else 0.0
            return bool(answers[code].text), mean_logprob(answers[code]) + bonus

        return part, max(codes, key=sureness)

    async def _doubt(self, answer: RangeAnswer, speech_s: float) -> Doubt | None:
        is_translated = self.decoder.options.task == "translate"
        measure = partial(
            doubt_of,
            answer,
            speech_s,
            is_language_found=self.is_language_found,
            is_translated=is_translated,
        )
        return await _measured(measure, answer)

    async def _is_better(self, doubt: Doubt, piece: Piece, others: Sequence[Piece], speech_s: float) -> bool:
        answers = self.decoder.memory.answers
        found = [answers[other] for other in others]
        is_other = any(language != piece[1] for _, language in others)
        compare = partial(is_better, doubt, answers[piece], found, speech_s, is_other=is_other)
        return await _measured(compare, answers[piece], *found)


def middle_pause(part: Range, speech: Sequence[Range]) -> int | None:
    """The middle of a long pause in the middle half of a range, between two regions of its speech."""
    best: tuple[float, int] | None = None
    for (_, start), (end, _) in itertools.pairwise(speech):
        place = (start + end) // 2
        off_middle = abs(2 * place - part[0] - part[1]) / (2 * (part[1] - part[0]))
        if end - start >= LEAST_PAUSE and off_middle <= MOST_OFF_MIDDLE:
            best = max(best or (-1.0, 0), (min(end - start, LONG_PAUSE) / INTERNAL_RATE - off_middle, place))
    return None if best is None else best[1]


async def _measured(measure: Callable[[], _T], *answers: RangeAnswer) -> _T:
    """What comes of looking at the texts of answers."""
    size = sum(len(answer.text) for answer in answers)
    return await off_loop(measure, size=size, most_inline=MEASURED_INLINE)
