"""A speech model that sees whole windows: a recording is overlapping ones, and so is a live turn whenever it
is asked about.

Windows are requests of their own, several in hand at once, so the engine batches those of one recording and
of several. A turn keeps the answers about windows that can no longer change; the newest is asked for again.
Read `windows.py` for how they are joined, `actors/speech/model.py` for what is promised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

import msgspec
import numpy as np
import trio

from ....media.speech.voice_activity import VoiceActivityModel
from ....media.transcript.range_answer import Range, Samples
from ....protocols.engine.messages import (
    Features,
    InputChunk,
    Lane,
    Request,
    RequestId,
    Transduce,
    Transduced,
    TransduceRequest,
)
from ....protocols.errors import BadRequestError
from ....protocols.shared.audio_format import INTERNAL_RATE
from ....protocols.transcription.streaming import ChunkDelay
from ....protocols.transcription.transcript import Transcript, TranscriptionOptions
from ...runtime.compute_pool import compute, give_way
from ...runtime.nursery import open_work
from ..model import LiveStream, ReadAudio, live_lane
from ..part_model import PartModel
from ..parts import PartTranscriber, ReadPart
from ..recording import SilenceDetector
from ..streaming.reader import TokenReader
from .family import Frames, WindowedFamily
from .windows import PlacedToken, WindowJoiner, windows_of

WINDOWS_AT_ONCE: Final = 4
"""Windows of one recording in hand at once: the next ones are there when the engine ends a step."""
_TASK: Final = Transduce(logprobs=True)
_PIECE: Final = 10 * INTERNAL_RATE
"""Samples that are listened to before others may go first."""

Answers = dict[Range, Sequence[PlacedToken]]
"""The tokens of windows, by their frames. Those of a token count from the window's first."""


class WindowedTranscriber(PartModel[WindowedFamily]):
    """Transcribes with one model (a `SpeechModel`). Holds no state of any request. Windows in which voice
    activity finds nobody are not transcribed."""

    delays: tuple[ChunkDelay, ...] = ()

    def part_reader(self, options: TranscriptionOptions, lane: Lane) -> ReadPart:
        """Gives the tokens of parts, each by its windows."""
        return WindowWork(self.family, self._activity, lane).read

    def live(
        self,
        read: ReadAudio,
        options: TranscriptionOptions,
        *,
        start: int,
        before: Sequence[int] = (),
        spoken: str | None = None,
        caller: str = "",
        delay_ms: int | None = None,
        nursery: trio.Nursery | None = None,
    ) -> WindowedTurn:
        """See `SpeechModel.live`; a turn is heard alone."""
        return WindowedTurn(self, read, options, start=start, caller=caller)

    def stream(
        self,
        read: ReadAudio,
        options: TranscriptionOptions,
        *,
        start: int,
        nursery: trio.Nursery,
        caller: str = "",
        delay_ms: int | None = None,
    ) -> LiveStream:
        """See `SpeechModel.stream`."""
        raise BadRequestError("this model does not stream", code="unsupported_parameter")

    async def hypothesis(
        self, samples: Samples, options: TranscriptionOptions, lane: Lane, known: Answers
    ) -> Transcript:
        """The transcript of a turn so far. `known` are answers about it, to which those that are missing are
        added, and of which others are dropped."""
        work = WindowWork(self.family, self._activity, lane, known)
        return await PartTranscriber(
            family=self.family, activity=None, read=work.read, options=options
        ).transcribe(samples, lane)

    def count(self, transcript: Transcript) -> None:
        """A turn has ended."""
        self._counts.count(transcript)


class WindowedTurn:
    """A turn that starts at `start` (a `LiveTurn`). A second call waits for the first."""

    def __init__(
        self,
        transcriber: WindowedTranscriber,
        read: ReadAudio,
        options: TranscriptionOptions,
        *,
        start: int,
        caller: str,
    ) -> None:
        self._transcriber, self._read = transcriber, read
        # How sure the model is of its words decides which are shown.
        self._options = msgspec.structs.replace(options, logprobs=True, clips=(), speech_filter=None)
        self._start, self._caller = start, caller
        self._known: Answers = {}
        self._lock = trio.Lock()
        self._reported_end: int | None = None

    async def hypothesis(
        self, end: int, *, final: bool, is_pushed: bool = False, is_queued: bool = False
    ) -> Transcript:
        """The transcript of `[start, end)`; see `LiveTurn`."""
        options = self._options
        if not final:
            options = msgspec.structs.replace(options, word_timestamps=False, segment_timestamps=False)
        length = end - self._start
        lane = live_lane(length, self._caller, final=final, is_pushed=is_pushed, is_queued=is_queued)
        async with self._lock:
            await trio.lowlevel.checkpoint_if_cancelled()
            samples = self._read(self._start, end)
            transcript = await self._transcriber.hypothesis(samples, options, lane, self._known)
            if final and end != self._reported_end:
                self._reported_end = end
                self._transcriber.count(transcript)
            return transcript

    def close(self) -> None:
        """See `LiveTurn`: the engine keeps nothing between questions."""


