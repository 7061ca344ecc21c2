"""Formats whose arguments are JSON: Hermes and Qwen3, Mistral, DeepSeek, Kimi-K2.

Each reads an answer from its source: text goes through, calls are told. What looks like a call and is none
stays text. Sources: the models' published chat templates and cards. Neighbours: `tagged_calls.py` (arguments
between tags), `python_calls.py` (Llama).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ....protocols.chat.answer_events import EventSink
from .json_text import NAME, begin_call, ignore, read_calls, read_value
from .source import Source, Steps, collect, literal, peek, skip_space, until

Tools = Mapping[str, dict[str, Any]]
"""The JSON schema of each tool's arguments, by the tool's name."""

HERMES: Final = ("<tool_call>", "</tool_call>")
MISTRAL: Final = ("[TOOL_CALLS]", "[CALL_ID]", "[ARGS]")
DEEPSEEK: Final = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
)
KIMI: Final = (
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<|tool_calls_section_end|>",
)
_KIMI_ID: Final = re.compile(r"(?:functions\.)?(?P<name>.+?)(?::\d+)?")


def read_hermes(source: Source, sink: EventSink, _: Tools) -> Steps[None]:
    """`<tool_call>{"name": "f", "arguments": {…}}</tool_call>`, also with several objects or a list."""
    opening, closing = HERMES
    while (yield from until(source, (opening,), sink.text, marks=True)):
        yield from skip_space(source)
        if not (yield from read_calls(source, sink)):
            sink.text(source.go_back())
            continue
        yield from skip_space(source)
        yield from literal(source, closing)


def read_mistral(source: Source, sink: EventSink, _: Tools) -> Steps[None]:
    """`[TOOL_CALLS]name[ARGS]{…}`, with `[CALL_ID]id` between in some; older ones have a list of objects."""
    while (yield from until(source, MISTRAL[:1], sink.text, marks=True)):
        yield from skip_space(source)
        if (yield from peek(source)) in ("[", "{"):
            is_call = yield from read_calls(source, sink)
        else:
            is_call = yield from _read_named(source, sink)
        if not is_call:
            sink.text(source.go_back())


def _read_named(source: Source, sink: EventSink) -> Steps[bool]:
    _, call_id, arguments = MISTRAL
    given = None
    name, mark = yield from collect(source, (call_id, arguments, "{"))
    if mark == call_id:
        given, mark = yield from collect(source, (arguments, "{"))
    if mark is None or not NAME.fullmatch(name.strip()):
        return False
    if mark == "{":
        source.at -= 1
    source.let_go()
    sink.begin_call(name.strip(), given.strip() if given else None)
    yield from skip_space(source)
    yield from read_value(source, sink.arguments)
    sink.end_call()
    return True


def read_deepseek(source: Source, sink: EventSink, _: Tools) -> Steps[None]:
    """A section of calls: `name<｜tool▁sep｜>{…}` (V3.1), or `function<｜tool▁sep｜>name` and fenced JSON
    (V3, R1)."""
    section, call, separator, end, section_end = DEEPSEEK
    while (yield from _next_of(source, sink, section, call)):
        name, mark = yield from collect(source, (separator, end))
        if name.strip() == "function" and mark == separator:
            name, mark = yield from collect(source, ("```json", end))
        if begin_call(source, sink, "" if mark in (None, end) else name.strip()):
            yield from _read_until(source, sink, end, section_end)


def read_kimi(source: Source, sink: EventSink, _: Tools) -> Steps[None]:
    """A section of calls: an id as `functions.name:0`, a mark, and JSON."""
    section, call, arguments, end, section_end = KIMI
    while (yield from _next_of(source, sink, section, call)):
        call_id, mark = yield from collect(source, (arguments, end))
        found = _KIMI_ID.fullmatch(call_id.strip())
        name = "" if mark != arguments or found is None else found["name"]
        if begin_call(source, sink, name, call_id.strip()):
            yield from _read_until(source, sink, end, section_end)


def _next_of(source: Source, sink: EventSink, section: str, call: str) -> Steps[bool]:
    """Up to behind the mark of the next call, which may be the first of its section."""
    while mark := (yield from until(source, (section, call), sink.text, marks=True)):
        if mark == section:
            yield from skip_space(source)
        if mark == call or (yield from literal(source, call)):
            return True
        sink.text(source.go_back())
    return False


def _read_until(source: Source, sink: EventSink, end: str, section_end: str) -> Steps[None]:
    """A call's arguments and everything else up to its end, and that of its section if it is the last."""
    yield from skip_space(source)
    if (yield from peek(source)) == "{":
        yield from read_value(source, sink.arguments)
        yield from until(source, (end,), ignore)
    else:
        text, _ = yield from collect(source, (end,))
        sink.arguments(text.strip().removesuffix("```").rstrip())
    sink.end_call()
    yield from skip_space(source)
    yield from literal(source, section_end)
