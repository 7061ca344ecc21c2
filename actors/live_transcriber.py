"""The transcript of one turn while it is being spoken, equal to the offline one at every point asked for.

Each hypothesis covers the turn from its start to some sample. Windows that can no longer change (the turn
has outgrown them, and they were cut by the same rule as files are) keep their answers; only the open window
is encoded again, with its features extended incrementally and its previous answer as the draft. So the cost
of an update does not grow with the turn's age. Knows no turns, sockets or policies: `actors/session.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

import msgspec
import trio

from ..media.features import IncrementalLogMel
from ..media.hashing import encoder_item
from ..media.segments import find_cut
from ..protocols.messages import EncoderItem
from ..protocols.transcript import Transcript, TranscriptionOptions
from .transcriber import Range, WindowMemory, transcribe_windows
from .windows import LIVE_FINAL_PRIORITY, LIVE_PARTIAL_PRIORITY, Samples, WindowDecoder, is_silent

ReadAudio = Callable[[int, int], Samples]
"""Samples `[start, end)` of the session's timeline."""

_PIN_PROBABILITY: Final = 0.8
_PIN_AFTER_S: Final = 1.5
"""Partials stop asking for the language once it was this clear on this much audio; finals always ask."""
_INLINE_SAMPLES: Final = 16_000
"""New audio up to this long is turned into features on the spot (about 1 ms), more of it in a thread."""


class LiveTranscriber:
    """Hypotheses about one turn that starts at `start`. One call at a time."""

    def __init__(
        self, decoder: WindowDecoder, read: ReadAudio, options: TranscriptionOptions, *, start: int
    ) -> None:
        self._decoder = decoder
        self._read = read
        self._options = options
        self._start = start
        self._cuts: list[int] = []
        self._memory = WindowMemory()
        self._pinned: str | None = None
        self._likely: str | None = None
        self._open = IncrementalLogMel(decoder.features)
        self._open_start = start
        self._items: dict[Range, EncoderItem] = {}
        self._lock = trio.Lock()

    async def hypothesis(self, end: int, *, final: bool) -> Transcript:
        """The transcript of `[start, end)`; times count from the turn's start.

        A final one is exactly what `Transcriber.transcribe` gives for the same samples. A partial one may
        keep a language that was detected with confidence before, and has no word times. Asking again for
        the same range costs no encoder work. Cancelling is safe: the next call computes what is missing.
        """
        windows = self._windows(end)
        options = self._options
        if not final and options.word_timestamps:
            options = msgspec.structs.replace(options, word_timestamps=False)
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
            priority=LIVE_FINAL_PRIORITY if final else LIVE_PARTIAL_PRIORITY,
            guess=self._likely,
        )
        self._learn_language(transcript)
        return transcript

    def is_silent(self, window: Range) -> bool:
        """Whether the window holds no sound at all."""
        return is_silent(self._read(*window))

    async def item(self, window: Range) -> EncoderItem:
        """The window's features and their hash."""
        async with self._lock:
            if window not in self._items:
                is_open = window[0] == (self._cuts[-1] if self._cuts else self._start)
                self._items[window] = await (
                    self._open_item(*window) if is_open else self._whole_item(*window)
                )
            return self._items[window]

    async def _whole_item(self, start: int, end: int) -> EncoderItem:
        return await trio.to_thread.run_sync(self._decoder.item, self._read(start, end))

    async def _open_item(self, start: int, end: int) -> EncoderItem:
        if start != self._open_start or end < start + self._open.num_samples:
            # The window before was cut, or the turn ends earlier than was heard: features start afresh.
            self._open = IncrementalLogMel(self._decoder.features)
            self._open_start = start
        features, fresh = self._open, self._read(start + self._open.num_samples, end)

        def extend() -> EncoderItem:
            features.append(fresh)
            return encoder_item(features.features())

        return extend() if len(fresh) <= _INLINE_SAMPLES else await trio.to_thread.run_sync(extend)

    def _windows(self, end: int) -> list[Range]:
        """Windows of `[start, end)`, cut as `media.segments.split` cuts a whole recording."""
        size = self._decoder.window_samples
        while self._cuts and end - (self._cuts[-2] if len(self._cuts) > 1 else self._start) <= size:
            self._cuts.pop()
        start = self._cuts[-1] if self._cuts else self._start
        while end - start > size:
            window = self._read(start, start + size)
            start += find_cut(window, search_samples=self._decoder.search_samples)
            self._cuts.append(start)
        bounds = [self._start, *self._cuts, end]
        return [(first, last) for first, last in itertools.pairwise(bounds) if first < last]

    def _learn_language(self, transcript: Transcript) -> None:
        if self._options.language is not None or not self._decoder.text.is_multilingual:
            return
        self._likely = transcript.language
        for (start, end), detection in self._memory.detections.items():
            long_enough = end - start >= _PIN_AFTER_S * self._decoder.features.sampling_rate
            if detection.is_speech and detection.probability >= _PIN_PROBABILITY and long_enough:
                self._pinned = detection.language
