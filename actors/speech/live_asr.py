"""The transcript of one turn while it is being spoken, by Qwen3-ASR, equal to the offline one.

Each hypothesis covers the turn from its start to some sample. Segments that can no longer change keep their
answers. Of the open one the features are extended, only windows that changed are new to the encoder, the KV
of everything before them stays with the engine (`Generate.session`), and the previous answer is the draft. So
the cost of an update does not grow with the turn's age. Knows no turns, sockets or policies:
`actors/live/session.py`. The rule of cutting is `actors/speech/recording.py`, the recipe
`actors/speech/segment_work.py`.
"""

from __future__ import annotations

from uuid import uuid4

import trio

from ...media.voice_activity import VoiceActivityModel
from ...media.windows import WindowedLogMel
from ...protocols.messages import EncoderItem, SessionKey
from ...protocols.transcript import Transcript, TranscriptionOptions
from .model import LIVE_FINAL, LIVE_PARTIAL, ReadAudio
from .recording import PIN_AFTER_S, PIN_PROBABILITY, LiveRecording, Range, run
from .segment_work import SegmentMemory, transcribe_segments
from .segments import SegmentDecoder


class _GrowingSegment:
    """The windows of one segment that may still change, and the session of its requests."""

    def __init__(self, features: WindowedLogMel, recording: LiveRecording, *, start: int) -> None:
        self.session = SessionKey(f"turn-{uuid4().hex}")
        self._features = features
        self._recording = recording
        self._start = start
        self._items: list[EncoderItem] = []

    async def items(self, end: int) -> tuple[EncoderItem, ...]:
        """The windows up to sample `end`, which may lie before the last one asked for."""
        num_samples = end - self._start
        if num_samples < self._features.num_samples:
            behind = self._start + num_samples
            first = max(self._start, behind - self._features.num_rewind_samples)
            self._features.rewind(num_samples, self._recording.read(first, behind))
        fresh = self._recording.read(self._start + self._features.num_samples, end)

        def extend() -> None:
            self._features.append(fresh)
            for change in self._features.changes():
                self._items[change.index : change.index + 1] = [change.item]
            del self._items[self._features.num_windows :]

        await run(extend, len(fresh))
        return tuple(self._items)


class LiveAsr:
    """Hypotheses about one turn that starts at `start` (a `LiveTurn`). A second call waits for the first."""

    def __init__(
        self,
        decoder: SegmentDecoder,
        read: ReadAudio,
        options: TranscriptionOptions,
        *,
        start: int,
        activity: VoiceActivityModel | None = None,
    ) -> None:
        self._decoder = decoder
        self._options = options
        self.recording = LiveRecording(decoder.cut_rule, read, activity, start=start)
        self._memory = SegmentMemory()
        self._pinned: str | None = None
        self._growing: dict[int, _GrowingSegment] = {}
        self._lock = trio.Lock()
        self._is_closed = False

    async def hypothesis(self, end: int, *, final: bool) -> Transcript:
        """The transcript of `[start, end)`; see `LiveTurn`."""
        async with self._lock:
            segments = self.recording.ranges(end)
            self._memory.keep_only(segments)
            try:
                transcript = await transcribe_segments(
                    self._decoder,
                    segments,
                    self,
                    self._memory,
                    self._options,
                    lane=LIVE_FINAL if final else LIVE_PARTIAL,
                    pinned=None if final else self._pinned,
                    is_timed=final,
                )
                self._let_go(keep=self.recording.open_start)
            finally:
                if self._is_closed:
                    self._let_go()
            self._learn_language()
            return transcript

    def close(self) -> None:
        """Give back at once what the engine keeps for the turn. May be called more than once."""
        self._is_closed = True
        self._let_go()

    async def items(self, segment: Range) -> tuple[EncoderItem, ...]:
        """The segment's windows."""
        return await self._grow(segment).items(segment[1])

    def session(self, segment: Range) -> SessionKey:
        """What the engine keeps the segment's KV under."""
        return self._grow(segment).session

    def _grow(self, segment: Range) -> _GrowingSegment:
        start = segment[0]
        if start not in self._growing:
            features = self._decoder.new_features()
            self._growing[start] = _GrowingSegment(features, self.recording, start=start)
        return self._growing[start]

    def _let_go(self, *, keep: int | None = None) -> None:
        """Forget all segments but the one that starts at `keep`."""
        for start in [start for start in self._growing if start != keep]:
            self._decoder.engine.close_session(self._growing.pop(start).session)

    def _learn_language(self) -> None:
        long_enough = PIN_AFTER_S * self._decoder.features.sampling_rate
        choices = dict(self._memory.choices)
        for (segment, forced), answer in self._memory.answers.items():
            if forced is None and answer.text and answer.choice is not None:
                choices[segment] = answer.choice
        for (start, end), choice in choices.items():
            if choice.probability >= PIN_PROBABILITY and end - start >= long_enough:
                self._pinned = choice.language
