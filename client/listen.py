"""`sensorium listen`: live text from a microphone or a recording, then how quick it was.

Read next: `client/realtime.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from ..protocols.realtime_session import Delay
from .audio import read_wav
from .bench.turns import TurnLog
from .client import Client
from .events import (
    Backpressure,
    Completed,
    Delta,
    ErrorEvent,
    Event,
    Expiring,
    Failed,
    Resumed,
    SpeechStarted,
)
from .microphone import RATE, microphone
from .realtime import RealtimeSession
from .requests import SpeechOptions
from .terminal import JsonLines, LiveText, milliseconds, timestamp

_MAX_TURNS: Final = 1000
"""Turns that the latencies at the end are taken from: one may listen for days."""
_TOLD: Final = (SpeechStarted, Delta, Completed, Failed, ErrorEvent, Resumed, Expiring, Backpressure)
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
    delay: Delay | None,
    options: SpeechOptions,
    *,
    as_json: bool = False,
) -> int:
    """The exit code: 1 if a turn could not be transcribed. Raises AudioError and SDKError."""
    chunks: Iterable[bytes]
    if source is None:
        chunks, rate, speed = microphone(), RATE, None
    else:
        audio = read_wav(source)
        chunks, rate, speed = audio.chunks(), audio.rate, 1.0
    with client.realtime(model, sample_rate=rate, delay=delay, **options) as session:
        log = TurnLog(max_turns=_MAX_TURNS)
        live = JsonLines() if as_json else LiveText()
        log.configure(session.updated)
        log.audio_start_at = time.monotonic()
        if source is None:
            live.line("listening; Ctrl-C ends")
        try:
            _show(session.transcribe(chunks, speed=speed), log, live)
        except KeyboardInterrupt:
            session.finish()
            _show(session, log, live)
        _sum_up(session, log, live)
    return 0 if not log.num_failed else 1


def _show(events: Iterable[Event], log: TurnLog, live: LiveText | JsonLines) -> None:
    for event in events:
        turn = log.observe(event, time.monotonic())
        if isinstance(live, JsonLines):
            if isinstance(event, _TOLD):
                live.event(event)
            continue
        match event:
            case Delta() if turn is not None:
                live.partial(turn.text)
            case Completed() if turn is not None:
                start_ms = turn.audio_start_ms or 0
                live.line(f"{timestamp(start_ms / 1000)}  {event.transcript}")
            case Failed():
                live.line(f"(a turn failed: {event.error.message})")
            case ErrorEvent():
                live.line(f"(the server refused a message: {event.error.message})")
            case Resumed():
                live.line("(the connection was lost; the session goes on)")
            case Expiring():
                live.line(f"({_EXPIRING[event.reason]} in {event.seconds_left:.0f} s)")
            case Backpressure():
                live.line(f"(the server is {event.buffered_ms / 1000:.1f} s behind)")
            case _:
                pass


def _sum_up(session: RealtimeSession, log: TurnLog, live: LiveText | JsonLines) -> None:
    turns = list(log.turns.values())
    live.line()
    num = log.num_turns
    live.line(f"audio          {session.audio_s:.1f} s, {num} turn{'' if num == 1 else 's'}")
    live.line(
        f"first partial  {milliseconds(log.first_partial_s(turn) for turn in turns)} after speech start"
    )
    live.line(f"final          {milliseconds(turn.final_s for turn in turns)} after turn end")
