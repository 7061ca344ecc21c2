"""What is known of a recording between two questions about it. Used by `actors/speech/recipe.py`."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...media.transcript.joining import Part
from ...media.transcript.language_detection import Piece
from ...media.transcript.range_answer import DetectedLanguage, Range, RangeAnswer
from ...protocols.transcription.transcript import Coverage, Doubt, Word


@dataclass(slots=True)
class Memory:
    """What is already known about ranges by where they lie; anything forgotten is computed again."""

    detected: dict[Range, DetectedLanguage] = field(default_factory=dict)
    answers: dict[tuple[Range, str | None], RangeAnswer] = field(default_factory=dict)
    """By range and the language that was asked for."""
    words: dict[tuple[Range, str | None], tuple[Word, ...]] = field(default_factory=dict)
    parts: dict[tuple[Range, str | None, bool], Part] = field(default_factory=dict)
    """By range, language, and whether it is timed."""
    regions: dict[Range, list[Range]] = field(default_factory=dict)
    """Where somebody speaks in a range."""
    alone: set[Range] = field(default_factory=set)
    """Ranges that are heard alone, though there is something in front of them."""
    pieces: dict[Piece, tuple[Piece, ...]] = field(default_factory=dict)
    """Of a range that grows no more, and the language it was asked for, the pieces whose answers count."""
    halves: set[Range] = field(default_factory=set)
    """Ranges that are parts of a doubtful one: answered without any context."""
    doubts: dict[Range, Doubt] = field(default_factory=dict)
    """What was transcribed again, and why."""
    coverage: dict[Piece, Coverage] = field(default_factory=dict)
    """Of a piece whose words are known."""
    previous: dict[int, RangeAnswer] = field(default_factory=dict)
    """Last answer about the range that starts at a sample, however long it was."""
    _closed: frozenset[Range] = field(default=frozenset(), init=False)
    """Ranges that could not grow any more when they were last looked at."""

    def transcribe_alone(self, part: Range) -> None:
        """What was answered about it so far was heard behind something, and does not count."""
        self.alone.add(part)
        self.answers = {key: value for key, value in self.answers.items() if not _overlap(key[0], part)}
        self.words = {key: value for key, value in self.words.items() if not _overlap(key[0], part)}
        self.parts = {key: value for key, value in self.parts.items() if not _overlap(key[0], part)}
        self.pieces = {key: value for key, value in self.pieces.items() if not _overlap(key[0], part)}
        self.doubts = {key: value for key, value in self.doubts.items() if not _overlap(key, part)}

    def replace(self, piece: Piece, answer: RangeAnswer, doubt: Doubt) -> None:
        """Another answer about a piece counts, for what was doubtful about the first."""
        self.answers[piece] = answer
        self.words.pop(piece, None)
        self.doubts[piece[0]] = doubt

    def is_alone(self, part: Range) -> bool:
        """Whether it, or a piece of it, is to be heard alone."""
        return any(_overlap(each, part) for each in self.alone)

    def forget_provisional(self) -> None:
        """Forget what was answered about ranges that might grow and did not, but for their last answers."""
        self.detected = {key: value for key, value in self.detected.items() if not value.is_provisional}
        passed = {key for key, value in self.answers.items() if value.is_provisional}
        self.answers = {key: value for key, value in self.answers.items() if key not in passed}
        self.words = {key: value for key, value in self.words.items() if key not in passed}
        self.parts = {key: value for key, value in self.parts.items() if key[:2] not in passed}

    def keep_only(self, ranges: Sequence[Range]) -> None:
        """Forget what is no range of `ranges`, nor a piece of one that could not grow before either: what
        a range was while it grew is no piece of it, though it lies within."""
        starts = [start for start, _ in ranges]
        closed = frozenset(ranges[:-1])
        stays, self._closed = closed & self._closed, closed
        listed = set(ranges)
        self.pieces = {key: value for key, value in self.pieces.items() if key[0] in listed}
        stays |= {part for part, _ in self.pieces}

        def kept(part: Range) -> bool:
            index = bisect.bisect_right(starts, part[0]) - 1
            if index < 0:
                return False
            whole = ranges[index]
            return part == whole or (whole in stays and part[1] <= whole[1])

        self.detected = {key: value for key, value in self.detected.items() if kept(key)}
        self.regions = {key: value for key, value in self.regions.items() if kept(key)}
        self.alone = {key for key in self.alone if kept(key)}
        self.halves = {key for key in self.halves if kept(key)}
        self.doubts = {key: value for key, value in self.doubts.items() if kept(key)}
        self.coverage = {key: value for key, value in self.coverage.items() if kept(key[0])}
        self.answers = {key: value for key, value in self.answers.items() if kept(key[0])}
        self.words = {key: value for key, value in self.words.items() if kept(key[0])}
        self.parts = {key: value for key, value in self.parts.items() if kept(key[0])}
        self.previous = {key: value for key, value in self.previous.items() if key in starts}


def _overlap(one: Range, other: Range) -> bool:
    return one[0] < other[1] and other[0] < one[1]
