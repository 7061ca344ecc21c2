"""What is found in an answer, in chat's shapes: a whole message, or what a chunk adds to one.

Events are `protocols/chat/answer_events.py`, shapes `protocols/chat/response.py`. Read next:
`actors/http/chat/routes.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import UNSET, UnsetType

from ..shared.generation import finished_by
from .answer_events import ArgumentsAdded, CallBegun, Event, ReasoningAdded, TextAdded, merged
from .response import (
    AnswerMessage,
    CalledFunction,
    ChatFinishedBy,
    Delta,
    FunctionDelta,
    ToolCall,
    ToolCallDelta,
)


def message_of(events: Iterable[Event], *, shows_reasoning: bool) -> AnswerMessage:
    """All of an answer. Its content is null where it says nothing beside its calls."""
    texts: list[str] = []
    reasonings: list[str] = []
    calls: list[ToolCall] = []
    begun: CallBegun | None = None
    for event in merged(events):
        match event:
            case TextAdded(text):
                texts.append(text)
            case ReasoningAdded(text):
                reasonings.append(text)
            case CallBegun():
                begun = event
                calls.append(ToolCall(id=event.id, function=CalledFunction(event.name, "")))
            case ArgumentsAdded(text=text):
                assert begun is not None, "arguments are of a call"
                calls[-1] = ToolCall(id=begun.id, function=CalledFunction(begun.name, text))
    reasoning = _or_unset("".join(reasonings)) if shows_reasoning else UNSET
    return AnswerMessage(
        content="".join(texts) or (None if calls else ""),
        reasoning_content=reasoning,
        reasoning=reasoning,
        tool_calls=calls or UNSET,
    )


def delta_of(events: Sequence[Event], *, shows_reasoning: bool) -> Delta:
    """What some events add to a message."""
    if len(events) == 1:  # nearly every piece is one of these
        match events[0]:
            case TextAdded(text):
                return Delta(content=text)
            case ArgumentsAdded(index, text):
                more = ToolCallDelta(index=index, function=FunctionDelta(arguments=text))
                return Delta(tool_calls=[more])
    content = reasoning = ""
    calls: list[ToolCallDelta] = []
    begun: CallBegun | None = None
    for event in merged(events):
        match event:
            case TextAdded(text):
                content += text
            case ReasoningAdded(text):
                reasoning += text
            case CallBegun(index, call_id, name):
                begun = event
                function = FunctionDelta(name=name, arguments="")
                calls.append(ToolCallDelta(index=index, id=call_id, type="function", function=function))
            case ArgumentsAdded(index, text) if begun is not None and begun.index == index:
                function = FunctionDelta(name=begun.name, arguments=text)
                calls[-1] = ToolCallDelta(index=index, id=begun.id, type="function", function=function)
            case ArgumentsAdded(index, text):
                calls.append(ToolCallDelta(index=index, function=FunctionDelta(arguments=text)))
    shown = _or_unset(reasoning) if shows_reasoning else UNSET
    return Delta(
        content=_or_unset(content), reasoning_content=shown, reasoning=shown, tool_calls=calls or UNSET
    )


def finished_chat(reason: str | None, *, has_calls: bool) -> ChatFinishedBy | None:
    """The wire's word for how an answer ended: calls that are complete have a word of their own."""
    return "tool_calls" if reason == "stop" and has_calls else finished_by(reason)


def _or_unset(text: str) -> str | UnsetType:
    return text or UNSET
