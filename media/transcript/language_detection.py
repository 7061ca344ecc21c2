"""Which language each range of a recording is asked for, where models detect it: one range, or its pieces.

A range that is clearly of one language is asked for that. Where a model is torn, several may be spoken, as
where several were spoken before or are expected: the range is cut at its pauses, and the language of each
piece asked for. What is too short to tell goes with what was said before. Used by
`actors/speech/languages/resolution.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final

from ...protocols.shared.audio_format import INTERNAL_RATE
from .range_answer import DetectedLanguage, Range

Piece = tuple[Range, str | None]
"""What is asked at once, and the language it is asked for. None: the answer names it."""

CLEAR: Final = 0.9
"""Of 30 s of one language whisper-base is surer than 0.93; of 30 s of several it may be as sure, too."""
CLEAR_IN_HALVES: Final = 0.7
"""Of 80 windows of two languages of which whisper-base was surer than 0.9 in 36, it was this sure in both
halves of 4; of 80 windows of one, in all but 2."""
CLEAR_OTHER: Final = 0.8
"""Where somebody has said half a word whisper-base finds languages that nobody speaks, seldom this surely."""
LIKELY: Final = 0.5
"""Enough for a piece, in which nobody changes the language."""
MIN_SPEECH: Final = int(1.5 * INTERNAL_RATE)
"""Speech that a piece has at least: an interjection is no change of language."""
MIN_RANGE: Final = 3 * INTERNAL_RATE
"""Shorter ranges have the language of the one before, if there is one."""
MIN_PAUSE: Final = int(0.4 * INTERNAL_RATE)
"""Silence between two pieces."""
ODD_FOR_WHISPER: Final = frozenset(
    {"am", "ba", "bo", "fo", "haw", "ht", "jw", "km", "lo", "ln", "mg"}
    | {"mi", "my", "nn", "sa", "sd", "si", "sn", "so", "su", "tk", "yo"}
)
"""Of these Whisper was trained on next to no speech; it takes music and noise for them."""


def clear_language(part: Range, detected: DetectedLanguage) -> str | None:
    """What a whole range is asked for, if there is no doubt."""
    is_clear = detected.probability >= CLEAR and detected.in_halves >= CLEAR_IN_HALVES
    is_long = part[1] - part[0] >= MIN_RANGE
    return detected.code if detected.is_speech and is_clear and is_long else None


def first_language(detected: DetectedLanguage, spoken: str) -> str:
    """What the beginning of a turn is asked for that goes on, where `spoken` was spoken before it."""
    return detected.code if detected.is_speech and detected.probability >= CLEAR_OTHER else spoken


def likely_language(part: Range, detected: DetectedLanguage | None) -> str | None:
    """What a piece is asked for, unless that is better told by its neighbours."""
    if detected is None or not detected.is_speech or part[1] - part[0] < MIN_SPEECH:
        return None
    return detected.code if detected.probability >= LIKELY else None


def cut_at_pauses(part: Range, regions: Sequence[Range]) -> list[Range]:
    """The range in pieces, each with enough speech: cut amid the pauses between the `regions` of speech."""
    cuts: list[int] = []
    speech = 0
    for index, (start, end) in enumerate(regions):
        speech += end - start
        rest = sum(last - first for first, last in regions[index + 1 :])
        if speech >= MIN_SPEECH and rest >= MIN_SPEECH:
            cuts.append((end + regions[index + 1][0]) // 2)
            speech = 0
    bounds = [part[0], *cuts, part[1]]
    return list(itertools.pairwise(bounds))


def merged(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Neighbours of one language as one piece."""
    together: list[Piece] = []
    for part, language in pieces:
        if together and together[-1][1] == language:
            together[-1] = (together[-1][0][0], part[1]), language
        else:
            together.append((part, language))
    return tuple(together)
