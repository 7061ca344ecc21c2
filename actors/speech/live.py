"""The transcript of one turn while it is being spoken, equal to the offline one at every point asked for.

Each hypothesis covers the turn from its start to some sample. Ranges that can no longer change (the turn has
outgrown them) keep their answers. Of the open one the features are extended, only encoder items that changed
are new to the engine, what a model keeps of it stays with the engine, and the previous answer goes along as a
guess. So the cost of an update does not grow with the turn's age. Knows no turns, sockets or policies:
`actors/live/session.py`. The recipe is `actors/speech/recipe.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import trio

from ...media.speech.voice_activity import VoiceActivityModel
from ...protocols.shared.audio_format import INTERNAL_RATE
from ...protocols.transcription.transcript import Transcript, TranscriptionOptions
from ..runtime.compute_pool import working_for
from .families.family import SpeechFamily
from .model import ReadAudio, live_lane
from .recipe import Prior, transcribe_ranges
from .recording import LiveRecording
from .recording_state import Memory

PIN_PROBABILITY: Final = 0.8
PIN_AFTER_S: Final = 1.5
"""Partials stop asking for the language once it was this clear on this much audio; finals always ask."""


class LiveTranscriber:
    """Hypotheses about one turn that starts at `start` (a `LiveTurn`). A second call waits for the first."""

    def __init__(
        self,
        family: SpeechFamily,
        read: ReadAudio,
        options: TranscriptionOptions,
        *,
        start: int,
        before: Sequence[int] = (),
        spoken: str | None = None,
        activity: VoiceActivityModel | None = None,
        caller: str = "",
        on_final: Callable[[Transcript], object] = lambda _: None,
    ) -> None:
        """`before`, `spoken`: see `SpeechModel.live`. `on_final` gets each final transcript once."""
        self._family = family
        # How sure the model is of its words decides which are shown.
        self._options = msgspec.structs.replace(options, logprobs=True)
        self._start = start
        self._caller = caller
        self._recording = LiveRecording(family, read, activity, start=start, before=before)
        self._memory = Memory()
        self._pinned: tuple[int, str] | None = None
        """Where a range begins, and its language."""
        self._last: str | None = None
        """The language of the last hypothesis."""
        self._spoken = spoken if spoken in (options.languages or family.facts.languages) else None
        self._lock = trio.Lock()
        self._is_closed = False
        self._on_final = on_final
        self._reported_end: int | None = None

    async def hypothesis(
        self, end: int, *, final: bool, is_pushed: bool = False, is_queued: bool = False
    ) -> Transcript:
        """The transcript of `[start, end)`; see `LiveTurn`."""
        length = end - self._start
        lane = live_lane(length, self._caller, final=final, is_pushed=is_pushed, is_queued=is_queued)
        async with self._lock:
            try:
                with working_for(lane):
                    ranges = await self._recording.ranges(end)
                    self._memory.keep_only(ranges)
                    if final:
                        self._memory.forget_provisional()
                    transcript = await transcribe_ranges(
                        self._family,
                        self._recording,
                        ranges,
                        self._memory,
                        self._options,
                        lane=lane,
                        prior=self._prior(final=final),
                        is_timed=final,
                    )
            finally:
                if self._is_closed:
                    self._recording.close()
            self._learn_language(transcript)
            if final and end != self._reported_end:
                self._reported_end = end
                self._on_final(transcript)
            if not final and transcript.language == self._spoken:
                return msgspec.structs.replace(transcript, language_probability=1.0)  # it is no surprise
            return transcript

    def close(self) -> None:
        """Give back at once what the engine keeps for the turn. May be called more than once."""
        self._is_closed = True
        self._recording.close()

    def _prior(self, *, final: bool) -> Prior | None:
        if self._pinned is not None and self._pinned[0] == self._recording.open_start and not final:
            return Prior(self._pinned[1], is_pinned=True)
        expected = self._last or self._spoken
        return Prior(expected, is_pinned=False, spoken=self._spoken) if expected else None

    def _learn_language(self, transcript: Transcript) -> None:
        self._last = transcript.language or None
        long_enough = PIN_AFTER_S * INTERNAL_RATE
        for (start, end), detected in self._memory.detected.items():
            is_clear = detected.is_speech and detected.probability >= PIN_PROBABILITY
            if is_clear and end - start >= long_enough and start == self._recording.open_start:
                self._pinned = start, detected.code
