"""What a session that transcribes was sent, and has not answered: to be sent to another session.

Where the server of a session is gone (close 1012, or no server knows the session any more), its client opens
another one and feeds it the audio of every turn without a transcript, and all that was sent after it.
Positions count bytes of audio since the session was first opened. Pure, and bounded;
`client/realtime/transcription_machine.py` reports what is sent and what comes.
"""

from __future__ import annotations

import base64
from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

MAX_BYTES: Final = 4 * 1024 * 1024
"""87 s of PCM16 at 24 kHz."""
_UNHEARD_S: Final = 5.0
"""Of silence so much is sent again: speech may have begun in it that the server had not reported."""
_MARGIN_S: Final = 0.5
_COMMITS: Final = ("input_audio_buffer.commit", "input_audio_buffer.flush")
_CLEAR: Final = "input_audio_buffer.clear"


class _Control(msgspec.Struct):
    type: str
    audio: str = ""


class _Entry(NamedTuple):
    number: int
    begin: int
    audio: bytes
    frame: str
    """A commit, a flush or a clear; empty for audio."""


@dataclass(slots=True)
class _Turn:
    """One that the server has told of."""

    begin: int
    end: int | None = None
    number: int = -1
    """Of the client's commit that ended it."""
    is_answered: bool = False


class UnansweredAudio:
    """Of one session, through all servers that it has had."""

    def __init__(
        self, bytes_per_s: float, frame_bytes: int, *, finds_turns: bool, max_bytes: int = MAX_BYTES
    ) -> None:
        """`frame_bytes`: of one sample of all channels. `finds_turns`: the server does, not the client."""
        self._bytes_per_s = bytes_per_s
        self._frame_bytes = frame_bytes
        self._finds_turns = finds_turns
        self._max_bytes = max_bytes
        self._entries: deque[_Entry] = deque()
        self._num_bytes = 0
        self._end = 0
        """Of all audio that was sent."""
        self._kept_from = 0
        self._answered_to = 0
        self._answered_number = -1
        self._number = 0
        self._commits: deque[_Entry] = deque()
        """Of the client's, those that the server has not answered."""
        self._turns: dict[str, _Turn] = {}
        """In the order in which they were told of."""
        self._base = 0
        """Where the session of now has its beginning."""

    @property
    def base_ms(self) -> int:
        """Where the session of now has its beginning: what its times are counted from."""
        return round(1000 * self._base / self._bytes_per_s)

    @property
    def num_bytes(self) -> int:
        """What is kept."""
        return self._num_bytes

    def sent(self, frame: str | bytes) -> None:
        """A frame is about to be sent."""
        if isinstance(frame, str):
            control = msgspec.json.decode(frame, type=_Control)
            if not control.audio:
                self._sent_control(control.type, frame)
                return
            frame = base64.b64decode(control.audio)
        self._entries.append(_Entry(self._number, self._end, frame, ""))
        self._number += 1
        self._end += len(frame)
        self._num_bytes += len(frame)
        self._trim()

    def started(self, item_id: str, start_ms: int) -> None:
        """The server has found a turn."""
        self._turns.setdefault(item_id, _Turn(self._position(start_ms)))

    def stopped(self, item_id: str, end_ms: int) -> None:
        """The server has found its end."""
        turn = self._turns.setdefault(item_id, _Turn(self._position(end_ms)))
        turn.end = self._position(end_ms)

    def committed(self, item_id: str) -> None:
        """A turn is whole: by its end, or by the oldest commit of the client's."""
        turn = self._turns.setdefault(item_id, _Turn(self._answered_to))
        if turn.end is None and self._commits:
            commit = self._commits.popleft()
            turn.end, turn.number = commit.begin, commit.number
        while turn.end is not None and self._commits and self._commits[0].begin <= turn.end:
            turn.number = self._commits.popleft().number

    def found_nothing(self) -> None:
        """The oldest commit of the client's has made no turn."""
        if self._commits:
            self._commits.popleft()

    def answered(self, item_id: str) -> None:
        """A turn has its transcript, or has failed."""
        if item_id in self._turns:
            self._turns[item_id].is_answered = True
        while self._turns:
            name, first = next(iter(self._turns.items()))
            if not first.is_answered or first.end is None:
                break
            del self._turns[name]
            self._answered_to = max(self._answered_to, first.end)
            self._answered_number = max(self._answered_number, first.number)
        self._trim()

    def can_replay(self) -> bool:
        """Whether everything without an answer is still kept."""
        if not self._finds_turns:
            return self._kept_from <= self._answered_to
        return all(turn.begin >= self._kept_from for turn in self._turns.values())

    def begin_again(self) -> list[bytes | str]:
        """What to send to another session, in order: audio, and frames between. None of it is `sent`."""
        self._base = start = self._start()
        self._turns.clear()
        self._commits.clear()
        found: list[bytes | str] = []
        for entry in self._entries:
            if entry.frame:
                if entry.begin >= start and entry.number > self._answered_number:
                    found.append(entry.frame)
                    if '"input_audio_buffer.clear"' not in entry.frame:
                        self._commits.append(entry)
            elif entry.begin + len(entry.audio) > start:
                found.append(entry.audio[max(0, start - entry.begin) :])
        return found

    def _start(self) -> int:
        """Where the audio for another session begins."""
        start = max(self._answered_to, self._kept_from)
        if self._finds_turns:
            unheard = self._end - int(_UNHEARD_S * self._bytes_per_s)
            first = min((turn.begin for turn in self._turns.values()), default=unheard)
            start = max(start, min(first, unheard) - int(_MARGIN_S * self._bytes_per_s))
        return start - start % self._frame_bytes

    def _sent_control(self, kind: str, frame: str) -> None:
        if kind not in (*_COMMITS, _CLEAR):
            return
        entry = _Entry(self._number, self._end, b"", frame)
        self._number += 1
        self._entries.append(entry)
        if kind != _CLEAR:
            self._commits.append(entry)

    def _position(self, time_ms: int) -> int:
        position = self._base + int(time_ms * self._bytes_per_s / 1000)
        return min(position - position % self._frame_bytes, self._end)

    def _trim(self) -> None:
        """Drop what was answered, and the oldest where there is too much."""
        while self._entries:
            first = self._entries[0]
            end = first.begin + len(first.audio)
            is_answered = end <= self._answered_to and (
                not first.frame or first.number <= self._answered_number
            )
            is_old = first.frame != "" and self._finds_turns and end < self._answered_to
            if not (is_answered or is_old or self._num_bytes > self._max_bytes):
                break
            self._entries.popleft()
            self._num_bytes -= len(first.audio)
            self._kept_from = max(self._kept_from, end)
