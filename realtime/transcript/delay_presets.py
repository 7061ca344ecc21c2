"""How soon text is shown, and how often it is asked for: one set of numbers for each `delay` of OpenAI's.

`realtime/transcript/policy.py` goes by them. They are chosen with `examples/benchmarks/tune_release.py`,
which says what each costs: docs/performance/live.md.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec.structs import replace

from ...protocols.transcription.options import Delay


class ReleaseConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How soon text is shown, and how often it is asked for."""

    first_agree: int
    """Successive hypotheses that must have a word, for the first text of a turn: at least 1."""
    agree: int
    """The same for all later text, which nobody waits for as eagerly."""
    withhold: int
    """Words at the end of a hypothesis that are not released (two characters without spaces make a word)."""
    hold_ms: int
    """A hypothesis about less speech than this is trusted only if one more agrees."""
    settle_ms: int
    """The first word of a turn is not withheld once it stood unchanged for so much audio; 0: never."""
    first_sure: float
    """How sure the model must be of a turn's first word; 0: never asked."""
    sure: float
    """The same for all later words. A turn's first word is shown with a capital if the model is less sure,
    for a small letter is hardly ever final there."""
    capital_ms: int
    """Where the model tells how likely a capital is, the first word waits until it is `LIKELY_CAPITAL`, for
    at most so much speech, and has then the likelier case; 0: it does not wait for that."""
    pause_sure: float
    """The same for text in front of a pause, with nothing else asked: if nobody goes on, it is final."""
    doubt_ms: int
    """A word that is at least `LEAST_SURE` is shown even so once it stood unchanged for so much audio."""
    hurry_ms: int
    """After so much speech the first text of a turn waits no longer for the model to be sure: what enough
    hypotheses agree on is shown unless it is a wild guess; 0: never."""
    min_language: float
    """The first text of a turn waits until the model is so sure of the language it found, for at most
    `EARLY_MS` of speech: a wrong one makes wrong words."""
    first_update_ms: int
    """Speech before the first hypothesis of a turn is worth asking for: a short word."""
    early_update_ms: int
    """New audio before the next one, until text was released. Under load they come as they are answered."""
    update_ms: int
    """New audio before the next one from then on."""


_MEDIUM: Final = ReleaseConfig(
    first_agree=2,
    agree=3,
    withhold=1,
    hold_ms=500,
    settle_ms=330,
    first_sure=0.5,
    sure=0.85,
    capital_ms=1200,
    pause_sure=0.4,
    doubt_ms=4000,
    hurry_ms=0,
    min_language=0.5,
    first_update_ms=340,
    early_update_ms=128,
    update_ms=400,
)
RELEASES: Final[dict[Delay, ReleaseConfig]] = {
    "minimal": ReleaseConfig(
        first_agree=1,
        agree=1,
        withhold=1,
        hold_ms=400,
        settle_ms=160,
        first_sure=0.0,
        sure=0.0,
        capital_ms=0,
        pause_sure=0.0,
        doubt_ms=0,
        hurry_ms=800,
        min_language=0.5,
        first_update_ms=340,
        early_update_ms=128,
        update_ms=240,
    ),
    "low": replace(
        _MEDIUM,
        hold_ms=0,
        settle_ms=160,
        capital_ms=0,
        pause_sure=0.3,
        doubt_ms=2000,
        hurry_ms=1000,
        min_language=0.4,
    ),
    "medium": _MEDIUM,
    "high": ReleaseConfig(
        first_agree=3,
        agree=3,
        withhold=2,
        hold_ms=800,
        settle_ms=800,
        first_sure=0.8,
        sure=0.8,
        capital_ms=0,
        pause_sure=0.8,
        doubt_ms=4000,
        hurry_ms=0,
        min_language=0.8,
        first_update_ms=400,
        early_update_ms=240,
        update_ms=400,
    ),
    "xhigh": ReleaseConfig(
        first_agree=3,
        agree=3,
        withhold=4,
        hold_ms=2000,
        settle_ms=0,
        first_sure=0.8,
        sure=0.9,
        capital_ms=0,
        pause_sure=0.9,
        doubt_ms=4000,
        hurry_ms=0,
        min_language=0.95,
        first_update_ms=800,
        early_update_ms=400,
        update_ms=600,
    ),
}
"""By OpenAI's names. Nobody waits for later words as for the first one. What is corrected of people's speech
is mostly a word the model was torn about (a capital or a small letter, a comma, "for" or "4"), of
tiny-qwen3-asr's a language mistaken at the beginning.
"""
EARLY_MS: Final = 2000
"""Speech after which a turn without text is asked about no more often than others, for it may be a hum, and
waits for a clear language no longer, for there may be none."""
LEAST_SURE: Final = 0.5
"""Less is a guess, however often it is made."""
WILD_GUESS: Final = 0.35
"""Less is not even shown in a hurry."""
LIKELY_CAPITAL: Final = 0.65
"""The probability of a capital, as against a small letter, from which on it is hardly ever taken back."""
