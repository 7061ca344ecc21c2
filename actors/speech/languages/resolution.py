"""In which language each range of a recording is asked about: settled in order, asked side by side.

What is asked of a model is `actors/speech/range_decoder.py`'s; which answers make a language clear is decided
by `media/transcript/language_detection.py`. Used by `actors/speech/recipe.py`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import trio

from ....media.transcript.language_detection import (
    MIN_RANGE,
    Piece,
    clear_language,
    cut_at_pauses,
    first_language,
    likely_language,
    merged,
)
from ....media.transcript.range_answer import Range
from ....protocols.shared.languages import check_language
from ....protocols.transcription.transcript import TranscriptionOptions
from ...runtime.nursery import open_work
from ..families.family import SpeechFamily
from ..range_decoder import RangeDecoder


@dataclass(slots=True)
class Settler:
    """The languages of one recording's ranges."""

    decoder: RangeDecoder
    ranges: list[Range]
    named: str | None = None
    """The language of everything, where it needs no asking."""
    spoken: str | None = None
    """What was spoken before the recording: in it is a first range that may still grow, and is short, and one
    whose language is doubtful."""
    pieces: dict[int, tuple[Piece, ...]] = field(default_factory=dict)
    """Of each range, once its languages are settled."""
    _base: str | None = None
    _settled: dict[int, trio.Event] = field(default_factory=lambda: defaultdict(trio.Event))

    @property
    def is_detected(self) -> bool:
        """Whether ranges are asked for their languages before they are answered.

        A model that names the language in its answer is, too, where there are several ranges: each may be in
        another, and what is streamed cannot be taken back.
        """
        if self.named is not None:
            return False
        return not self._is_alone or bool(self.decoder.options.languages)

    @property
    def _is_alone(self) -> bool:
        """Whether a single answer would name the language by itself."""
        return len(self.ranges) == 1 and self.decoder.family.facts.language_from == "answer"

    @property
    def is_answered_ahead(self) -> bool:
        """Whether a range may be answered as expected while it is asked for its language: not where the
        engine keeps one state of a range, and the later question would end the earlier one."""
        return self.is_detected and self.decoder.family.facts.language_from == "detection"

    async def settle(self, index: int, expected: str | None = None) -> None:
        """A range's languages, once those before it are known.

        While they are asked for it is answered as `expected`, if it is not yet known what to expect.
        """
        if index not in self.pieces:
            if expected is not None and self.ranges[index] not in self.decoder.memory.detected:
                self.pieces[index] = await self._find_adjacent(index, expected)
            else:
                self.pieces[index] = await self._find(index)
        self._settled[index].set()

    async def _find_adjacent(self, index: int, expected: str) -> tuple[Piece, ...]:
        part = self.ranges[index]
        async with open_work() as nursery:
            nursery.start_soon(self.decoder.answer, part, expected)
            pieces = await self._find(index)
            if pieces != ((part, expected),):
                nursery.cancel_scope.cancel()
        return pieces

    async def _find(self, index: int) -> tuple[Piece, ...]:
        part = self.ranges[index]
        if not self.is_detected:
            return ((part, self.named),)
        is_short = part[1] - part[0] < MIN_RANGE
        detected = None if is_short and index else await self.decoder.language(part)
        if index:
            await self._settled[index - 1].wait()
        before = self.pieces[index - 1][-1][1] if index else None
        if is_short and index and before is None:
            detected = await self.decoder.language(part)
        if detected is None:
            return ((part, before),)
        if self.spoken is not None and part == self.decoder.growing and is_short and not index:
            return ((part, first_language(detected, self.spoken)),)
        if self.spoken is not None and not index and part != self.decoder.growing:
            detected = await self.decoder.with_session(part, detected, self.spoken)
        clear = detected.code if self._is_alone else clear_language(part, detected)
        if clear is not None and not self._may_change(index):
            return ((part, clear),)
        before = clear or before
        pieces = [part]
        if detected.is_speech and part != self.decoder.growing:
            pieces = cut_at_pauses(part, await self.decoder.speech(part))
        settled: list[Piece] = []
        for piece in pieces:
            own = likely_language(piece, await self.decoder.language(piece) if len(pieces) > 1 else detected)
            before = own or before or await self._base_language()
            settled.append((piece, before))
        return merged(settled)

    def _may_change(self, index: int) -> bool:
        """Whether a range may hold several languages though one is clear, as that of its first sentences
        mostly is: the client names several, or several were spoken before."""
        spoken = {language for each in range(index) for _, language in self.pieces[each]} - {None}
        return len(set(self.decoder.options.languages)) > 1 or len(spoken) > 1

    async def _base_language(self) -> str | None:
        """The language of the first range with speech; where nobody speaks, of the first with sound.

        None: all are silent, or answers name none."""
        if self._base is None:
            for part in self.ranges:
                detected = await self.decoder.language(part)
                if detected is not None:
                    self._base = detected.code if detected.is_speech else self._base or detected.code
                    if detected.is_speech:
                        break
        return self._base


def named_language(family: SpeechFamily, options: TranscriptionOptions) -> str | None:
    """The code that needs no asking: the client names it, allows no other, or the model knows no other."""
    facts = family.facts
    if options.language is not None:
        return check_language(options.language, facts.languages)
    if facts.language_from == "model":
        return facts.languages[0]
    codes = {check_language(each, facts.languages, param="languages") for each in options.languages}
    return codes.pop() if len(codes) == 1 else None
