"""The one recipe for speech: languages are settled, ranges are answered side by side, or in order where each
shall know what was said before, and joined.

Files and live turns differ only in the recording they give and in what is remembered between calls
(`Memory`), so a live turn's final transcript is the offline one by construction; models differ only in how
they answer (`actors/speech/families/family.py`). One range: `range_decoder.py`. Languages:
`actors/speech/languages/resolution.py`. Who calls: files in `transcriber.py`, live turns in `live.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from ...media.transcript.joining import DeltaJoiner, Part, Passage, PassageJoiner, join_texts, joined
from ...media.transcript.language_detection import Piece
from ...media.transcript.plausibility import is_trustworthy
from ...media.transcript.range_answer import Range
from ...media.transcript.segments import CUT_INLINE
from ...protocols.engine.messages import Lane
from ...protocols.shared.audio_format import INTERNAL_RATE
from ...protocols.transcription.transcript import (
    Doubt,
    Retranscription,
    SpokenText,
    TokenLogProb,
    Transcript,
    TranscriptionOptions,
)
from ..runtime.compute_pool import compute
from ..runtime.nursery import open_work
from ..runtime.off_loop import off_loop
from .families.family import SpeechFamily
from .languages.resolution import Settler, named_language
from .range_decoder import RangeDecoder
from .recording import Recording
from .recording_state import Memory
from .retries.retranscription import Retranscriber

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
    spoken: str | None = None
    """See `Settler.spoken`."""


async def transcribe_ranges(
    family: SpeechFamily,
    recording: Recording,
    ranges: list[Range],
    memory: Memory,
    options: TranscriptionOptions,
    *,
    lane: Lane,
    prior: Prior | None = None,
    whole: Range | None = None,
    is_timed: bool = True,
    on_delta: Callable[[str], None] | None = None,
    on_passage: Callable[[Passage], None] | None = None,
) -> Transcript:
    """Transcribe ranges of one recording, which are all of it, or else parts of `whole`.

    Where `options` name no language each range is asked for its own, if that is clear (see
    `media/transcript/language_detection.py`); an answer about a single one may name it by itself. Without
    `is_timed` the last range, which may still grow, has no words, and is one segment. `on_delta`, and
    `on_passage`, which gets the transcript's segments and words a range at a time, go without a `prior`: what
    is streamed is not answered again.
    """
    growing = ranges[-1] if ranges and not is_timed else None
    decoder = RangeDecoder(family, recording, memory, options, lane, growing)
    deltas = None
    if on_delta is not None:
        deltas = DeltaJoiner(len(ranges), on_delta, context=decoder.context, written=decoder.written_so_far)
    settler = Settler(decoder, ranges, named_language(family, options))
    begin, end = whole or ((ranges[0][0], ranges[-1][1]) if ranges else (0, 0))
    work = _Work(decoder, settler, Retranscriber(decoder, settler.is_detected), begin, deltas, on_passage)
    await work.answer_all(prior)

    def assemble() -> Transcript:
        pieces = [piece for index in range(len(ranges)) for piece in work.pieces[index]]
        parts = [part for index in range(len(ranges)) for part in work.parts(index)]
        language = _main_language(parts, pieces)
        known = (memory.detected.get(part) for part in (*ranges, *(part for part, _ in pieces)))
        again = _retranscribed(memory, [part for part, _ in pieces])
        return joined(
            parts,
            language=language,
            duration_s=(end - begin) / INTERNAL_RATE,
            language_probability=next(
                (each.probability for each in known if each is not None and each.code == language), 1.0
            ),
            retranscribed=(
                Retranscription((first - begin) / INTERNAL_RATE, (last - begin) / INTERNAL_RATE, reason)
                for (first, last), reason in again
            ),
        )

    answered = (memory.answers[piece] for pieces in work.pieces.values() for piece in pieces)
    size = sum(len(answer.text) for answer in answered)
    return await off_loop(assemble, size=size, most_inline=CUT_INLINE)


def _retranscribed(memory: Memory, parts: Sequence[Range]) -> list[tuple[Range, Doubt]]:
    """What was transcribed again, if that counts for these parts of a recording; no part of it by itself."""
    starts, ends = {start for start, _ in parts}, {end for _, end in parts}
    found: list[tuple[Range, Doubt]] = []
    for part, reason in sorted(memory.doubts.items(), key=lambda each: (each[0][0], -each[0][1])):
        is_inner = bool(found) and part[1] <= found[-1][0][1]
        if part[0] in starts and part[1] in ends and not is_inner:
            found.append((part, reason))
    return found


def _main_language(parts: Sequence[Part], pieces: Sequence[Piece]) -> str:
    """The language of most of what was said, else the first that was asked for, if any."""
    shares: dict[str, int] = {}
    for decoded, ((start, end), _) in zip(parts, pieces, strict=True):
        if decoded.answer.text and decoded.language:
            shares[decoded.language] = shares.get(decoded.language, 0) + end - start
    requested = next((language for _, language in pieces if language), "")
    return max(shares, key=lambda code: shares[code], default=requested)


@dataclass(slots=True)
class _Work:
    """One call of `transcribe_ranges`: the order in which its memory is filled."""

    decoder: RangeDecoder
    settler: Settler
    retranscriber: Retranscriber
    begin: int
    """Where the recording begins."""
    deltas: DeltaJoiner | None
    on_passage: Callable[[Passage], None] | None
    pieces: dict[int, tuple[Piece, ...]] = field(default_factory=dict)
    """Of each answered range, those whose answers count."""
    _passages: PassageJoiner = field(default_factory=PassageJoiner)
    _timed: dict[int, Sequence[Part]] = field(default_factory=dict)
    """Parts that wait for those of the ranges before them."""
    _num_passed: int = 0
    """Ranges whose passages are told."""
    _before: str = ""
    """What was said last, where the next range shall know it."""
    _before_in: str | None = None
    """The language of that."""
    _answered: dict[int, trio.Event] = field(default_factory=lambda: defaultdict(trio.Event))

    @property
    def is_in_order(self) -> bool:
        """Whether each range waits for what was said before it."""
        return (
            self.decoder.options.condition_on_previous_text and self.decoder.family.facts.takes_previous_text
        )

    def _feeder(self, index: int, language: str | None) -> Callable[[str], None] | None:
        """Where the text of a range goes while it grows; in digits only where its language is known."""
        is_held = self.decoder.is_in_digits and language is None
        return None if self.deltas is None or is_held else self.deltas.feeder(index, language)

    async def answer_all(self, prior: Prior | None) -> None:
        """Answer, and time, every range of which that is not known yet. `RANGES_AT_ONCE`, from the front."""
        limit = trio.CapacityLimiter(RANGES_AT_ONCE)
        ranges = self.settler.ranges

        async def one(index: int) -> None:
            try:
                await self._settle(index, prior if index + 1 == len(ranges) else None)
                if index and self.is_in_order:
                    await self._answered[index - 1].wait()
                await self._answer_pieces(index)
                self._answered[index].set()
                for piece in self.pieces[index] if ranges[index] != self.decoder.growing else ():
                    await self.decoder.time(*piece)
                if self.on_passage is not None:
                    self._timed[index] = await compute(self.parts, index)
                    await self._pass_on(self.on_passage)
                for (start, _), _ in self.pieces[index]:
                    self.decoder.recording.release((start, ranges[index][1]))
            finally:
                limit.release_on_behalf_of(index)

        # From the front, so that text to stream comes soon; trio begins those of one moment in any order.
        async with open_work() as nursery:
            for index in range(len(ranges)):
                await limit.acquire_on_behalf_of(index)
                nursery.start_soon(one, index)

    def parts(self, index: int) -> list[Part]:
        """What an answered range, or each of its pieces, is of the transcript."""
        return [
            self.decoder.part(part, language, offset_s=(part[0] - self.begin) / INTERNAL_RATE)
            for part, language in self.pieces[index]
        ]

    async def _pass_on(self, on_passage: Callable[[Passage], None]) -> None:
        while self._num_passed in self._timed:
            for part in self._timed.pop(self._num_passed):
                on_passage(self._passages.push(part))
            self._num_passed += 1
            await trio.lowlevel.checkpoint()  # one that was late has let all behind it wait

    async def _settle(self, index: int, prior: Prior | None) -> None:
        settler = self.settler
        expected = None
        if prior is not None and settler.named is None:
            if prior.is_pinned:
                settler.pieces[index] = ((settler.ranges[index], prior.language),)
            elif settler.is_answered_ahead and not self.is_in_order:
                expected = prior.language
            settler.spoken = prior.spoken
        await settler.settle(index, expected)

    async def _answer_pieces(self, index: int) -> None:
        pieces = self.settler.pieces[index]
        feeder = self._feeder(index, pieces[0][1]) if len(pieces) == 1 and not self._before else None
        texts: list[tuple[str, str | None]] = []
        tokens: list[TokenLogProb] = []
        counted: list[Piece] = []
        for number, (part, language) in enumerate(pieces, 1):
            if language != self._before_in:
                self._before, self._before_in = "", language
            await self.decoder.answer(part, language, feeder, previous_transcript=self._before)
            for piece in await self.retranscriber.pieces(part, language):
                answer = self.decoder.memory.answers[piece]
                texts.append((answer.text, piece[1] if answer.language is None else answer.language.code))
                tokens += answer.tokens if self.decoder.options.logprobs else ()
                if self.is_in_order and answer.text:
                    text = f"{self._before} {answer.text}"[-MAX_CONTEXT:].strip()
                    self._before = text if is_trustworthy(answer) else ""
                counted.append(piece)
            if self.deltas is not None:
                show = self.deltas.finish if number == len(pieces) else self.deltas.grow
                show(index, SpokenText(join_texts(self.decoder.written(*each) for each in texts), tokens))
        self.pieces[index] = tuple(counted)
