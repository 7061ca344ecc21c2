"""The conversation of a session that answers: items come and go, responses are made of them.

One response at a time belongs to the conversation, up to `max_responses` in all are made; one waits until
what it answers to is there: the transcripts of turns, the pictures of items. **Turns** that the server found
in the audio become items as they are committed. With `create_response` (unless switched off) the end of one
is answered once its transcript is there and has words (`realtime/dialogue/pending_answers.py`); with
`interrupt_response` the beginning of one ends the answer in progress, which keeps what was said of it
(`status: incomplete`, reason `turn_detected`).

**Too long a conversation** for the model's context loses its oldest items, questions and answers alike but
never the newest one, and the client is told (`conversation.truncated`; `realtime/dialogue/truncation.py`);
with `truncation: disabled` the response fails instead.

Between `realtime/session.py`, which hands it the client's wishes and what it is told of turns, and its parts
`items.py` and `responses.py`. Pure: effects and events are `realtime/dialogue/effects.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from typing import assert_never

from ...protocols.chat.request import Conversation
from ...protocols.engine.messages import ItemId
from ...protocols.errors import BadRequestError, SensoriumError
from ...protocols.realtime.conversation_events import DialogueClientEvent
from ...protocols.realtime.events import (
    ConversationItemInputAudioTranscriptionCompleted,
    ConversationItemInputAudioTranscriptionDelta,
    ConversationItemInputAudioTranscriptionFailed,
    InputAudioBufferCleared,
    InputAudioBufferCommitted,
    InputAudioBufferSpeechStarted,
    ServerEvent,
)
from ...protocols.realtime.responses import EndReason, ResponseCancel, ResponseCreate
from ...protocols.realtime.session import CaptionsView, TurnDetectionView
from ...protocols.realtime.video import (
    InputImageBufferAppend,
    InputImageBufferClear,
    InputImageBufferCommit,
    VideoClientEvent,
)
from ...protocols.shared.container_format import InputFormat
from ..outgoing import Outgoing
from .config import DialogueConfig
from .editor import Editor
from .effects import (
    AnswerBegan,
    AnswerCounted,
    AnswerEnded,
    AnswerFact,
    AnswerFailed,
    AnswerGrew,
    CallBegan,
    CallGrew,
    DialogueFact,
    FrameOpened,
    FrameRefused,
    HasReadAhead,
    MediaOpened,
    MediaRefused,
    PairEncoded,
    PairRefused,
    ReadAhead,
    Respond,
    StopResponding,
    Warm,
)
from .items import Item
from .pending_answers import OwedAnswers
from .prompt import clip_parts, conversation
from .responses import Ending, Response
from .settings import AnswerSettings, DialogueSettings, initial_settings, of_response
from .truncation import Size, Truncator
from .video import Video

DialogueRequest = DialogueClientEvent | ResponseCreate | ResponseCancel | VideoClientEvent
_TOO_LONG = "context_length_exceeded"


class Dialogue:
    """Items and responses. After every input `advance` does what follows from the new state."""

    def __init__(self, config: DialogueConfig, outgoing: Outgoing, new_id: Callable[[str], str]) -> None:
        self.config = config
        self.settings: DialogueSettings = initial_settings(config)
        self._editor = Editor(config, outgoing, new_id)
        self.items = self._editor.items
        self.video = Video(config, self.items, outgoing, new_id, make_room=self._editor.make_room)
        """What is seen live."""
        self._truncator = Truncator(config, self.items, self._editor.drop)
        self._has_talked = False  # items came or went since the truncator was last asked
        self.responses: dict[str, Response] = {}
        """Those being made."""
        self.is_draining = False
        """No more responses are begun."""
        self.is_committing = False
        """It is the client that ends a turn just now: it will ask for the answer itself."""
        self._interrupts = self._answers_turns = False
        self._id = new_id("conv")
        self._outgoing = outgoing
        self._new_id = new_id
        self._owed = OwedAnswers(self.items)

    @property
    def is_idle(self) -> bool:
        """Nothing is being answered, or about to be."""
        return not self.responses and not self._owed.turns

    @property
    def active(self) -> Response | None:
        """The response of the conversation."""
        return next((each for each in self.responses.values() if not each.is_out_of_band), None)

    def make_place(self) -> ItemId | None:
        """A turn comes: what was seen before it is complete. The id of the item that it comes behind."""
        self.video.seal()
        self._editor.make_room()
        return self.items.last_id

    def receive(self, event: DialogueRequest, audio_format: InputFormat, *, now: float) -> None:
        """What the client asked for. Raises ClientError and changes nothing."""
        match event:
            case InputImageBufferAppend():
                self.video.append(event, now=now)
            case InputImageBufferCommit():
                self.video.commit()
            case InputImageBufferClear():
                self.video.clear()
            case ResponseCreate():
                self._create_response(event, audio_format)
            case ResponseCancel():
                self._end(self._to_cancel(event.response_id or None), "cancelled", reason="client_cancelled")
            case _:
                self._editor.receive(event, audio_format, at_end=self.video.seal)
                self._has_talked = True

    def configure(self, settings: DialogueSettings, detection: TurnDetectionView | None) -> None:
        """Use other settings for what begins later."""
        self._has_talked |= settings != self.settings
        self.settings = settings
        self.video.settings = settings.video
        turns = None if isinstance(detection, CaptionsView) else detection
        self._interrupts = turns is not None and turns.interrupt_response is not False
        self._answers_turns = turns is not None and turns.create_response is not False
        if detection is None and self._owed.is_postponed:
            self._owed.clear()  # who speaks is committed by the client

    def follow(self, event: ServerEvent) -> None:
        """What the client is told; of interest is what becomes of turns."""
        match event:
            case InputAudioBufferSpeechStarted(item_id=item_id):
                self._editor.follow_turn(item_id)
                if self._interrupts:
                    self._owed.is_postponed = True
                    if (active := self.active) is not None:
                        self._owed.again(active.unanswered)
                        self._end(active, "cancelled", reason="turn_detected")
            case InputAudioBufferCleared():
                self._editor.follow_turn(None)
                self._owed.is_postponed = False
            case InputAudioBufferCommitted(item_id=item_id):
                turn = self._editor.add_turn(item_id)
                self._owed.turn_ended(turn, is_answered=self._answers_turns, by_client=self.is_committing)
            case ConversationItemInputAudioTranscriptionDelta(item_id=item_id):
                self._editor.follow_turn(item_id)
            case ConversationItemInputAudioTranscriptionCompleted(item_id=item_id, transcript=transcript):
                self._editor.transcribed(item_id, transcript)
                self._has_talked = True
            case ConversationItemInputAudioTranscriptionFailed(item_id=item_id):
                self._editor.transcribed(item_id, "")
            case _:
                pass

    def learn(self, fact: DialogueFact) -> None:
        """What the actor reports; about what is over, nothing."""
        match fact:
            case MediaOpened() | MediaRefused():
                self._editor.media_opened(fact)
                self._has_talked = True
            case FrameOpened() | FrameRefused():
                self.video.frame_opened(fact)
            case PairEncoded() | PairRefused():
                self.video.encoded(fact)
            case HasReadAhead(plan):
                if plan == self._plan:
                    self.video.let_go()
                    self._truncator.let_go()
            case _:
                self._answered(fact)

    def _answered(self, fact: AnswerFact) -> None:
        response = self.responses.get(fact.response_id)
        if response is None:
            return
        match fact:
            case AnswerBegan():
                self._truncator.learn(response.size, fact.usage.input_tokens)
                response.begin(fact.usage)
            case AnswerCounted():
                response.usage = fact.usage
            case AnswerGrew():
                response.grow(fact.text)
            case CallBegan():
                # Some models number the calls of each answer from 0.
                is_taken = self.items.knows_call(fact.call_id)
                response.call(self._new_id("call") if is_taken else fact.call_id, fact.name)
            case CallGrew():
                response.grow_call(fact.arguments)
            case AnswerEnded():
                self._end(response, "incomplete" if fact.is_cut else "completed", fact=fact)
            case AnswerFailed():
                if not self._shortened(response, fact.error):
                    self._end(response, "failed", error=fact.error)
            case _:
                assert_never(fact)

    def advance(self) -> None:
        """Begin the response that is owed, and ask for those whose conversation is complete."""
        self._start_ready()
        if self.active is None and self._owed.are_due:
            self._begin_owed()
            self._start_ready()
        if self.is_idle and (self._has_talked or self.video.has_news):
            self._has_talked = False
            if self._truncator.settle(self.settings) or self.video.has_news or self._truncator.is_leaving:
                self.video.has_news = False
                self._warm()

    def _start_ready(self) -> None:
        for response in tuple(self.responses.values()):
            if response.is_ready and not response.is_started:
                response.is_started = True
                items = [item for item in response.context if response.has_input or item in self.items]
                prompt = conversation(items, response.settings)
                if prompt.messages:
                    self._start(response, items, prompt)
                else:
                    error = BadRequestError("there is nothing to answer to", code="conversation_empty")
                    self._end(response, "failed", error=error)

    def _start(self, response: Response, items: list[Item], prompt: Conversation) -> None:
        most = None
        if not (response.has_input or response.may_fill):
            most = self._truncator.bound(self.settings, response.settings)
        response.size = Size.of(items).plus(Size.of_instructions(response.settings))
        clips = clip_parts(items, self.video.origin_ms)
        self._outgoing.do(
            Respond(response.id, prompt, response.settings, response.is_out_of_band, clips, most)
        )

    def _warm(self) -> None:
        """Have what was seen read, up to the first item that is not ready; and what will be left of it."""
        items = list(takewhile(lambda item: not item.waits or item.clip is not None, self.items))
        clips = clip_parts(items, self.video.origin_ms)
        if clips:
            self._outgoing.do(Warm(conversation(items, self.settings.answers), clips))
        if self.video.is_leaving or self._truncator.is_leaving:
            items = [item for item in items if not item.is_leaving]
            items = [item for item in items if item.clip is None or not item.clip.is_leaving]
            if (ahead := conversation(items, self.settings.answers)).messages:
                clips = clip_parts(items, self.video.origin_ms, is_ahead=True)
                self._outgoing.do(ReadAhead(self._plan, ahead, clips))

    @property
    def _plan(self) -> int:
        """Another one whenever something else is leaving."""
        return self.video.plan + self._truncator.plan

    def close(self, error: SensoriumError) -> None:
        """The session ends: so do the responses."""
        self._owed.clear()
        for response in tuple(self.responses.values()):
            self._end(response, "failed", error=error)

    def check(self) -> None:
        """Assert the invariants between inputs."""
        self.items.check()
        assert len(self.responses) <= self.config.max_responses
        assert sum(not each.is_out_of_band for each in self.responses.values()) <= 1
        for response in self.responses.values():
            assert response.is_started or not response.is_ready
            assert response.is_out_of_band or all(item in self.items for item in response.outputs[-1:])
        assert self.active is not None or not self._owed.are_due

    def _create_response(self, event: ResponseCreate, audio_format: InputFormat) -> None:
        settings = of_response(self.settings, event.options, self.config)
        if not event.options.is_out_of_band and self.active is not None:
            raise BadRequestError(
                f"the conversation is being answered by {self.active.id}; cancel it, or wait for its end",
                code="conversation_already_has_active_response",
            )
        self._check_may_begin(is_out_of_band=event.options.is_out_of_band)
        if event.input is None:
            self.video.seal()
        context = tuple(self.items)
        if event.input is not None:
            context = self._editor.given(event.input, audio_format)
        self._begin(
            settings,
            context,
            is_out_of_band=event.options.is_out_of_band,
            has_input=event.input is not None,
            metadata=event.options.metadata or None,
        )

    def _check_may_begin(self, *, is_out_of_band: bool) -> None:
        """Raise BadRequestError if no response may be begun."""
        if self.is_draining:
            raise BadRequestError("the server is restarting", code="server_draining")
        # One place is the conversation's.
        most = self.config.max_responses - (1 if is_out_of_band and self.active is None else 0)
        if len(self.responses) >= most:
            raise BadRequestError(
                f"{len(self.responses)} responses are being made, which is the limit",
                code="too_many_responses",
            )

    def _begin(
        self,
        settings: AnswerSettings,
        context: tuple[Item, ...],
        *,
        is_out_of_band: bool = False,
        has_input: bool = False,
        metadata: dict[str, str] | None = None,
    ) -> None:
        turns = () if is_out_of_band else self._owed.answered_by(context)
        response = Response(
            self._new_id("resp"),
            self._outgoing,
            settings,
            new_item_id=lambda: ItemId(self._new_id("item")),
            place=self._place,
            before=self.items.before,
            conversation_id=None if is_out_of_band else self._id,
            metadata=metadata,
            context=context,
            turns=turns,
            has_input=has_input,
        )
        self.responses[response.id] = response
        response.create()

    def _begin_owed(self) -> None:
        """Answer the turns that have ended; nothing is no question."""
        if any(item.message() is not None for item in self._owed.turns) and not self.is_draining:
            items = tuple(item for item in self.items if item is not self.video.open)
            self._begin(self.settings.answers, items)
        self._owed.clear()

    def _to_cancel(self, response_id: str | None) -> Response:
        found = self.active if response_id is None else self.responses.get(response_id)
        if found is None:
            raise BadRequestError(
                "there is no such response in progress",
                code="response_cancel_not_active",
                param="response_id",
            )
        return found

    def _end(
        self,
        response: Response,
        status: Ending,
        *,
        reason: EndReason | None = None,
        error: SensoriumError | None = None,
        fact: AnswerEnded | None = None,
    ) -> None:
        """The one way in which a response ends."""
        del self.responses[response.id]
        self._has_talked = True
        if fact is None and response.is_started:
            self._outgoing.do(StopResponding(response.id))
        if fact is not None and fact.is_cut:
            reason = "max_output_tokens"
        response.end(status, reason=reason, error=error)

    def _place(self, response: Response, item: Item) -> ItemId | None:
        """Put an output behind what it answers to, and behind the outputs before it."""
        return self._editor.add_answer(item, (*response.context, *response.outputs))

    def _shortened(self, response: Response, error: SensoriumError) -> bool:
        """Whether the conversation was made shorter, and the response is to be asked for again."""
        if error.code != _TOO_LONG or response.has_input or response.has_begun or response.may_fill:
            return False
        if self.settings.truncation == "disabled":
            return False
        if not self._truncator.shorten(response.context, self.settings, response.settings):
            response.may_fill = True
        response.is_started = False
        return True
