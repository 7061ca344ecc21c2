"""Whether words and sound account for each other: speech without words, words without speech. Pure.

Speech is what voice activity found (`media/speech/regions.py`), words are timed
(`media/speech/word_times.py`), and how long a text takes to say is `media/speech/spoken_length.py`'s.
`actors/speech/retries/retranscription.py` decides by it whether a range is transcribed again; transcripts
report it, and `/metrics` counts it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ...protocols.shared.audio_format import INTERNAL_RATE
from ...protocols.transcription.transcript import Coverage, Word
from .regions import Region
from .spoken_length import spoken_length_s, spoken_words

NEAR_S: Final = 0.2
"""Speech and words this close account for each other: both are as uncertain at their ends."""
_MAX_LENGTHS: Final = 3.0
_MAX_EXTRA_S: Final = 0.5
"""A word accounts for at most so many times its expected length, and this."""


def expected_s(text: str) -> float:
    """Seconds that a text takes to say at a middling rate."""
    return sum(map(spoken_length_s, spoken_words(text)))


def coverage(words: Sequence[Word], speech: Iterable[Region]) -> Coverage:
    """How `words` and the regions of `speech` (samples) account for each other.

    Both are in order, and the words' times count in seconds from sample 0.
    """
    regions = [(start / INTERNAL_RATE, end / INTERNAL_RATE) for start, end in speech]
    spans = [(word.start - NEAR_S, _end_s(word) + NEAR_S) for word in words]
    speech_s = sum(end - start for start, end in regions)
    return Coverage(
        speech=round(speech_s, 3),
        speech_without_words=round(_outside_s(regions, spans), 3),
        words=len(words),
        words_without_speech=sum(
            _is_far(word.start, word.end, regions) for word in words if any(map(str.isalnum, word.word))
        ),
    )


def _end_s(word: Word) -> float:
    """A word that is drawn out over what it does not say ends sooner."""
    return min(word.end, word.start + _MAX_LENGTHS * spoken_length_s(word.word) + _MAX_EXTRA_S)


def _outside_s(regions: Sequence[tuple[float, float]], spans: Sequence[tuple[float, float]]) -> float:
    """Seconds of `regions` that lie in none of the `spans`, which are in order of their starts."""
    total, index = 0.0, 0
    for start, end in regions:
        place = start
        while index < len(spans) and spans[index][1] <= start:
            index += 1
        for first, last in spans[index:]:
            if first >= end:
                break
            total += max(0.0, first - place)
            place = max(place, last)
        total += max(0.0, end - place)
    return total


def _is_far(start_s: float, end_s: float, regions: Sequence[tuple[float, float]]) -> bool:
    return all(end_s + NEAR_S <= first or last <= start_s - NEAR_S for first, last in regions)
