"""Formats with a tag for every argument: Qwen3-Coder, GLM-4.5, MiniMax-M2.

A value stands there as plain text; whether it is a string is said by the tool's schema. Strings are passed on
as they grow. Sources: the models' published chat templates and cards. Neighbour: `json_calls.py`.
"""

from __future__ import annotations

from typing import Any, Final

from ....protocols.chat.answer_events import EventSink
from .json_calls import Tools
from .json_text import begin_call
from .schemas import STRING, as_json, escaped, types_of
from .source import Source, Steps, collect, literal, skip_space, until

CODER: Final = ("<tool_call>", "<function=", "<parameter=", "</parameter>", "</function>", "</tool_call>")
GLM: Final = ("<tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "</tool_call>")
MINIMAX: Final = (
    "<minimax:tool_call>",
    "<invoke name=",
    "<parameter name=",
    "</parameter>",
    "</invoke>",
    "</minimax:tool_call>",
)


class Arguments:
    """One call's arguments as a JSON object that grows."""

    def __init__(self, sink: EventSink, schema: dict[str, Any]) -> None:
        self._sink = sink
        self._schema = schema
        self._is_empty = True

    def key(self, key: str) -> None:
        """A key; its value must follow."""
        self._sink.arguments(f"{'{' if self._is_empty else ', '}{escaped_key(key)}: ")
        self._is_empty = False

    def read(self, source: Source, key: str, end: str) -> Steps[bool]:
        """A key and, up to `end`, its value; a line break around that is layout. False if the end is
        missing."""
        self.key(key)
        types = types_of(self._schema, key)
        yield from literal(source, "\n")
        ends = ("\n" + end, end)
        if types == STRING:
            emit = self._sink.arguments
            emit('"')
            mark = yield from until(source, ends, lambda text: emit(escaped(text)))
            if mark is not None:
                emit('"')
        else:
            text, mark = yield from collect(source, ends)
            if mark is not None:
                self._sink.arguments(as_json(text, types))
        return mark is not None

    def close(self) -> None:
        """The object is complete."""
        if not self._is_empty:
            self._sink.arguments("}")
        self._sink.end_call()


def escaped_key(key: str) -> str:
    """A key in quotation marks."""
    return f'"{escaped(key)}"'


def read_coder(source: Source, sink: EventSink, tools: Tools) -> Steps[None]:
    """`<tool_call><function=f><parameter=a>…</parameter></function></tool_call>`; some leave the outer tag
    out."""
    opening, function, parameter, value_end, function_end, closing = CODER
    while mark := (yield from until(source, (opening, function), sink.text, marks=True)):
        if mark == opening:
            yield from skip_space(source)
            mark = yield from literal(source, function)
        name, end = "", None
        if mark == function:
            name, end = yield from collect(source, (">", "\n"))
        name = name.strip() if end == ">" else ""
        if not begin_call(source, sink, name):
            continue
        arguments = Arguments(sink, tools.get(name, {}))
        yield from _read_named(source, arguments, parameter, value_end)
        yield from literal(source, function_end)
        yield from skip_space(source)
        yield from literal(source, closing)


def _read_named(source: Source, arguments: Arguments, opening: str, end: str) -> Steps[None]:
    """Arguments whose key is in their opening tag."""
    is_whole = True
    while is_whole:
        yield from skip_space(source)
        if not (yield from literal(source, opening)):
            break
        key, mark = yield from collect(source, (">",))
        is_whole = mark is not None and (yield from arguments.read(source, unquoted(key), end))
    if is_whole:
        arguments.close()


def read_minimax(source: Source, sink: EventSink, tools: Tools) -> Steps[None]:
    """`<minimax:tool_call><invoke name="f"><parameter name="a">…</parameter></invoke>…`, any number."""
    opening, invoke, parameter, value_end, invoke_end, closing = MINIMAX
    while (yield from until(source, (opening,), sink.text, marks=True)):
        num_found = 0
        while True:
            yield from skip_space(source)
            if num_found:
                source.mark()
            name, end = "", None
            if (yield from literal(source, invoke)):
                name, end = yield from collect(source, (">", "\n"))
            name = unquoted(name) if end == ">" else ""
            if not begin_call(source, sink, name):
                break
            num_found += 1
            arguments = Arguments(sink, tools.get(name, {}))
            yield from _read_named(source, arguments, parameter, value_end)
            yield from literal(source, invoke_end)
        if num_found:
            yield from literal(source, closing)


def read_glm(source: Source, sink: EventSink, tools: Tools) -> Steps[None]:
    """`<tool_call>f<arg_key>a</arg_key><arg_value>…</arg_value></tool_call>`, with or without line breaks."""
    opening, key_start, key_end, value_start, value_end, closing = GLM
    while (yield from until(source, (opening,), sink.text, marks=True)):
        name, mark = yield from collect(source, (key_start, closing))
        name = "" if mark is None else name.strip()
        if not begin_call(source, sink, name):
            continue
        arguments = Arguments(sink, tools.get(name, {}))
        while mark == key_start:
            key, mark = yield from collect(source, (key_end,))
            if mark is None:
                break
            yield from skip_space(source)
            yield from literal(source, value_start)
            if not (yield from arguments.read(source, key.strip(), value_end)):
                mark = None
                break
            yield from skip_space(source)
            mark = yield from literal(source, key_start, closing)
        else:
            arguments.close()


def unquoted(text: str) -> str:
    """A key or a name without what stands around it."""
    return text.strip().strip("\"'")
