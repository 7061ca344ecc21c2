"""Gemma's format: `call:f{a:1,b:…}` between marks, with a mark of its own for the quotes of strings.

FunctionGemma and Gemma 4 differ in the marks only. What is inside becomes JSON as it grows. Source: Google's
prompt formats of both.
"""

from __future__ import annotations

import json
import re
from typing import Final

from ....protocols.chat.answer_events import EventSink
from .json_calls import Tools
from .json_text import begin_call, read_json, read_value
from .schemas import as_json, escaped
from .source import Sink, Source, Steps, collect, literal, peek, read_run, skip_space, until

GEMMA_4: Final = ("<|tool_call>", "<tool_call|>", '<|"|>')
FUNCTION_GEMMA: Final = ("<start_function_call>", "<end_function_call>", "<escape>")
_KINDS: Final = {kind[0]: kind for kind in (GEMMA_4, FUNCTION_GEMMA)}
_ANY: Final = frozenset({"string", "number", "boolean", "object", "array", "null"})
_BARE: Final = re.compile(r"[^,{}\[\]<\"]")
_MAX_DEPTH: Final = 32


def read_gemma(source: Source, sink: EventSink, _: Tools) -> Steps[None]:
    """`<|tool_call>call:f{a:<|"|>text<|"|>,b:1}<tool_call|>`."""
    while mark := (yield from until(source, tuple(_KINDS), sink.text, marks=True)):
        closing, quote = _KINDS[mark][1:]
        yield from skip_space(source)
        name, end = "", None
        if (yield from literal(source, "call:")):
            name, end = yield from collect(source, ("{", closing))
        if not begin_call(source, sink, name.strip() if end == "{" else ""):
            continue
        is_whole = yield from _read_members(source, sink.arguments, quote, "}", 0)
        if is_whole or not source.is_ended:
            sink.end_call()
        yield from skip_space(source)
        yield from literal(source, closing)


def _read_members(source: Source, sink: Sink, quote: str, end: str, depth: int) -> Steps[bool]:
    """Members of an object or a list, whose bracket was read; False if they cannot be understood."""
    sink("{" if end == "}" else "[")
    is_first = True
    while True:
        yield from skip_space(source)
        if (yield from literal(source, end)):
            sink(end)
            return True
        if not is_first:
            sink(", ")
        is_first = False
        if end == "}":
            key = yield from _read_key(source, quote)
            if key is None:
                return False
            sink(f'"{escaped(key)}": ')
            yield from skip_space(source)
        if not (yield from _read_value(source, sink, quote, depth)):
            return False
        yield from skip_space(source)
        yield from literal(source, ",")


def _read_key(source: Source, quote: str) -> Steps[str | None]:
    """A key and the colon behind it; None if there is none."""
    if (yield from peek(source)) == '"':
        _, key = yield from read_json(source)
        yield from skip_space(source)
        return key if (yield from literal(source, ":")) and isinstance(key, str) else None
    yield from literal(source, quote)
    key, mark = yield from collect(source, (quote, ":", "}"))
    if mark == quote:
        mark = yield from literal(source, ":")
    return key.strip() if mark == ":" else None


def written_key(key: str, quote: str) -> str:
    """A key as it is read, in quotation marks where it must be."""
    is_plain = key == key.strip() and not key.startswith('"')
    if is_plain and not any(mark in key for mark in (quote, ":", "}")):
        return key
    return json.dumps(key, ensure_ascii=False)


def _read_value(source: Source, sink: Sink, quote: str, depth: int) -> Steps[bool]:
    if (yield from literal(source, quote)):
        sink('"')
        mark = yield from until(source, (quote,), lambda text: sink(escaped(text)))
        if mark:
            sink('"')
        return mark is not None
    match (yield from peek(source)):
        case "{" | "[" as bracket if depth < _MAX_DEPTH:
            source.at += 1
            end = "}" if bracket == "{" else "]"
            return (yield from _read_members(source, sink, quote, end, depth + 1))
        case '"':
            return (yield from read_value(source, sink))
    text = yield from read_run(source, _BARE)
    if not text.strip():
        return False
    sink(as_json(text.strip(), _ANY))
    return True
