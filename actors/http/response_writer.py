"""An answer's events → the items of a response, and on the way the events of its stream.

The same writer makes a whole response and a streamed one. Shapes are `protocols/response_items.py`, what is
written comes from `engine/text/tools/events.py`. Read next: `actors/http/responses.py`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
from msgspec import UNSET

from ...engine.text.tools.events import (
    ArgumentsAdded,
    CallBegun,
    CallEnded,
    Event,
    ReasoningAdded,
    TextAdded,
)
from ...protocols.chat_answers import TokenLogprob
from ...protocols.response_items import (
    ContentPartAdded,
    ContentPartDone,
    FunctionArgumentsDelta,
    FunctionArgumentsDone,
    FunctionCall,
    IncompleteDetails,
    ItemStatus,
    OutputItem,
    OutputItemAdded,
    OutputItemDone,
    OutputMessage,
    OutputText,
    OutputTextDelta,
    OutputTextDone,
    Reasoning,
    ReasoningText,
    ReasoningTextDelta,
    ReasoningTextDone,
    ResponseCompleted,
    ResponseCreated,
    ResponseEvent,
    ResponseFailed,
    ResponseFault,
    ResponseIncomplete,
    ResponseInProgress,
    ResponseObject,
    ResponseUsage,
)


@dataclass(slots=True)
class _Open:
    """The item that is being written."""

    kind: Literal["message", "reasoning", "call"]
    id: str
    call: CallBegun | None = None
    texts: list[str] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.texts)


class ResponseWriter:
    """Writes one response. Every method gives the events of the stream, numbered; who wants the whole only
    leaves them, and takes `response`."""

    def __init__(self, response: ResponseObject, *, has_logprobs: bool = False) -> None:
        self.response = response
        """As far as it is written."""
        self._has_logprobs = has_logprobs
        self._items: list[OutputItem] = []
        self._open: _Open | None = None
        self._number = 0

    def begin(self) -> list[ResponseEvent]:
        """It is being worked on."""
        self.response = msgspec.structs.replace(self.response, status="in_progress")
        return [
            ResponseCreated(sequence_number=self._next(), response=self.response),
            ResponseInProgress(sequence_number=self._next(), response=self.response),
        ]

    def add(self, events: Iterable[Event], logprobs: Sequence[TokenLogprob] = ()) -> list[ResponseEvent]:
        """More of the answer; `logprobs` are of the text in it."""
        told: list[ResponseEvent] = []
        left = list(logprobs)
        for event in events:
            match event:
                case TextAdded(text):
                    told += self._switch("message")
                    told.append(self._text_delta(text, left))
                    left = []
                case ReasoningAdded(text):
                    told += self._switch("reasoning")
                    told.append(self._thought_delta(text))
                case CallBegun():
                    told += [*self._close("completed"), *self._begin(_Open("call", _id("fc"), event))]
                case ArgumentsAdded(text=text):
                    told.append(self._arguments_delta(text))
                case CallEnded():
                    pass  # what ends it, or cuts it, is known when the next thing comes
        if left and self._open is not None:
            self._open.logprobs += left
        return told

    def finish(self, usage: ResponseUsage, *, is_cut: bool, now: int) -> list[ResponseEvent]:
        """There is no more of the answer; `is_cut`: at its most tokens."""
        told = self._close("incomplete" if is_cut else "completed")
        self.response = msgspec.structs.replace(
            self.response,
            status="incomplete" if is_cut else "completed",
            output=self._items,
            usage=usage,
            incomplete_details=IncompleteDetails() if is_cut else None,
            completed_at=None if is_cut else now,
        )
        last = ResponseIncomplete if is_cut else ResponseCompleted
        return [*told, last(sequence_number=self._next(), response=self.response)]

    def fail(self, fault: ResponseFault) -> list[ResponseEvent]:
        """It came to nothing, or not to an end."""
        self._close("incomplete")
        self.response = msgspec.structs.replace(
            self.response, status="failed", output=self._items, error=fault
        )
        return [ResponseFailed(sequence_number=self._next(), response=self.response)]

    def _next(self) -> int:
        self._number += 1
        return self._number - 1

    def _switch(self, kind: Literal["message", "reasoning"]) -> list[ResponseEvent]:
        if self._open is not None and self._open.kind == kind:
            return []
        prefix = "msg" if kind == "message" else "rs"
        return [*self._close("completed"), *self._begin(_Open(kind, _id(prefix)))]

    def _begin(self, item: _Open) -> list[ResponseEvent]:
        self._open = item
        index = len(self._items)
        told: list[ResponseEvent] = [
            OutputItemAdded(
                sequence_number=self._next(), output_index=index, item=self._written("in_progress")
            )
        ]
        if item.kind != "call":
            told.append(
                ContentPartAdded(
                    sequence_number=self._next(), item_id=item.id, output_index=index, part=self._part()
                )
            )
        return told

    def _close(self, status: ItemStatus) -> list[ResponseEvent]:
        item, index = self._open, len(self._items)
        if item is None:
            return []
        written, part = self._written(status), self._part()
        told: list[ResponseEvent] = []
        if item.call is not None:
            told.append(
                FunctionArgumentsDone(
                    sequence_number=self._next(),
                    item_id=item.id,
                    output_index=index,
                    name=item.call.name,
                    arguments=item.text,
                )
            )
        else:
            told.append(self._text_done(item, index))
            told.append(
                ContentPartDone(sequence_number=self._next(), item_id=item.id, output_index=index, part=part)
            )
        self._items.append(written)
        self._open = None
        told.append(OutputItemDone(sequence_number=self._next(), output_index=index, item=written))
        return told

    def _text_done(self, item: _Open, index: int) -> ResponseEvent:
        number = self._next()
        if item.kind == "reasoning":
            return ReasoningTextDone(
                sequence_number=number, item_id=item.id, output_index=index, text=item.text
            )
        return OutputTextDone(
            sequence_number=number,
            item_id=item.id,
            output_index=index,
            text=item.text,
            logprobs=item.logprobs,
        )

    def _written(self, status: ItemStatus) -> OutputItem:
        """The open item as it is."""
        item = self._open
        assert item is not None, "begun before"
        is_begun = bool(item.texts) or status != "in_progress"
        if item.call is not None:
            return FunctionCall(
                id=item.id, call_id=item.call.id, name=item.call.name, arguments=item.text, status=status
            )
        part = self._part()
        if isinstance(part, OutputText):
            return OutputMessage(id=item.id, status=status, content=[part] if is_begun else [])
        return Reasoning(id=item.id, status=status, content=[part] if is_begun else [])

    def _part(self) -> OutputText | ReasoningText:
        item = self._open
        assert item is not None, "begun before"
        if item.kind == "reasoning":
            return ReasoningText(text=item.text)
        return OutputText(text=item.text, logprobs=list(item.logprobs) if self._has_logprobs else UNSET)

    def _text_delta(self, text: str, logprobs: list[TokenLogprob]) -> ResponseEvent:
        item = self._taken(text)
        item.logprobs += logprobs
        return OutputTextDelta(
            sequence_number=self._next(),
            item_id=item.id,
            output_index=len(self._items),
            delta=text,
            logprobs=logprobs,
        )

    def _thought_delta(self, text: str) -> ResponseEvent:
        item = self._taken(text)
        return ReasoningTextDelta(
            sequence_number=self._next(), item_id=item.id, output_index=len(self._items), delta=text
        )

    def _arguments_delta(self, text: str) -> ResponseEvent:
        item = self._taken(text)
        return FunctionArgumentsDelta(
            sequence_number=self._next(), item_id=item.id, output_index=len(self._items), delta=text
        )

    def _taken(self, text: str) -> _Open:
        assert self._open is not None, "begun before"
        self._open.texts.append(text)
        return self._open


def _id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"
