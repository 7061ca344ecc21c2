"""The streams of one session that has no turns: one for each channel, as long as it is spoken to.

What the engine keeps for a stream can be given back and made again at any time (`park`): the stream is fed
again from the audio of the session. Used by `actors/live/session.py`; sessions with turns have
`actors/live/turns.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import trio

from ...protocols.engine.messages import ItemId
from ...protocols.errors import InternalError, SensoriumError
from ...protocols.transcription.streaming import StreamAnswer
from ...protocols.transcription.transcript import TranscriptionOptions
from ...realtime.effects import ContinueStream
from ...realtime.events import SegmentsReady, StreamFailed
from ..runtime.panic_guard import contained
from ..speech.model import LiveStream, ReadAudio, SpeechModel
from .turns import asked_patiently

logger = logging.getLogger(__name__)

Outcome = SegmentsReady | StreamFailed


class _Stream:
    """A stream, and what runs for it."""

    def __init__(self, live: LiveStream) -> None:
        self.live = live
        self.running: trio.CancelScope | None = None


class LiveCaptions:
    """Carries out a session's `ContinueStream` and `EndStream`; `report` gets the outcomes."""

    def __init__(
        self,
        models: Mapping[str, SpeechModel],
        model: str,
        report: Callable[[Outcome], Awaitable[None]],
        *,
        session_id: str,
        caller: str = "",
    ) -> None:
        """`caller` takes turns with others in the engine, where it makes a difference."""
        self._models, self._model = models, model
        self._options = TranscriptionOptions()
        self._delay_ms: int | None = None
        self._report = report
        self._session_id, self._caller = session_id, caller
        self._streams: dict[ItemId, _Stream] = {}
        self._is_parked = False

    @property
    def num_tracked(self) -> int:
        """Streams that something is remembered of."""
        return len(self._streams)

    def configure(self, model: str, options: TranscriptionOptions, delay_ms: int | None = None) -> None:
        """How streams that are first asked about later are transcribed."""
        self._model, self._options, self._delay_ms = model, options, delay_ms

    def start(
        self, effect: ContinueStream, nursery: trio.Nursery, read: ReadAudio, *, is_pushed: bool = False
    ) -> None:
        """Answer one question in a task of its own, instead of an earlier one about the same stream.

        `read` gives the audio of the stream's channel. `is_pushed`: see `LiveTurn.hypothesis`.
        """
        stream = self._streams.get(effect.stream_id)
        if stream is None:
            live = self._models[self._model].stream(
                read,
                self._options,
                start=effect.stream_start,
                nursery=nursery,
                caller=self._caller,
                delay_ms=self._delay_ms,
            )
            stream = self._streams[effect.stream_id] = _Stream(live)
        if stream.running is not None:
            stream.running.cancel()
        stream.running = trio.CancelScope()  # from now on: the stream may end before the task begins
        nursery.start_soon(self._answer, effect, stream, stream.running, is_pushed)

    def end(self, stream_id: ItemId) -> None:
        """Cancel what runs for the stream and give back what is kept for it."""
        stream = self._streams.pop(stream_id, None)
        if stream is None:
            return
        if stream.running is not None:
            stream.running.cancel()
        stream.live.release()

    def park(self) -> None:
        """Nobody is speaking: keep nothing in the engine beyond the questions that are being answered."""
        self._is_parked = True
        for stream in self._streams.values():
            if stream.running is None:
                stream.live.release()

    def unpark(self) -> None:
        """Somebody may be speaking again."""
        self._is_parked = False

    def close(self) -> None:
        """Forget everything."""
        for stream_id in tuple(self._streams):
            self.end(stream_id)

    async def _answer(
        self, effect: ContinueStream, stream: _Stream, scope: trio.CancelScope, is_pushed: bool
    ) -> None:
        outcome: Outcome
        with scope:
            await trio.lowlevel.checkpoint_if_cancelled()
            try:
                with contained:
                    ask = partial(_ask, stream.live, effect, is_pushed=is_pushed)
                    outcome = SegmentsReady(effect, await asked_patiently(ask, stream.live.release))
            except SensoriumError as error:
                outcome = StreamFailed(effect, error, stream.live.skip(effect.end_sample))
            except Exception:
                if scope.cancel_called:
                    return  # the stream has ended, and its audio with it, while a thread was reading that
                logger.exception("session %s: a transcription failed", self._session_id)
                stream.live.release()
                failure = InternalError("the transcription failed")
                outcome = StreamFailed(effect, failure, stream.live.skip(effect.end_sample))
            finally:
                if stream.running is scope:
                    stream.running = None
                    if self._is_parked:
                        stream.live.release()
        if not scope.cancel_called:
            await self._report(outcome)


async def _ask(live: LiveStream, effect: ContinueStream, *, is_pushed: bool) -> StreamAnswer:
    if effect.shown_start is None:
        start, end, segmentation = effect.start_sample, effect.end_sample, effect.segmentation
        return await live.segments(start, end, segmentation, is_pushed=is_pushed)
    return await live.conclusion(
        effect.start_sample, effect.end_sample, shown_start=effect.shown_start, is_pushed=is_pushed
    )
