"""What a call (`realtime/calls/call.py`) asks `actors/calls/call.py` to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...protocols.calls.frames import CallEvent
from ...protocols.shared.audio_format import AudioFormat


@dataclass(frozen=True, slots=True)
class Begin:
    """Decide by what `start` says whether the call may be; `CallMachine.agreed` or `refuse` follows."""

    parameters: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class OpenTrack:
    """Begin a session for this track."""

    track: str
    format: AudioFormat


@dataclass(frozen=True, slots=True)
class AppendTrackAudio:
    """Have the track's session hear this."""

    track: str
    audio: bytes


@dataclass(frozen=True, slots=True)
class EndTrack:
    """Have everything answered that was said: nothing more comes."""

    track: str


@dataclass(frozen=True, slots=True)
class SendEvent:
    """Say this of the call."""

    event: CallEvent


@dataclass(frozen=True, slots=True)
class Hang:
    """The call is over."""

    code: int
    reason: str


CallEffect = Begin | OpenTrack | AppendTrackAudio | EndTrack | SendEvent | Hang
