"""How much of Whisper's window a partial hypothesis listens to, and when that was too little.

Whisper was trained on windows of 30 s, mostly silence behind a short turn, and an encode costs what the
window does. A hypothesis that will be replaced in half a second hears the turn and a few seconds of silence
instead; with less behind it the decoder tends to talk on or repeats itself. That shows in the answer: such a
range is asked about again with more, and from then on. What is final always hears all.
`actors/speech/whisper.py` asks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

SILENCE_S: Final[tuple[float, ...]] = (3.0, 10.0)
"""Seconds behind the turn by effort; greater efforts hear the whole window."""
MOST_EFFORT: Final = len(SILENCE_S)

TOKENS_BEFORE: Final = 8
TOKENS_PER_S: Final = 9
"""More than most people say, in most languages; where they do, more is listened to, and nothing is lost."""
_MAX_UNIT: Final = 12
_COPIES: Final = 3


def context_s(duration_s: float, effort: int, window_s: float) -> float:
    """Seconds of the window to hear for a turn of `duration_s`, in whole ones: few lengths, few kernels."""
    if effort >= MOST_EFFORT:
        return window_s
    return min(window_s, float(math.ceil(duration_s + SILENCE_S[effort])))


def token_limit(duration_s: float) -> int:
    """Tokens of text after which an answer about so much speech is taken for one that talks on."""
    return TOKENS_BEFORE + math.ceil(TOKENS_PER_S * duration_s)


def repeats_itself(token_ids: Sequence[int]) -> bool:
    """Whether the answer ends with the same few tokens three times over."""
    for size in range(1, min(_MAX_UNIT, len(token_ids) // _COPIES) + 1):
        tail = token_ids[len(token_ids) - _COPIES * size :]
        if all(tail[place] == tail[place % size] for place in range(len(tail))):
            return True
    return False