@dataclass(slots=True)
class WindowWork:
    """One recording, or one question about a turn."""

    family: WindowedFamily
    activity: VoiceActivityModel | None
    lane: Lane
    known: Answers | None = None
    """Answers that were given before, where any are kept."""

    async def read(
        self, samples: Samples, part: Range, reader: TokenReader, on_tokens: Callable[[], None]
    ) -> None:
        """See `ReadPart`."""
        family = self.family
        start, end = part
        num_rows = -(-(end - start) // family.row_samples)
        windows = windows_of(num_rows, family.window_rows, family.overlap_rows)
        found: Answers = {}
        if self.known is not None:
            for window in self.known.keys() - {_samples_of(each, part, family) for each in windows}:
                del self.known[window]
        limit = trio.CapacityLimiter(WINDOWS_AT_ONCE)
        joiner, num_joined = WindowJoiner(family.text.begins_word), 0

        async def one(index: int) -> None:
            nonlocal num_joined
            try:
                found[windows[index]] = await self._answer(samples, _samples_of(windows[index], part, family))
            finally:
                limit.release_on_behalf_of(index)
            while num_joined < len(windows) and windows[num_joined] in found:
                window = windows[num_joined]
                num_joined += 1
                next_start = windows[num_joined][0] if num_joined < len(windows) else None
                placed = [
                    each._replace(start=each.start + window[0], end=each.end + window[0])
                    for each in found.pop(window)
                ]
                _give(reader, joiner.push(placed, window, next_start), num_rows, is_last=next_start is None)
                on_tokens()

        async with open_work() as nursery:
            for index in range(len(windows)):
                await limit.acquire_on_behalf_of(index)
                nursery.start_soon(one, index)

    async def _answer(self, samples: Samples, window: Range) -> Sequence[PlacedToken]:
        """The tokens of a window, from its first frame on."""
        if self.known is not None and window in self.known:
            return self.known[window]
        frames = await compute(self._features, samples[window[0] : window[1]])
        tokens = () if frames is None else await self._transduce(frames)
        if self.known is not None:
            self.known[window] = tokens
        return tokens

    def _features(self, samples: Samples) -> Frames | None:
        """The features of a window; None if nobody speaks in it."""
        detector = SilenceDetector(self.activity)
        for start in range(0, len(samples), _PIECE):
            detector.push(samples[start : start + _PIECE])
            give_way()
        if detector.is_silent(len(samples)):
            return None
        frames = self.family.features(samples)
        return frames if frames.shape[1] else None

    async def _transduce(self, frames: Frames) -> Sequence[PlacedToken]:
        chunk = InputChunk(
            Features(frames.shape, np.ascontiguousarray(frames).tobytes()), frames.shape[1], is_last=True
        )
        request: TransduceRequest = Request(RequestId(f"window-{uuid4().hex}"), (), _TASK, lane=self.lane)
        async with self.family.engine.placed(lane=self.lane) as place, place.run(request) as run:
            await run.feed(chunk)
            while not isinstance(event := await run.outcome(), Transduced):
                # A better class has taken its states before it was computed.
                await run.feed(msgspec.structs.replace(chunk, is_first=True))
        ends = event.ends or tuple(frame + 1 for frame in event.frames)
        return tuple(map(PlacedToken, event.token_ids, event.frames, ends, event.logprobs))


def _samples_of(window: tuple[int, int], part: Range, family: WindowedFamily) -> Range:
    """The samples of a window of a part."""
    start, end = (part[0] + family.row_samples * row for row in window)
    return start, min(end, part[1])


def _give(reader: TokenReader, tokens: Sequence[PlacedToken], num_rows: int, *, is_last: bool) -> None:
    """Have the reader read on."""
    token_ids, starts, ends, logprobs = zip(*tokens, strict=True) if tokens else ((), (), (), ())
    reader.push(
        Transduced(
            RequestId(""),
            token_ids,
            starts,
            logprobs,
            num_frames=num_rows if is_last else 0,
            finish_reason="stop" if is_last else None,
            ends=ends,
        )
    )
