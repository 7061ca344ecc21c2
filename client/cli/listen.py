"""`sensorium listen`: live text from a microphone or a recording, then how quick it was.

Read next: `client/realtime/transcription.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from ...protocols.transcription.options import LiveSpeechOptions
from ..audio import Audio, read_wav
from ..bench.turns import Turn, TurnLog
from ..client import Client
from ..errors import AudioError
from ..realtime.events import (
    Backpressure,
    Completed,
    Delta,
    ErrorEvent,
    Event,
    Expiring,
    Failed,
    Reopened,
    Resumed,
    SpeechStarted,
    UtteranceEnded,
)
from ..realtime.machine import LiveOptions
from ..realtime.transcription import RealtimeSession
from ..terminal import JsonLines, LiveText, milliseconds, timestamp
from .microphone import RATE, microphone

_MAX_TURNS: Final = 1000
"""Turns that the latencies at the end are taken from: one may listen for days."""
_PIECE_BYTES: Final = 16 * 1024
_REPORTED: Final = (
    SpeechStarted,
    UtteranceEnded,
    Delta,
    Completed,
    Failed,
    ErrorEvent,
    Resumed,
    Expiring,
    Backpressure,
)
"""Events that `--json` writes."""
_EXPIRING: Final = {
    "session_expired": "the session reaches its longest life",
    "session_idle": "the session ends for want of sound",
    "server_draining": "the server stops",
}


def listen_to(
    client: Client,
    source: Path | None,
    model: str | None,
    options: LiveSpeechOptions,
    *,
    audio_format: str | None = None,
    as_json: bool = False,
) -> int:
    """The exit code: 1 if a turn failed or the server refused a message. Raises AudioError and SDKError."""
    chunks: Iterable[bytes]
    sound: LiveOptions
    speed: float | None = None
    if audio_format is not None:
        chunks, sound = _pieces(source), {"audio_format": audio_format}
    elif source is None:
        chunks, sound = microphone(), {"sample_rate": RATE}
    else:
        audio = _plain(source)
        chunks, sound, speed = audio.chunks(), {"sample_rate": audio.rate}, 1.0
    with client.realtime(model, **sound, **options) as session:
        log = TurnLog(max_turns=_MAX_TURNS)
        live = JsonLines() if as_json else LiveText()
        log.configure(session.updated)
        log.audio_start_at = time.monotonic()
        if source is None:
            live.line("listening; Ctrl-C ends")
        try:
            refused = _show(session.transcribe(chunks, speed=speed), log, live)
        except KeyboardInterrupt:
            session.finish()
            refused = _show(session, log, live)
        is_paced = audio_format is None or source is None or str(source) == "-"
        _sum_up(session, log, live, has_times=is_paced)
    return 1 if log.num_failed or refused else 0


def _plain(source: Path) -> Audio:
    """A WAV file. Raises AudioError, which says how others are sent, too."""
    if str(source) == "-":
        raise AudioError(
            "standard input needs --audio-format, the name of its container or auto (a WAV file is given by "
            "its path)"
        )
    try:
        return read_wav(source)
    except AudioError as error:
        if source.is_file() and source.suffix.lower() != ".wav":
            raise AudioError(f"{error}, or send it as it is: --audio-format auto") from None
        raise


def _pieces(source: Path | None) -> Iterator[bytes]:
    """A container's bytes as they come, from a file or standard input."""
    is_stdin = source is None or str(source) == "-"
    try:
        with open(0 if is_stdin else str(source), "rb", closefd=not is_stdin) as file:
            while piece := file.read1(_PIECE_BYTES):
                yield piece
    except OSError as error:
        raise AudioError(f"cannot read {source}: {error.strerror or error}") from error


def _show(events: Iterable[Event], log: TurnLog, live: LiveText | JsonLines) -> bool:
    """Whether the server refused a message. Raises AudioError where it can read no more of a container."""
    refused = False
    for event in events:
        if isinstance(event, ErrorEvent):
            if event.error.code == "audio_stream_broken":  # what broke it was said before
                raise AudioError("the server takes no more of this recording")
            refused = True
        turn = log.observe(event, time.monotonic())
        if isinstance(live, LiveText):
            _write(event, turn, live)
        elif isinstance(event, _REPORTED):
            live.event(event)
    return refused


def _write(event: Event, turn: Turn | None, live: LiveText) -> None:
    """What an event says to people."""
    match event:
        case Delta() if turn is not None:
            live.partial(turn.text)
        case Completed() if turn is not None:
            start_ms = turn.audio_start_ms or 0
            live.line(f"{timestamp(start_ms / 1000)}  {event.transcript}")
        case UtteranceEnded() if turn is not None and turn.transcript is not None:
            live.line()  # a paragraph for each; the line of an open turn goes on growing
        case Failed():
            live.line(f"(a turn failed: {event.error.message})")
        case ErrorEvent():
            live.line(f"(the server refused a message: {event.error.message})")
        case Resumed():
            live.line("(the connection was lost; the session goes on)")
        case Reopened():
            live.line("(the server is gone; the session goes on at another one)")
        case Expiring():
            live.line(f"({_EXPIRING[event.reason]} in {event.seconds_left:.0f} s)")
        case Backpressure():
            live.line(f"(the server is {event.buffered_ms / 1000:.1f} s behind)")
        case _:
            pass


def _sum_up(session: RealtimeSession, log: TurnLog, live: LiveText | JsonLines, *, has_times: bool) -> None:
    """`has_times`: the sound was sent when it was spoken."""
    turns = list(log.turns.values())
    live.line()
    num = log.num_turns
    length = f"{session.audio_s:.1f} s, " if session.audio_s else ""
    live.line(f"audio          {length}{num} turn{'' if num == 1 else 's'}")
    if not has_times:
        return
    live.line(
        f"first partial  {milliseconds(log.first_partial_s(turn) for turn in turns)} after speech start"
    )
    live.line(f"final          {milliseconds(turn.final_s for turn in turns)} after turn end")
