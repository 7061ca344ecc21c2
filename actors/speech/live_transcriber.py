"""The transcript of one turn while it is being spoken, equal to the offline one at every point asked for.

Each hypothesis covers the turn from its start to some sample. Windows that can no longer change (the turn
has outgrown them, and they were cut by the same rule as files are) keep their answers; only the open window
is encoded again, with its features extended incrementally and its previous answer as the draft. So the cost
of an update does not grow with the turn's age. Knows no turns, sockets or policies: `actors/live/session.py`.
"""

from __future__ import annotations

import msgspec
import trio

from ...media.features import IncrementalLogMel
from ...media.hashing import encoder_item
from ...media.voice_activity import VoiceActivityModel
from ...protocols.messages import EncoderItem
from ...protocols.transcript import Transcript, TranscriptionOptions
from .model import LIVE_FINAL, LIVE_PARTIAL, ReadAudio
from .recording import PIN_AFTER_S, PIN_PROBABILITY, LiveRecording, Range, run
from .window_work import WindowMemory, transcribe_windows
from .windows import WindowDecoder


class LiveTranscriber:
    """Hypotheses about one turn that starts at `start` (a `LiveTurn`). One call at a time."""

    def __init__(
        self,
        decoder: WindowDecoder,
        read: ReadAudio,
        options: TranscriptionOptions,
        *,
        start: int,
        activity: VoiceActivityModel | None = None,
    ) -> None:
        self._decoder = decoder
        self._options = options
        self.recording = LiveRecording(decoder.cut_rule, read, activity, start=start)
        self._memory = WindowMemory()
        self._pinned: str | None = None
        self._likely: str | None = None
        self._open = IncrementalLogMel(decoder.features)
        self._open_start = start
        self._items: dict[Range, EncoderItem] = {}
        self._lock = trio.Lock()

    async def hypothesis(self, end: int, *, final: bool) -> Transcript:
        """The transcript of `[start, end)`; see `LiveTurn`."""
        windows = self.recording.ranges(end)
        options = self._options
        if not final and options.language is None and self._pinned is not None:
            options = msgspec.structs.replace(options, language=self._pinned)
        self._memory.keep_only(windows)
        self._items = {window: item for window, item in self._items.items() if window in windows[-1:]}
        transcript = await transcribe_windows(
            self._decoder,
            windows,
            self,
            self._memory,
            options,
            lane=LIVE_FINAL if final else LIVE_PARTIAL,
            guess=self._likely,
            is_timed=final,
        )
        self._learn_language(transcript)
        return transcript

    def close(self) -> None:
        """Nothing to give back: between hypotheses the engine keeps nothing of the turn that is its own."""

    async def item(self, window: Range) -> EncoderItem:
        """The window's features and their hash."""
        async with self._lock:
            if window not in self._items:
                is_open = window[0] == self.recording.open_start
                self._items[window] = await (
                    self._open_item(*window) if is_open else self._whole_item(*window)
                )
            return self._items[window]

    async def _whole_item(self, start: int, end: int) -> EncoderItem:
        return await trio.to_thread.run_sync(self._decoder.item, self.recording.read(start, end))

    async def _open_item(self, start: int, end: int) -> EncoderItem:
        if start != self._open_start or end < start + self._open.num_samples:
            # The window before was cut, or the turn ends earlier than was heard: features start afresh.
            self._open = IncrementalLogMel(self._decoder.features)
            self._open_start = start
        features, fresh = self._open, self.recording.read(start + self._open.num_samples, end)

        def extend() -> EncoderItem:
            features.append(fresh)
            return encoder_item(features.features())

        return await run(extend, len(fresh))

    def _learn_language(self, transcript: Transcript) -> None:
        if self._options.language is not None or not self._decoder.text.is_multilingual:
            return
        self._likely = transcript.language or None
        for (start, end), detection in self._memory.choices.items():
            long_enough = end - start >= PIN_AFTER_S * self._decoder.features.sampling_rate
            if detection.is_speech and detection.probability >= PIN_PROBABILITY and long_enough:
                self._pinned = detection.language
