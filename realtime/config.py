"""What the operator decides about realtime sessions: models on offer and limits. Read `session.py` next."""

from __future__ import annotations

from typing import Final

import msgspec

from ..protocols.realtime.session import SessionPatch
from ..protocols.shared.audio_format import AudioFormat
from ..protocols.transcription.options import Delay
from ..protocols.transcription.streaming import ChunkDelay
from ..protocols.transcription.transcript import Task
from .dialogue.config import DialogueConfig

MIN_COMMIT_MS: Final = 100
"""OpenAI's smallest commit."""


class RealtimeModel(msgspec.Struct, frozen=True):
    """A model that sessions may name; `languages` empty means any."""

    name: str
    languages: tuple[str, ...] = ()
    spells_numbers: bool = False
    """Whether it can be told to write numbers as words."""
    supports_left_context: bool = False
    """Whether a turn can be heard behind what was before it."""
    tasks: tuple[Task, ...] = ("transcribe",)
    delays: tuple[ChunkDelay, ...] = ()
    """Its own, if it streams: text is final as it comes."""
    takes_hints: bool = True
    """Whether `prompt`, `keywords` and `numerals` have an effect."""
    aliases: tuple[str, ...] = ()
    """Other names that mean it."""


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One session's starting point and bounds.

    `models` holds at least `model`, the one a client gets without naming another; of a session that answers
    both may be empty: then it does not listen. The limits are announced in `session.created`.
    """

    model: str
    models: tuple[RealtimeModel, ...]
    initial: SessionPatch = SessionPatch()
    """What the session begins with, as if it were the client's first update."""
    format: AudioFormat = AudioFormat()
    delay: Delay = "medium"
    """How soon text is released where the client does not say; see `realtime/transcript/delay_presets.py`."""
    min_speech_ms: int = 96
    """Speech shorter than this is noise and starts no turn."""
    tail_padding_ms: int = 200
    """Silence kept behind the last word (at most the silence duration)."""
    max_finals_in_flight: int = 4
    """Committed items of one session being transcribed at a time."""
    max_append_bytes: int = 15 * 1024 * 1024
    max_backlog_ms: int = 300_000
    """Audio waiting for a hypothesis; a client may push a file of this length at full speed."""
    force_turn_s: float = 60.0
    """Longest turn with detection: it is ended at a quiet place, and the next one goes on from there."""
    max_turn_s: float = 900.0
    """Longest turn without detection: further appends are refused."""
    max_session_s: float = 24 * 3600.0
    idle_s: float = 600.0
    drain_s: float = 10.0
    resume_grace_s: float = 30.0
    """How long a session waits for a client whose socket was lost."""
    dialogue: DialogueConfig | None = None
    """The session answers (type `realtime`); None: it only transcribes."""
