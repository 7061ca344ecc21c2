"""One response and its events, in the order of OpenAI's GA dialect.

    created · rate_limits · [output_item.added · item.added · content_part.added · delta* ·
    output_text.done · content_part.done · item.done · output_item.done] · done

What is in brackets is there once the model reads (or says something, where it may call tools); where a
response ends before, its `output` is empty. A call is an output of its own, with
`function_call_arguments.delta*` and `.done` in place of the inner events. The item's own events are left out
where the answer is no part of the conversation. However it ends, what was said of it is in
`output_text.done`, and `response.done` is the last event. Knows one response; read next:
`realtime/dialogue/dialogue.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from msgspec import UNSET

from ...protocols.chat.content import TextPart
from ...protocols.engine.messages import ItemId
from ...protocols.errors import SensoriumError
from ...protocols.realtime.events import ConversationItemAdded, ConversationItemDone
from ...protocols.realtime.items import Call, ItemStatus
from ...protocols.realtime.responses import (
    EndReason,
    RateLimitsUpdated,
    ResponseContentPartAdded,
    ResponseContentPartDone,
    ResponseCreated,
    ResponseDone,
    ResponseFault,
    ResponseFunctionCallArgumentsDelta,
    ResponseFunctionCallArgumentsDone,
    ResponseOutputItemAdded,
    ResponseOutputItemDone,
    ResponseOutputTextDelta,
    ResponseOutputTextDone,
    ResponseStatus,
    ResponseUsage,
    ResponseView,
    StatusDetails,
    TextContentPart,
)
from ..outgoing import Outgoing
from .items import Item
from .settings import AnswerSettings
from .truncation import Size

Ending = Literal["completed", "cancelled", "failed", "incomplete"]


class Response:
    """An answer being made. `conversation_id` None: it is no part of the conversation.

    `place` puts an output of it into the conversation, `before` says what an item stands behind; neither is
    asked where it is no part of one. `turns` of the context are those that it was begun for. Outputs come one
    after the other: at most one is open.
    """

    def __init__(
        self,
        response_id: str,
        outgoing: Outgoing,
        settings: AnswerSettings,
        *,
        new_item_id: Callable[[], ItemId],
        place: Callable[[Response, Item], ItemId | None],
        before: Callable[[Item], ItemId | None],
        conversation_id: str | None,
        metadata: dict[str, str] | None = None,
        context: tuple[Item, ...] = (),
        turns: tuple[Item, ...] = (),
        has_input: bool = False,
    ) -> None:
        self.id = response_id
        self.outputs: list[Item] = []
        """What was said and called."""
        self.settings = settings
        self.context = context
        """The items it answers to; some may be gone when it is asked."""
        self.has_input = has_input
        """They are its own, in place of the conversation's."""
        self.is_started = False
        """The model was asked."""
        self.may_fill = False
        """Nothing of what it answers to can go: the prompt may leave as little room as it likes."""
        self.size = Size()
        """Of the prompt, when the model was asked."""
        self.has_begun = False
        """The model reads."""
        self.usage: ResponseUsage | None = None
        """What it read and wrote so far; None before it reads."""
        self._outgoing = outgoing
        self._new_item_id = new_item_id
        self._place = place
        self._before = before
        self._conversation_id = conversation_id
        self._metadata = metadata
        self._turns = turns
        self._open: Item | None = None
        self._texts: list[str] = []
        """Of the output that is open."""

    @property
    def is_out_of_band(self) -> bool:
        """It is no part of the conversation."""
        return self._conversation_id is None

    @property
    def unanswered(self) -> tuple[Item, ...]:
        """Spoken turns that it answers to, as long as it has said nothing."""
        has_output = self._texts or any(item.parts for item in self.outputs)
        return () if has_output else self._turns

    @property
    def is_ready(self) -> bool:
        """Nothing that it answers to is still to come."""
        return not any(item.waits for item in self.context)

    def create(self) -> None:
        """Tell that it begins."""
        self._outgoing.send(ResponseCreated(response=self._view("in_progress")))
        self._outgoing.send(RateLimitsUpdated(rate_limits=[]))

    def begin(self, usage: ResponseUsage) -> None:
        """The model reads. Where it may call, what it says is an item once it says something."""
        self.has_begun = True
        self.usage = usage
        if not self.settings.tools.use.tools:
            self._begin_message()

    def grow(self, text: str) -> None:
        """More of what it says."""
        if self._open is None or self._open.call is not None:
            self._close("completed")
            self._begin_message()
        assert self._open is not None
        self._texts.append(text)
        self._outgoing.send(
            ResponseOutputTextDelta(
                response_id=self.id, item_id=self._open.id, delta=text, output_index=self._index
            )
        )

    def call(self, call_id: str, name: str) -> None:
        """It calls a tool."""
        self._close("completed")
        self._add(Call(call_id, name))

    def grow_call(self, arguments: str) -> None:
        """More of the call's arguments."""
        item = self._open
        assert item is not None
        assert item.call is not None
        self._texts.append(arguments)
        self._outgoing.send(
            ResponseFunctionCallArgumentsDelta(
                response_id=self.id,
                item_id=item.id,
                call_id=item.call.call_id,
                delta=arguments,
                output_index=self._index,
            )
        )

    def end(
        self,
        status: Ending,
        *,
        reason: EndReason | None = None,
        error: SensoriumError | None = None,
    ) -> None:
        """It is over; what was said of it remains."""
        if self.has_begun and not self.outputs:
            self._begin_message()
        self._close("completed" if status == "completed" else "incomplete")
        details = None
        if status != "completed":
            fault = None if error is None else ResponseFault(error.type, error.code, error.message)
            details = StatusDetails(type=status, reason=reason or UNSET, error=fault or UNSET)
        self._outgoing.send(ResponseDone(response=self._view(status, details)))

    @property
    def _index(self) -> int:
        return len(self.outputs) - 1

    def _begin_message(self) -> None:
        item = self._add()
        self._outgoing.send(
            ResponseContentPartAdded(
                response_id=self.id, item_id=item.id, part=TextContentPart(""), output_index=self._index
            )
        )

    def _add(self, *parts: Call) -> Item:
        """The next output, an empty message if it has no parts."""
        item = Item(self._new_item_id(), "assistant", parts, status="in_progress")
        previous = None if self.is_out_of_band else self._place(self, item)
        self.outputs.append(item)
        self._open = item
        self._texts = []
        send = self._outgoing.send
        send(ResponseOutputItemAdded(response_id=self.id, item=item.view(), output_index=self._index))
        if not self.is_out_of_band:
            send(ConversationItemAdded(item=item.view(), previous_item_id=previous))
        return item

    def _close(self, status: ItemStatus) -> None:
        """The output that is open is over."""
        item, self._open = self._open, None
        if item is None:
            return
        text, send, call = "".join(self._texts), self._outgoing.send, item.call
        item.status = status
        if call is not None:
            item.parts = [replace(call, arguments=text)]
            send(
                ResponseFunctionCallArgumentsDone(
                    response_id=self.id,
                    item_id=item.id,
                    call_id=call.call_id,
                    name=call.name,
                    arguments=text,
                    output_index=self._index,
                )
            )
        else:
            item.parts = [TextPart(text)] if text else []
            part, index = TextContentPart(text), self._index
            send(ResponseOutputTextDone(response_id=self.id, item_id=item.id, text=text, output_index=index))
            send(ResponseContentPartDone(response_id=self.id, item_id=item.id, part=part, output_index=index))
        if not self.is_out_of_band:
            send(ConversationItemDone(item=item.view(), previous_item_id=self._before(item)))
        send(ResponseOutputItemDone(response_id=self.id, item=item.view(), output_index=self._index))

    def _view(self, status: ResponseStatus, details: StatusDetails | None = None) -> ResponseView:
        return ResponseView(
            id=self.id,
            status=status,
            status_details=details,
            output=[item.view() for item in self.outputs] if status != "in_progress" else [],
            conversation_id=self._conversation_id,
            output_modalities=["text"],
            max_output_tokens=self.settings.max_output_tokens,
            metadata=self._metadata,
            usage=self.usage,
        )
