"""One track of a call: its sound, counted, and its turns. `realtime/calls/call.py` keeps one for each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ...protocols.calls.frames import TrackSummary
from ...protocols.shared.audio_format import AudioFormat

MAX_TRANSCRIPT_CHARS: Final = 200_000
"""Of one track, in the summary: a day of talk. What is more was told as it came."""
MAX_MISSING: Final = 1_000_000
"""Frames that one gap in the numbers may count for."""


@dataclass(slots=True)
class Track:
    """What has come of it, what was said, and what is still to be answered."""

    name: str
    format: AudioFormat
    num_bytes: int = 0
    num_frames: int = 0
    num_missing: int = 0
    last_chunk: int | None = None
    num_turns: int = 0
    num_failed: int = 0
    num_chars: int = 0
    lines: list[str] = field(default_factory=list)
    digits: list[str] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    is_flushed: bool = False
    is_gone: bool = False

    @property
    def at_ms(self) -> int:
        """How much of it has come."""
        return self.num_bytes * 1000 // self.format.bytes_per_second

    @property
    def is_done(self) -> bool:
        """Everything that was said is answered."""
        return self.is_gone or (self.is_flushed and not self.pending)

    def summary(self) -> TrackSummary:
        """What became of it."""
        return TrackSummary(
            track=self.name,
            audio_s=round(self.num_bytes / self.format.bytes_per_second, 3),
            num_frames=self.num_frames,
            num_missing=self.num_missing,
            num_turns=self.num_turns,
            num_failed=self.num_failed,
            transcript="\n".join(self.lines),
            digits="".join(self.digits),
        )

    def came(self, audio: bytes) -> None:
        """More of its sound."""
        self.num_frames += 1
        self.num_bytes += len(audio)

    def count(self, chunk: int) -> None:
        """The number of a frame; what lies between it and the last one is missing."""
        if self.last_chunk is not None and chunk > self.last_chunk + 1:
            self.num_missing += min(chunk - self.last_chunk - 1, MAX_MISSING)
        self.last_chunk = chunk if self.last_chunk is None else max(chunk, self.last_chunk)

    def complete(self, item: str, text: str) -> int | None:
        """A turn was transcribed; when it began."""
        self.num_turns += 1
        if text and self.num_chars + len(text) <= MAX_TRANSCRIPT_CHARS:
            self.lines.append(text)
            self.num_chars += len(text)
        return self._answered(item)

    def fail(self, item: str) -> None:
        """A turn was not."""
        self.num_failed += 1
        self._answered(item)

    def _answered(self, item: str) -> int | None:
        self.pending.discard(item)
        return self.starts.pop(item, None)
