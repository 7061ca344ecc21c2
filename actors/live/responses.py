"""The answers of one session: carries out `Respond` and `StopResponding`, and tells what became of them.

An answer takes the way of a chat completion (`actors/text/generation.py`): the same prompt, the same engine,
so the same tokens. What it computed stays with the engine under the session's key, and the next answer of the
conversation goes on from there. It is as interactive as a chat: speech that is being spoken goes first.
Used by `actors/live/session.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Protocol, assert_never

import trio

from ...engine.models.prompts import Prompt
from ...engine.text.tools.machine import read_more
from ...protocols.chat.answer_events import (
    ArgumentsAdded,
    CallBegun,
    CallEnded,
    Event,
    ReasoningAdded,
    TextAdded,
)
from ...protocols.engine.messages import Lane, SamplingParams, SessionKey
from ...protocols.errors import InternalError, SensoriumError
from ...protocols.realtime.responses import CachedDetails, InputDetails, OutputDetails, ResponseUsage
from ...protocols.shared.generation import GenerationRequest, fitted, sampling_params
from ...realtime.dialogue.effects import (
    AnswerBegan,
    AnswerCounted,
    AnswerEnded,
    AnswerFailed,
    AnswerGrew,
    CallBegan,
    CallGrew,
    DialogueEffect,
    DialogueFact,
    EncodePair,
    ForgetFrames,
    ForgetMedia,
    ForgetPairs,
    OpenFrame,
    OpenMedia,
    ReadAhead,
    Respond,
    StopResponding,
    Warm,
)
from ...realtime.dialogue.settings import AnswerSettings
from ..inference.client import check_answer
from ..runtime.panic_guard import contained
from ..text.answer_reader import AnswerReading
from ..text.generation import TextModel, make_request
from .conversation_media import SessionMedia
from .prefill_ahead import ReadingAhead
from .video import VideoSnapshot

logger = logging.getLogger(__name__)


class OpenAnswers(Protocol):
    """Makes the answers of one session."""

    def __call__(
        self, report: Callable[[DialogueFact], Awaitable[None]], /, *, session_id: str
    ) -> LiveAnswers:
        """`report` gets what becomes of them."""
        ...


class LiveAnswers:
    """Answers by their response's id; `report` gets what becomes of them."""

    def __init__(
        self,
        model: TextModel,
        report: Callable[[DialogueFact], Awaitable[None]],
        *,
        session_id: str,
        lane: Lane,
        cache_salt: str,
        num_frames: int,
    ) -> None:
        """`num_frames`: of live video, at most."""
        self.media = SessionMedia(
            model,
            report,
            session_id=session_id,
            scope=cache_salt,
            num_frames=num_frames,
            caller=lane.caller,
        )
        """Of the conversation, to look at."""
        self._model = model
        self._report = report
        self._session_id = session_id
        self._key = SessionKey(session_id)
        self._lane = lane
        self._cache_salt = cache_salt
        self._names = (f"{session_id}-{number}" for number in count())
        self._running: dict[str, trio.CancelScope] = {}
        self._is_parked = False
        self._reading = ReadingAhead(
            self.media,
            report,
            session_id=session_id,
            lane=lane,
            cache_salt=cache_salt,
            new_name=self._names.__next__,
        )

    @property
    def num_running(self) -> int:
        """Answers being made."""
        return len(self._running)

    def perform(self, effect: DialogueEffect, nursery: trio.Nursery) -> None:
        """Carry it out, what takes time in a task of its own."""
        match effect:
            case Respond():
                if not effect.is_out_of_band:
                    self._reading.make_way()
                self._running[effect.response_id] = scope = trio.CancelScope()
                nursery.start_soon(self._respond, effect, self.media.video.snapshot(effect.clips), scope)
            case StopResponding(response_id):
                if (running := self._running.pop(response_id, None)) is not None:
                    running.cancel()
            case OpenMedia():
                self.media.open(effect, nursery)
            case ForgetMedia(item_id):
                self.media.forget(item_id)
            case Warm() | ReadAhead():
                if not self._is_parked:
                    self._reading.request(effect, nursery, self._let_go)
            case OpenFrame() | ForgetFrames() | EncodePair() | ForgetPairs():
                self.media.video.perform(effect, nursery)

    def park(self) -> None:
        """Nobody is there: keep nothing in the engine beyond the answers that are being made."""
        self._is_parked = True
        self._reading.stop()
        self._let_go()

    def unpark(self) -> None:
        """Somebody is there again."""
        self._is_parked = False

    def close(self) -> None:
        """Stop everything."""
        for scope in self._running.values():
            scope.cancel()
        self._running.clear()
        self._model.engine.close_session(self._key)

    def _let_go(self) -> None:
        if self._is_parked and not self._running and not self._reading.is_running:
            self._model.engine.close_session(self._key)

    async def _respond(self, effect: Respond, snapshot: VideoSnapshot, scope: trio.CancelScope) -> None:
        outcome: DialogueFact | None = None
        try:
            with contained, scope:
                outcome = await self._answer(effect, snapshot)
        except SensoriumError as error:
            outcome = AnswerFailed(effect.response_id, error)
        except Exception:
            logger.exception("session %s: an answer failed", self._session_id)
            outcome = AnswerFailed(effect.response_id, InternalError("the answer failed"))
        if self._running.get(effect.response_id) is scope:
            del self._running[effect.response_id]
        self._let_go()
        if outcome is not None and not scope.cancel_called:
            await self._report(outcome)

    async def _answer(self, effect: Respond, snapshot: VideoSnapshot) -> AnswerEnded:
        num_output, num_cached, reason = 0, 0, None
        placed = self.media.placed(effect.conversation, self._lane, snapshot, effect.max_tokens)
        async with placed as (place, prompt):
            reading = AnswerReading(self._model.prompter.builder, effect.conversation)
            params = reading.fit(prompt, self._params(effect.settings, prompt))
            request = make_request(
                next(self._names),
                self._model,
                prompt,
                params,
                self._lane,
                self._cache_salt,
                session=None if effect.is_out_of_band else self._key,
            )
            machine = reading.machine()
            async with place.run(request) as run:
                await self._report(AnswerBegan(effect.response_id, _usage(prompt, 0, 0)))
                async for piece in run:
                    check_answer(piece)
                    num_output += piece.num_sampled
                    num_cached = max(num_cached, piece.num_cached)
                    reason = piece.finish_reason
                    usage = _usage(prompt, num_cached, num_output)
                    await self._report(AnswerCounted(effect.response_id, usage))
                    for event in read_more(machine, piece.text, is_last=reason is not None):
                        if (fact := _fact(effect.response_id, event)) is not None:
                            await self._report(fact)
        return AnswerEnded(effect.response_id, reason == "length")

    def _params(self, settings: AnswerSettings, prompt: Prompt) -> SamplingParams:
        info, wanted = self._model.prompter.builder.info, settings.max_output_tokens
        room = self._model.prompter.builder.num_room(prompt)
        params = sampling_params(
            GenerationRequest(temperature=settings.temperature, top_p=settings.top_p, seed=settings.seed),
            max_tokens=room if wanted == "inf" else wanted,
            vocab_size=info.vocab_size,
            logprobs=None,
            defaults=info.sampling,
        )
        return fitted(params, room)


