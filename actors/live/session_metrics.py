"""Measures one session by watching what it sends: first partials, finals, failures, corrections.

Knows event types and the time, nothing else; `actors/telemetry/metrics.py` says what each number means.
"""

from __future__ import annotations

import logging

from ...protocols.realtime.events import (
    ConversationItemInputAudioTranscriptionCompleted,
    ConversationItemInputAudioTranscriptionDelta,
    ConversationItemInputAudioTranscriptionFailed,
    InputAudioBufferCleared,
    InputAudioBufferCommitted,
    InputAudioBufferSpeechStarted,
    ServerEvent,
)
from ..telemetry.metrics import Metrics

logger = logging.getLogger(__name__)


class SessionMeter:
    """One per session. Items are forgotten when they are answered or cleared, so it does not grow."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._audio = metrics.audio_seconds.labels("realtime")
        self._began: dict[str, float] = {}
        self._committed: dict[str, float] = {}
        self._released: dict[str, str] = {}

    @property
    def num_tracked(self) -> int:
        """Items that something is remembered of."""
        return len(self._began.keys() | self._released.keys() | self._committed.keys())

    def received_audio(self, num_seconds: float) -> None:
        """Audio arrived."""
        self._audio.inc(num_seconds)

    def hypothesis(self, lag_s: float) -> None:
        """A hypothesis is there; `lag_s` of the audio received lies behind its end."""
        self._metrics.lag.observe(lag_s)

    def withheld(self, num_hypotheses: int) -> None:
        """So many hypotheses of an item that is answered gave no text to release."""
        self._metrics.withheld.inc(num_hypotheses)

    def sent(self, event: ServerEvent, *, now: float) -> None:
        """An event is on its way to the client."""
        match event:
            case InputAudioBufferSpeechStarted(item_id=item_id):
                self._began[item_id] = now
            case ConversationItemInputAudioTranscriptionDelta(item_id=item_id, delta=delta):
                if item_id not in self._released and item_id in self._began:
                    self._metrics.first_partial.observe(now - self._began[item_id])
                self._released[item_id] = self._released.get(item_id, "") + delta
            case InputAudioBufferCommitted(item_id=item_id):
                self._committed[item_id] = now
            case ConversationItemInputAudioTranscriptionCompleted(item_id=item_id, transcript=transcript):
                if item_id in self._committed:
                    self._metrics.final.observe(now - self._committed[item_id])
                if self._released.get(item_id, transcript) != transcript:
                    self._metrics.corrections.inc()
                self._forget(item_id)
            case ConversationItemInputAudioTranscriptionFailed(item_id=item_id, error=error):
                self._metrics.turns_failed.labels(error.code).inc()
                logger.warning("the turn %s was not transcribed: %s", item_id, error.message)
                self._forget(item_id)
            case InputAudioBufferCleared():
                for item_id in (self._began.keys() | self._released.keys()) - self._committed.keys():
                    self._forget(item_id)
            case _:
                pass

    def _forget(self, item_id: str) -> None:
        for times in (self._began, self._committed):
            times.pop(item_id, None)
        self._released.pop(item_id, None)
