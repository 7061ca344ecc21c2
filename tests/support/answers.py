"""What an answer's events say, in short: what tests compare."""

from __future__ import annotations

from collections.abc import Iterable

from sensorium.engine.text.tools.formats import FORMATS, FormatName
from sensorium.engine.text.tools.json_calls import Tools
from sensorium.engine.text.tools.machine import AnswerFormat, AnswerMachine
from sensorium.engine.text.tools.thinking import THINK, Thinking, ThinkTags
from sensorium.protocols.chat.answer_events import (
    ArgumentsAdded,
    CallBegun,
    Event,
    ReasoningAdded,
    TextAdded,
    merged,
)

EventTuple = tuple[str, ...]
"""("text", …), ("thought", …) or ("call", name, arguments)."""

TOOLS: Tools = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"anyOf": [{"enum": ["c", "f"]}, {"type": "null"}]},
            "near": {"$ref": "#/$defs/places"},
            "any": {},
        },
        "required": ["city"],
        "$defs": {"places": {"type": "array", "items": {"type": "string"}}},
    },
    "now": {"type": "object", "properties": {}},
}


def machine(
    name: FormatName | None,
    tools: Tools | None = TOOLS,
    *,
    tags: ThinkTags | None = THINK,
    thinking: Thinking = "may",
    max_calls: int | None = None,
) -> AnswerMachine:
    """A machine for one answer."""
    kind = AnswerFormat(None if name is None else FORMATS[name], tags)
    return AnswerMachine(kind, tools, thinking=thinking, max_calls=max_calls)


def as_tuples(events: Iterable[Event]) -> list[EventTuple]:
    """The events in short; ids are left out."""
    found: list[EventTuple] = []
    for event in merged(events):
        match event:
            case TextAdded(text):
                found.append(("text", text))
            case ReasoningAdded(text):
                found.append(("thought", text))
            case CallBegun(name=name):
                found.append(("call", name, ""))
            case ArgumentsAdded(text=text):
                found[-1] = ("call", found[-1][1], text)
    return found


def ids(events: Iterable[Event]) -> list[str]:
    """The ids of the calls, in order."""
    return [event.id for event in events if isinstance(event, CallBegun)]
