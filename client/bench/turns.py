"""What happened to each turn of a live session, and how it compares with what was really said.

Fed with events and the time they arrived; shared by the benchmark, `sensorium listen` and the demo. Knows no
sockets and no clock. Terms: *first partial* is speech start → first non-empty delta; *final latency* is turn
end (`speech_stopped` arrived, or the caller's commit was sent) → `completed`; *after last word* is the end of
the last spoken word → `completed`, so it includes the silence that the turn detector waits for. Read next:
`client/bench/realtime.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ..errors import AudioError
from ..realtime.events import (
    Committed,
    Completed,
    Delta,
    Event,
    Failed,
    SessionUpdated,
    SpeechStarted,
    SpeechStopped,
)
from .statistics import WordErrors, word_errors


class SpokenTurn(msgspec.Struct, frozen=True):
    """What is said in a recording, and when: milliseconds from the recording's start."""

    text: str
    start_ms: int
    end_ms: int
    language: str = ""


class _Description(msgspec.Struct):
    turns: list[SpokenTurn]


def read_spoken_turns(path: str | Path) -> list[SpokenTurn]:
    """The turns in the JSON file beside a recording: `{"turns": [{text, language, start_ms, end_ms}]}`."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=_Description).turns
    except OSError as error:
        raise AudioError(f"cannot read {path}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise AudioError(f"{path} does not describe turns: {error}") from None


@dataclass(slots=True)
class Turn:
    """One item of a session. Times (`…_at`) are the caller's clock, positions are audio milliseconds."""

    item_id: str
    audio_start_ms: int | None = None
    """Where the item's audio starts, padding before the speech included."""
    audio_end_ms: int | None = None
    first_delta_at: float | None = None
    ended_at: float | None = None
    completed_at: float | None = None
    text: str = ""
    """The deltas so far."""
    num_deltas: int = 0
    transcript: str | None = None
    error: str | None = None

    @property
    def corrected(self) -> bool:
        """The final transcript takes back something that the deltas had said."""
        return self.transcript is not None and not self.transcript.strip().startswith(self.text.strip())

    @property
    def final_s(self) -> float | None:
        """Final latency."""
        return _minus(self.completed_at, self.ended_at)

    def overlap_ms(self, start_ms: float, end_ms: float) -> float:
        """How much of a stretch of audio the item covers."""
        if self.audio_start_ms is None or self.audio_end_ms is None:
            return 0.0
        return max(0.0, min(end_ms, self.audio_end_ms) - max(start_ms, self.audio_start_ms))


@dataclass
class TurnLog:
    """All turns of one session in order of appearance.

    `audio_start_at` is the clock's time at which the session's first sample was spoken. With `max_turns` only
    so many of the newest turns are kept; all of them are counted.
    """

    audio_start_at: float = 0.0
    prefix_padding_ms: int = 0
    """Padding that the server puts before detected speech."""
    turns: dict[str, Turn] = field(default_factory=dict)
    max_turns: int | None = None
    num_turns: int = 0
    num_failed: int = 0
    _manual: deque[tuple[float, int, int]] = field(default_factory=deque)

    def configure(self, updated: SessionUpdated | None) -> None:
        """Take the prefix padding from the settings in force."""
        if updated is not None:
            detection = updated.session.audio.input.turn_detection
            self.prefix_padding_ms = getattr(detection, "prefix_padding_ms", 0)

    def commit_sent(self, now: float, start_ms: int, end_ms: int) -> None:
        """The caller ended a turn by hand: the next `committed` belongs to this stretch of audio."""
        self._manual.append((now, start_ms, end_ms))

    def observe(self, event: Event, now: float) -> Turn | None:
        """Take in one event; the turn it belongs to, if any."""
        item_id = getattr(event, "item_id", None)
        if item_id is None:
            return None
        turn = self.turns.get(item_id) or self._begin(item_id)
        match event:
            case SpeechStarted():
                turn.audio_start_ms = event.audio_start_ms
            case SpeechStopped():
                turn.audio_end_ms = event.audio_end_ms
                turn.ended_at = now
            case Committed():
                self._committed(turn, event, now)
            case Delta() if event.delta:
                turn.first_delta_at = now if turn.first_delta_at is None else turn.first_delta_at
                turn.text += event.delta
                turn.num_deltas += 1
            case Completed():
                turn.transcript = event.transcript
                turn.completed_at = now
            case Failed():
                turn.error = event.error.message or event.error.code or "failed"
                self.num_failed += 1
            case _:
                pass
        return turn

    def first_partial_s(self, turn: Turn, spoken: SpokenTurn | None = None) -> float | None:
        """Speech start → first delta; the start as spoken if known, else as the server detected it."""
        if spoken is not None:
            start_ms: float | None = spoken.start_ms
        elif turn.audio_start_ms is not None:
            start_ms = turn.audio_start_ms + self.prefix_padding_ms
        else:
            start_ms = None
        return None if start_ms is None else _minus(turn.first_delta_at, self.at(start_ms))

    def after_last_word_s(self, turn: Turn, spoken: SpokenTurn) -> float | None:
        """End of the last spoken word → final transcript."""
        return _minus(turn.completed_at, self.at(spoken.end_ms))

    def at(self, position_ms: float) -> float:
        """The clock's time at which a position of the audio was spoken."""
        return self.audio_start_at + position_ms / 1000

    def turns_of(self, spoken: SpokenTurn) -> list[Turn]:
        """Completed items that cover part of a spoken turn, mostly this one; in order."""
        least_ms = min(200.0, (spoken.end_ms - spoken.start_ms) / 2)
        return [
            turn
            for turn in self.turns.values()
            if turn.transcript is not None and turn.overlap_ms(spoken.start_ms, spoken.end_ms) >= least_ms
        ]

    def word_errors(self, spoken: Sequence[SpokenTurn]) -> WordErrors:
        """Word errors of the whole session, however the server cut it into turns."""
        transcripts = [turn.transcript for turn in self.turns.values() if turn.transcript is not None]
        return word_errors(" ".join(turn.text for turn in spoken), " ".join(transcripts))

    def _begin(self, item_id: str) -> Turn:
        turn = self.turns[item_id] = Turn(item_id)
        self.num_turns += 1
        if self.max_turns is not None and len(self.turns) > self.max_turns:
            del self.turns[next(iter(self.turns))]
        return turn

    def _committed(self, turn: Turn, event: Committed, now: float) -> None:
        if isinstance(event.audio_start_ms, int) and isinstance(event.audio_end_ms, int):
            turn.audio_start_ms, turn.audio_end_ms = event.audio_start_ms, event.audio_end_ms
        if turn.ended_at is not None:
            return
        if self._manual:
            turn.ended_at, start_ms, end_ms = self._manual.popleft()
            if turn.audio_end_ms is None:
                turn.audio_start_ms, turn.audio_end_ms = start_ms, end_ms
        else:
            turn.ended_at = now


def _minus(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else later - earlier
