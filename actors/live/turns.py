"""The transcriptions of one session: what runs for which item, and what the models keep for it.

A turn's state in the engine can be given back and made again at any time (`park`): the audio is the
session's, and asking a new `LiveTurn` about the same range gives the same transcript. Used by
`actors/live/session.py`, which says when.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeVar

import trio

from ...protocols.engine.messages import ItemId
from ...protocols.errors import InternalError, SensoriumError, UnavailableError
from ...protocols.transcription.transcript import Transcript, TranscriptionOptions
from ...realtime.effects import Transcribe
from ...realtime.events import HypothesisFailed, HypothesisReady
from ..runtime.panic_guard import contained
from ..speech.model import LiveTurn, ReadAudio, SpeechModel

logger = logging.getLogger(__name__)

T = TypeVar("T")

Outcome = HypothesisReady | HypothesisFailed

CLEAR_LANGUAGE: Final = 0.8
"""What was said in a language that is less clear does not count for what is said next."""
PATIENCE_S: Final = 120.0
"""So long the end of a turn waits for a model that is to come back."""
_LEAST_WAIT_S: Final = 0.5
_MOST_WAIT_S: Final = 5.0


class _Turn:
    """One item: how it is transcribed, its state in the engine if there is any, and what runs for it."""

    def __init__(self, make: Callable[[], LiveTurn]) -> None:
        self.make = make
        self.live: LiveTurn | None = None
        self.running: trio.CancelScope | None = None
        self.requested: Transcribe | None = None
        """The newest question."""

    def is_ending(self, channel: int) -> bool:
        """Whether it is one of that channel whose end is being transcribed."""
        requested = self.requested if self.running is not None else None
        return requested is not None and requested.final and requested.channel == channel

    def release(self) -> None:
        """Give back what is kept for the turn."""
        if self.live is not None:
            self.live.close()
            self.live = None


class LiveTurns:
    """Carries out a session's `Transcribe` and `ForgetItem`; `report` gets the outcomes."""

    def __init__(
        self,
        models: Mapping[str, SpeechModel],
        model: str,
        report: Callable[[Outcome], Awaitable[None]],
        *,
        session_id: str,
        caller: str = "",
    ) -> None:
        self._models = models
        self._model = model
        self._options = TranscriptionOptions()
        self._delay_ms: int | None = None
        self._report = report
        self._session_id = session_id
        self.caller = caller
        """Who takes turns with others in the engine, where it makes a difference."""
        self._turns: dict[ItemId, _Turn] = {}
        self._spoken: dict[int, tuple[int, str]] = {}
        """By channel the last turn whose language was clear: its first sample, and that language."""
        self._is_parked = False

    @property
    def num_held(self) -> int:
        """Turns that something is kept for in the engine."""
        return sum(turn.live is not None for turn in self._turns.values())

    @property
    def num_tracked(self) -> int:
        """Turns that something is remembered of."""
        return len(self._turns)

    def configure(self, model: str, options: TranscriptionOptions, delay_ms: int | None = None) -> None:
        """How items that are first asked about later are transcribed."""
        self._model, self._options, self._delay_ms = model, options, delay_ms

    def start(
        self, effect: Transcribe, nursery: trio.Nursery, read: ReadAudio, *, is_pushed: bool = False
    ) -> None:
        """Answer one question in a task of its own, instead of an earlier one about the same item.

        `read` gives the audio of the item's channel. `is_pushed`: see `LiveTurn.hypothesis`.
        """
        turn = self._turns.get(effect.item_id)
        if turn is None:
            make = partial(
                self._models[self._model].live,
                read,
                self._options,
                start=effect.start_sample,
                before=effect.before,
                spoken=self._spoken[effect.channel][1] if effect.channel in self._spoken else None,
                caller=self.caller,
                delay_ms=self._delay_ms,
                nursery=nursery,
            )
            turn = _Turn(make)
            self._turns[effect.item_id] = turn
        if turn.running is not None:
            turn.running.cancel()
        others = (each for each in self._turns.values() if each is not turn)
        is_queued = effect.final and any(each.is_ending(effect.channel) for each in others)
        turn.requested = effect
        turn.running = trio.CancelScope()  # from now on: the turn may be forgotten before the task begins
        nursery.start_soon(self._transcribe, effect, turn, turn.running, is_pushed, is_queued)

    def forget(self, item_id: ItemId) -> None:
        """Cancel what runs for the item and give back what is kept for it."""
        turn = self._turns.pop(item_id, None)
        if turn is None:
            return
        if turn.running is not None:
            turn.running.cancel()
        turn.release()

    def park(self) -> None:
        """Nobody is speaking: keep nothing in the engine beyond the questions that are being answered."""
        self._is_parked = True
        for turn in self._turns.values():
            if turn.running is None:
                turn.release()

    def unpark(self) -> None:
        """Somebody may be speaking again."""
        self._is_parked = False

    def close(self) -> None:
        """Forget everything."""
        for item_id in tuple(self._turns):
            self.forget(item_id)

    async def _transcribe(
        self, effect: Transcribe, turn: _Turn, scope: trio.CancelScope, is_pushed: bool, is_queued: bool
    ) -> None:
        outcome: Outcome
        with scope:
            await trio.lowlevel.checkpoint_if_cancelled()
            try:
                with contained:
                    transcript = await self._hypothesis(effect, turn, is_pushed, is_queued)
                if effect.final and transcript.text and transcript.language_probability >= CLEAR_LANGUAGE:
                    self._learn_language(effect, transcript.language)
                outcome = HypothesisReady(*effect.question, transcript)
            except SensoriumError as error:
                outcome = HypothesisFailed(*effect.question, error)
            except Exception:
                if scope.cancel_called:
                    return  # the turn was forgotten, and its audio with it, while a thread was reading that
                logger.exception("session %s: a transcription failed", self._session_id)
                outcome = HypothesisFailed(*effect.question, InternalError("the transcription failed"))
            finally:
                if turn.running is scope:
                    turn.running = None
                    if self._is_parked:
                        turn.release()
        if not scope.cancel_called:
            await self._report(outcome)

    async def _hypothesis(
        self, effect: Transcribe, turn: _Turn, is_pushed: bool, is_queued: bool
    ) -> Transcript:
        """What the model says; only of a turn's end is it asked again."""

        async def ask() -> Transcript:
            turn.live = turn.live or turn.make()
            return await turn.live.hypothesis(
                effect.end_sample, final=effect.final, is_pushed=is_pushed, is_queued=is_queued
            )

        return await asked_patiently(ask, turn.release) if effect.final else await ask()

    def _learn_language(self, effect: Transcribe, language: str) -> None:
        """A long turn may be answered behind a short one that came after it, and was not said last."""
        last = self._spoken.get(effect.channel)
        if last is None or last[0] <= effect.start_sample:
            self._spoken[effect.channel] = (effect.start_sample, language)


async def asked_patiently(ask: Callable[[], Awaitable[T]], release: Callable[[], object]) -> T:
    """What a model says. If it goes down, what it keeps is released, and it is asked again when it is back:
    the audio is there. Whoever was in it when it went down is in it once more only, for that may be why."""
    give_up_at, was_lost = trio.current_time() + PATIENCE_S, False
    while True:
        try:
            return await ask()
        except UnavailableError as error:
            is_lost = error.code != "engine_unavailable"
            is_over = error.retry_after_s is None or trio.current_time() >= give_up_at
            if is_over or (is_lost and was_lost):
                raise
            release()
            was_lost |= is_lost
            await trio.sleep(min(max(error.retry_after_s or 0.0, _LEAST_WAIT_S), _MOST_WAIT_S))