def _fact(response_id: str, event: Event) -> DialogueFact | None:
    """What a session is told of an answer; not what the model thinks."""
    match event:
        case TextAdded(text):
            return AnswerGrew(response_id, text)
        case CallBegun(_, call_id, name):
            return CallBegan(response_id, call_id, name)
        case ArgumentsAdded(_, text):
            return CallGrew(response_id, text)
        case ReasoningAdded() | CallEnded():
            return None
        case _:
            assert_never(event)


def _usage(prompt: Prompt, num_cached: int, num_output: int) -> ResponseUsage:
    """Tokens by what they stand for."""
    num_input = len(prompt.token_ids)
    images, audios, cached_images, cached_audios = 0, 0, 0, 0
    for span in prompt.spans:
        found = max(0, min(span.start + span.num_tokens, num_cached) - span.start)
        if not span.is_visual:
            audios, cached_audios = audios + span.num_tokens, cached_audios + found
        else:
            images, cached_images = images + span.num_tokens, cached_images + found
    return ResponseUsage(
        total_tokens=num_input + num_output,
        input_tokens=num_input,
        output_tokens=num_output,
        input_token_details=InputDetails(
            text_tokens=num_input - images - audios,
            image_tokens=images,
            audio_tokens=audios,
            cached_tokens=num_cached,
            cached_tokens_details=CachedDetails(
                text_tokens=num_cached - cached_images - cached_audios,
                image_tokens=cached_images,
                audio_tokens=cached_audios,
            ),
        ),
        output_token_details=OutputDetails(text_tokens=num_output),
    )
