"""Rules of release that ask nothing but what a test names, and tokens as a model says them."""

from __future__ import annotations

import math

from sensorium.protocols.transcription.transcript import TokenLogProb
from sensorium.realtime.transcript.delay_presets import ReleaseConfig


def config(**changes: float) -> ReleaseConfig:
    values = {"first_agree": 2, "agree": 2, "withhold": 1, "hold_ms": 0, "settle_ms": 0, "min_language": 1}
    sure = {"first_sure": 0.0, "sure": 0.0, "pause_sure": 0.0, "hurry_ms": 0, "doubt_ms": 0, "capital_ms": 0}
    updates = {"first_update_ms": 300, "early_update_ms": 200, "update_ms": 400}
    return ReleaseConfig(**{**values, **sure, **updates, **changes})  # type: ignore[arg-type]


def tokens_of(*words: tuple[str, float]) -> tuple[TokenLogProb, ...]:
    """A token a word, with its probability."""
    return tuple(TokenLogProb(f" {word}", f" {word}".encode(), math.log(sure)) for word, sure in words)


def torn(word: str, small: float, capital: float, *after: tuple[str, float]) -> tuple[TokenLogProb, ...]:
    """A first word that the model would write with a small letter or a capital, and the words behind it."""
    cases = (word, small), (word.capitalize(), capital)
    first = max(cases, key=lambda case: case[1])[0]
    likeliest = tuple((f" {each}".encode(), math.log(sure)) for each, sure in cases)
    token = TokenLogProb(f" {first}", f" {first}".encode(), math.log(max(small, capital)), likeliest)
    return token, *tokens_of(*after)
