"""Llama's formats: JSON objects at the beginning of an answer or behind a tag, and Python calls in a list.

Nothing marks the objects as calls but where they stand and the tool's name, so only tools the request has
are called; everything else stays text. Source: Meta's prompt formats of Llama 3.1 to 4.
"""

from __future__ import annotations

import ast
import json
import re
from typing import Final

from ....protocols.chat.answer_events import EventSink
from .json_calls import Tools
from .json_text import decoded, read_calls, whole_pairs
from .source import Source, Steps, literal, peek, read_run, skip_space, until
from .tagged_calls import Arguments

LLAMA: Final = ("<|python_tag|>", "<|python_start|>", "<|python_end|>")
_NAME: Final = re.compile(r"[\w.-]")
_MAX_LITERAL: Final = 16 * 1024
"""Characters of a list or dict that are read as Python; longer ones take too long."""
_PLAIN: Final = re.compile(r"[^\"'()\[\]{},]")


def read_llama(source: Source, sink: EventSink, tools: Tools) -> Steps[None]:
    """`{"name": "f", "parameters": {…}}`, several parted by `;`, or `[f(a=1), g()]`."""
    source.mark()
    while True:
        yield from skip_space(source)
        yield from literal(source, *LLAMA[:2])
        yield from skip_space(source)
        if (yield from _read_some(source, sink, tools)):
            yield from skip_space(source)
            yield from literal(source, LLAMA[2])
        else:
            sink.text(source.go_back())
        if not (yield from until(source, LLAMA[:2], sink.text, marks=True)):
            return


def _read_some(source: Source, sink: EventSink, tools: Tools) -> Steps[bool]:
    if (yield from literal(source, "[")):
        yield from skip_space(source)
        if (yield from peek(source)) == "{":
            return (yield from read_calls(source, sink, tools, is_list=True))
        return (yield from _read_python(source, sink, tools))
    if not (yield from read_calls(source, sink, tools)):
        return False
    while True:
        yield from skip_space(source)
        if not (yield from literal(source, ";")):
            return True
        source.mark()
        yield from skip_space(source)
        if not (yield from read_calls(source, sink, tools)):
            source.go_back()
            return True


def _read_python(source: Source, sink: EventSink, tools: Tools) -> Steps[bool]:
    """Calls behind a list's bracket, and the other bracket."""
    num_found = 0
    while True:
        yield from skip_space(source)
        if num_found:
            source.mark()
        name = yield from read_run(source, _NAME)
        if name not in tools or not (yield from literal(source, "(")):
            if num_found:
                source.go_back()
                yield from literal(source, "]")
            return num_found > 0
        num_found += 1
        source.let_go()
        sink.begin_call(name)
        arguments = Arguments(sink, tools[name])
        while (key := (yield from _read_key(source))) is not None:
            arguments.key(key)
            sink.arguments(_as_json((yield from _read_literal(source)).strip()))
            yield from skip_space(source)
            yield from literal(source, ",")
        if not source.is_ended or (yield from peek(source)):
            arguments.close()
        yield from literal(source, ")")
        yield from skip_space(source)
        yield from literal(source, ",")


def _read_key(source: Source) -> Steps[str | None]:
    yield from skip_space(source)
    key = yield from read_run(source, _NAME)
    yield from skip_space(source)
    if not key or not (yield from literal(source, "=")):
        return None
    yield from skip_space(source)
    return key


def _read_literal(source: Source) -> Steps[str]:
    """The text of one value, up to a comma or bracket that is not its own."""
    found: list[str] = []
    depth = 0
    while True:
        found.append((yield from read_run(source, _PLAIN)))
        match (yield from peek(source)):
            case "":
                break
            case "'" | '"' as quote:
                found.append((yield from _read_quoted(source, quote)))
                continue
            case "(" | "[" | "{":
                depth += 1
            case ")" | "]" | "}" if depth:
                depth -= 1
            case "," if depth:
                pass
            case _:
                break
        found.append(source.text[source.at])
        source.at += 1
    return "".join(found)


def _read_quoted(source: Source, quote: str) -> Steps[str]:
    found = [quote]
    source.at += 1
    while character := (yield from peek(source)):
        if character == "\\":
            character = yield from peek(source, 2)
        source.at += len(character)
        found.append(character)
        if character == quote:
            break
    return "".join(found)


def _as_json(text: str) -> str:
    """A Python literal as JSON; what is none is a string."""
    if decoded(text)[0]:
        return text
    is_string = text[:1] in ("'", '"')
    try:
        value = ast.literal_eval(text) if is_string or len(text) <= _MAX_LITERAL else text
        return json.dumps(whole_pairs(value), ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return json.dumps(text, ensure_ascii=False)
