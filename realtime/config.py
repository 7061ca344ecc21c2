"""What the operator decides about realtime sessions: models on offer and limits. Read `session.py` next."""

from __future__ import annotations

from typing import Final

import msgspec

from ..protocols.audio import AudioFormat

MIN_COMMIT_MS: Final = 100
"""OpenAI's smallest commit."""


class RealtimeModel(msgspec.Struct, frozen=True):
    """A model that sessions may name; `languages` empty means any."""

    name: str
    languages: tuple[str, ...] = ()


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One session's starting point and bounds.

    `models` holds at least `model`, the one a client gets without naming another. The limits are
    announced in `session.created`.
    """

    model: str
    models: tuple[RealtimeModel, ...]
    format: AudioFormat = AudioFormat()
    update_interval_ms: int = 400
    """New audio before another partial hypothesis is worth asking for."""
    hold_words: int = 1
    """Words at the end of a hypothesis that are never released: the last one may be cut."""
    min_speech_ms: int = 96
    """Speech shorter than this is noise and starts no turn."""
    tail_padding_ms: int = 200
    """Silence kept behind the last word (at most the silence duration)."""
    max_finals_in_flight: int = 4
    """Committed items of one session being transcribed at a time."""
    max_append_bytes: int = 15 * 1024 * 1024
    max_backlog_ms: int = 300_000
    """Audio waiting for a hypothesis; a client may push a file of this length at full speed."""
    max_turn_s: float = 900.0
    """Longest turn: voice activity detection ends it; without detection further appends are refused."""
    max_session_s: float = 3600.0
    idle_s: float = 600.0
    drain_s: float = 10.0
