"""How much of Whisper's window a partial hypothesis listens to, and when that was too little.

Whisper was trained on windows of 30 s, mostly silence behind a short turn, and an encode costs what the
window does. A hypothesis that will be replaced in half a second hears the turn and a few seconds of silence
instead; with less behind it the decoder tends to talk on or repeats itself. That shows in the answer, which
is left as soon as it does: such a range is asked about again with more. It is mostly half a word that leads
to that, so the next question begins with less again. What is final always hears all.
`actors/speech/families/whisper.py` asks.
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
_MAX_UNIT: Final = 32
LOOP_TOKENS: Final = 8
"""Of an answer that is left before its end; somebody may say a digit or a word three times."""
_LONG_UNIT: Final = 8
"""Tokens from which on a unit that is said twice is taken for a loop, else thrice."""


def context_s(duration_s: float, effort: int, window_s: float) -> float:
    """Seconds of the window to hear for a turn of `duration_s`, in whole ones: few lengths, few kernels."""
    if effort >= MOST_EFFORT:
        return window_s
    return min(window_s, float(math.ceil(duration_s + SILENCE_S[effort])))


def token_limit(duration_s: float) -> int:
    """Tokens of text after which an answer about so much speech is taken for one that talks on."""
    return TOKENS_BEFORE + math.ceil(TOKENS_PER_S * duration_s)


def next_effort(effort: int) -> int:
    """What a question begins with, if the one before about less of the range took `effort`."""
    return max(effort - 1, 0)


def repeats_itself(token_ids: Sequence[int], *, least: int = 0) -> bool:
    """Whether the answer ends with the same tokens three times over, or with the same phrase twice; in all
    with `least` tokens."""
    for size in range(1, min(_MAX_UNIT, len(token_ids) // 2) + 1):
        copies = max(2 if size >= _LONG_UNIT else 3, math.ceil(least / size))
        tail = token_ids[max(len(token_ids) - copies * size, 0) :]
        if len(tail) == copies * size and tail[size:] == tail[:-size]:
            return True
    return False
