"""How long the silence must last that ends a turn: by what was said, however late that is known.

`end_of_turn.py` tells how a text ends, `pauses.py` keeps pauses that are not judged yet; `listener.py` ends
the turn. While such pauses wait, silence ends nothing: the turn may have ended before.
"""

from __future__ import annotations

from typing import Final

import msgspec

from ...protocols.shared.audio_format import ms_to_samples
from ..config import SessionConfig
from ..conversation import Item
from ..settings import SessionSettings
from .detector import TurnDetector, TurnDetectorConfig
from .end_of_turn import Ending, ending
from .pauses import Pause, Pauses

HELD: Final = ms_to_samples(30_000)
"""So much more silence ends a turn of which pauses are not judged: a model that late is down."""


class TurnEnds:
    """Of one session's open turn; without `semantic_vad` it does nothing."""

    def __init__(self) -> None:
        self._ending: Ending | None = None
        """How the words before the present pause end, if there is one and they are known."""
        self._pauses = Pauses()
        self._is_held = False
        """Whether some were waiting when it was last looked."""

    def go_on(self, pause: Pause, settings: SessionSettings) -> None:
        """Somebody speaks again: if it is not known yet whether the turn was over, that is asked later."""
        if settings.waits is not None and self._ending is None:
            self._pauses.add(pause, settings.waits)

    def next_end(self, tail: int) -> int | None:
        """Where the audio ends that tells of the earliest pause; None: there is none."""
        return min(self._pauses.first.start + tail, self._pauses.first.end) if self._pauses else None

    def judge(self, item: Item | None, settings: SessionSettings) -> Pause | None:
        """The earliest pause, if what was said before it is known now, and sounds like an end."""
        waits = settings.waits
        if item is None or waits is None or settings.turn_detection is None:
            self._pauses.clear()
            return None
        self._pauses.drop(item.start)
        if not self._pauses or item.in_flight is not None or item.requested_end <= self._pauses.first.start:
            return None
        pause, end = self._pauses.first, item.covered_end
        if item.newest is None or not pause.start < end <= pause.end or item.requested_end > end:
            self._pauses.drop(pause.end)  # it cannot be known any more
            return None
        return self._pauses.judge(ending(item.newest.text, item.newest.language), waits)

    def follow(self, item: Item | None, detector: TurnDetector) -> bool:
        """Take what is known of the present pause; whether the detector's `config` is another now."""
        before = self._ending, self._is_held
        self._ending, self._is_held = None, bool(self._pauses)
        if item is not None and item.newest is not None and detector.paused:
            reaches_into_the_pause = item.covered_end > detector.last_speech_end
            if reaches_into_the_pause:
                self._ending = ending(item.newest.text, item.newest.language)
        return before != (self._ending, self._is_held)

    def config(self, settings: SessionSettings, config: SessionConfig) -> TurnDetectorConfig:
        """What turns are found with."""
        wanted = settings.detector(config, self._ending)
        if not self._is_held:
            return wanted
        return msgspec.structs.replace(wanted, silence=wanted.silence + HELD)
