"""What chunks add up to is the message, however many events came at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec import UNSET
from sensorium.protocols.chat.answer_events import (
    ArgumentsAdded,
    CallBegun,
    CallEnded,
    Event,
    ReasoningAdded,
    TextAdded,
)
from sensorium.protocols.chat.response import Delta, FunctionDelta, ToolCallDelta
from sensorium.protocols.chat.stream_events import delta_of, message_of

EVENTS: tuple[Event, ...] = (
    ReasoningAdded("Hm"),
    ReasoningAdded("m."),
    TextAdded("I "),
    TextAdded("look."),
    CallBegun(0, "a", "now"),
    ArgumentsAdded(0, "{}"),
    CallEnded(0),
    CallBegun(1, "b", "find"),
    ArgumentsAdded(1, '{"x"'),
    ArgumentsAdded(1, ": 1"),
    ArgumentsAdded(1, "}"),
    CallEnded(1),
)


def joined(deltas: Sequence[Delta]) -> tuple[str, str, dict[int, tuple[str, str, str]]]:
    """Text, reasoning, and by index the id, name and arguments of each call, as a client joins them."""
    text = "".join(each.content or "" for each in deltas)
    thought = "".join(each.reasoning_content or "" for each in deltas)
    calls: dict[int, tuple[str, str, str]] = {}
    for call in (call for each in deltas for call in each.tool_calls or ()):
        call_id, name, arguments = calls.get(call.index, ("", "", ""))
        calls[call.index] = (
            call_id + (call.id or ""),
            name + (call.function.name or ""),
            arguments + call.function.arguments,
        )
    return text, thought, calls


@pytest.mark.parametrize("at_once", range(1, len(EVENTS) + 1))
def test_chunks_add_up_to_the_message(at_once: int) -> None:
    groups = [EVENTS[start : start + at_once] for start in range(0, len(EVENTS), at_once)]
    text, thought, calls = joined([delta_of(group, shows_reasoning=True) for group in groups])
    message = message_of(EVENTS, shows_reasoning=True)
    assert (text, thought) == (message.content, message.reasoning)
    assert [calls[index] for index in sorted(calls)] == [
        (call.id, call.function.name, call.function.arguments) for call in message.tool_calls or ()
    ]


def test_one_event_sets_nothing_but_its_own() -> None:
    assert delta_of([TextAdded("a")], shows_reasoning=False) == Delta(content="a")
    more = ToolCallDelta(index=1, function=FunctionDelta(arguments="{"))
    assert delta_of([ArgumentsAdded(1, "{")], shows_reasoning=False) == Delta(tool_calls=[more])
    assert delta_of([CallEnded(0)], shows_reasoning=True) == Delta()
    assert delta_of([ReasoningAdded("a")], shows_reasoning=False) == Delta()
    assert delta_of([ReasoningAdded("a")], shows_reasoning=True) == Delta(
        reasoning_content="a", reasoning="a", content=UNSET
    )
