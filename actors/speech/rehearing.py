"""A doubtful range is transcribed again: without context, then in halves, each in its own language.

What makes an answer doubtful, and others better, is in `actors/speech/doubts.py`; `recipe.py` asks for each
range that grows no more, so files and live finals are treated alike. A range is cut at the best pause of its
middle half, and halves that are still doubtful are cut again. The first answer stays where none is better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from ...protocols.audio import INTERNAL_RATE
from ...protocols.transcript import Doubt
from ..kernel.nursery import all_of
from ..kernel.off_loop import off_loop
from .asking import Asker
from .doubts import MEASURED_INLINE, doubt_of, is_better, may_gain_by_cuts
from .family import Range, RangeAnswer
from .languages import CLEAR_OTHER, Piece
from .plausibility import mean_logprob

LEAST_HALF: Final = INTERNAL_RATE
"""Samples of the shortest half: models make little of half a word."""
MOST_CUTS: Final = 3
"""Times that a range is halved: half a minute in pieces of 4 s."""
LEAST_LIKELY: Final = 0.3
"""Probability of another language from which on a half is answered in it as well as in that of the whole."""

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Rehearer:
    """Second questions about the ranges of one recording; its memory keeps what came of them."""

    asker: Asker
    is_language_found: bool
    """Whether languages are detected."""

    async def pieces(self, part: Range, language: str | None) -> tuple[Piece, ...]:
        """The pieces whose answers count for a range that has been answered: mostly the range itself."""
        piece, memory = (part, language), self.asker.memory
        if part == self.asker.growing or not self.asker.recording.hears_speech:
            return (piece,)
        if piece not in memory.pieces:
            memory.pieces[piece] = await self._again(piece, MOST_CUTS)
        return memory.pieces[piece]

    async def _again(self, piece: Piece, num_cuts: int) -> tuple[Piece, ...]:
        asker, (part, language) = self.asker, piece
        answer = asker.memory.answers[piece]
        speech_s = await asker.speech_s(part) if answer.text else 0.0
        doubt = await self._doubt(answer, speech_s)
        is_half = num_cuts < MOST_CUTS
        if doubt is None or (doubt == "language" and is_half):
            return (piece,)
        if not is_half:
            answer = await self._untold(piece, answer, doubt, speech_s)
            doubt = await self._doubt(answer, speech_s)
            if not self.is_language_found:
                await asker.check_named_language(part, language)
        if doubt is None or not num_cuts or part[1] - part[0] < 2 * LEAST_HALF:
            return (piece,)
        halves = await self._halves(piece)
        if may_gain_by_cuts(doubt, answer, speech_s) or await self._is_better(doubt, piece, halves, speech_s):
            deeper = await all_of(partial(self._again, num_cuts=num_cuts - 1), halves)
            halves = [each for found in deeper for each in found]
        if not await self._is_better(doubt, piece, halves, speech_s):
            return (piece,)
        asker.memory.doubts[part] = doubt
        return tuple(halves)

    async def _untold(self, piece: Piece, answer: RangeAnswer, doubt: Doubt, speech_s: float) -> RangeAnswer:
        """The answer without the context that it was given, if that is better."""
        untold = await self.asker.untold(*piece)
        if untold is None:
            return answer
        compare = partial(is_better, doubt, answer, [untold], speech_s)
        if not await _measured(compare, answer, untold):
            return answer
        self.asker.memory.replace(piece, untold, doubt)
        return untold

    async def _halves(self, piece: Piece) -> list[Piece]:
        """Both halves of a piece, answered each in its language."""
        (start, end), language = piece
        cut = await self.asker.recording.cut((start, end))
        halves = ((start, cut), (cut, end))
        self.asker.memory.halves.update(halves)
        return await all_of(partial(self._answered, language=language), halves)

    async def _answered(self, half: Range, language: str | None) -> Piece:
        """A half, answered in the language of the whole or in its own, in which the model is surer."""
        codes = [language]
        if self.is_language_found and language is not None:
            found = await self.asker.language(half)
            if found is not None and found.code != language and found.probability >= LEAST_LIKELY:
                is_clear = found.is_speech and found.probability >= CLEAR_OTHER
                codes = [found.code] if is_clear else [language, found.code]
        answers = {code: await self.asker.answer(half, code) for code in codes}
        return half, max(codes, key=lambda code: (bool(answers[code].text), mean_logprob(answers[code])))

    async def _doubt(self, answer: RangeAnswer, speech_s: float) -> Doubt | None:
        measure = partial(doubt_of, answer, speech_s, is_language_found=self.is_language_found)
        return await _measured(measure, answer)

    async def _is_better(self, doubt: Doubt, piece: Piece, others: Sequence[Piece], speech_s: float) -> bool:
        answers = self.asker.memory.answers
        found = [answers[other] for other in others]
        is_other = any(language != piece[1] for _, language in others)
        compare = partial(is_better, doubt, answers[piece], found, speech_s, is_other=is_other)
        return await _measured(compare, answers[piece], *found)


async def _measured(measure: Callable[[], _T], *answers: RangeAnswer) -> _T:
    """What comes of looking at the texts of answers."""
    size = sum(len(answer.text) for answer in answers)
    return await off_loop(measure, size=size, most_inline=MEASURED_INLINE)
