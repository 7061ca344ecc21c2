"""JSON inside of an answer: values passed on as they are written, and objects that say a call.

A value's text is passed on verbatim and not checked: what a model got wrong its reader sees. Read next:
`engine/text/tools/json_calls.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Container
from typing import Any, Final

from ....protocols.chat.answer_events import EventSink
from .source import Sink, Source, Steps, literal, peek, skip_space

_BRACKETS: Final = re.compile(r'["{}\[\]]')
_STRING_ENDS: Final = re.compile(r'["\\]')
_SCALAR: Final = re.compile(r"[^\s,:{}\[\]\"]*")
_ARGUMENTS: Final = ("arguments", "parameters")
_OTHER_KEYS: Final = ("type", "id")
NAME: Final = re.compile(r"[\w.:/-]{1,256}")
"""What a tool may be called."""


def ignore(_: str) -> None:
    """Leave a text out."""


def begin_call(source: Source, sink: EventSink, name: str, call_id: str | None = None) -> bool:
    """Begin a call of that name. False where nothing is called so: what was read behind the mark is text."""
    if not NAME.fullmatch(name):
        sink.text(source.go_back())
        return False
    source.let_go()
    sink.begin_call(name, call_id)
    return True


def read_value(source: Source, sink: Sink) -> Steps[bool]:
    """Give `sink` the text of one value. False if the text ended before it, or none is there."""
    match (yield from peek(source)):
        case "{" | "[":
            return (yield from _read_nested(source, sink))
        case '"':
            sink('"')
            source.at += 1
            return (yield from _read_string(source, sink))
    num_read = 0
    while True:
        found = _SCALAR.match(source.text, source.at)
        assert found is not None, "it matches nothing, too"
        if found[0]:
            sink(found[0])
            num_read += len(found[0])
            source.at = found.end()
        if source.at < len(source.text) or not (yield from source.more()):
            return num_read > 0


def _read_nested(source: Source, sink: Sink) -> Steps[bool]:
    depth = 0
    while True:
        found = _BRACKETS.search(source.text, source.at)
        end = len(source.text) if found is None else found.end()
        if end > source.at:
            sink(source.text[source.at : end])
            source.at = end
        if found is None:
            if not (yield from source.more()):
                return False
        elif found[0] == '"':
            if not (yield from _read_string(source, sink)):
                return False
        else:
            depth += 1 if found[0] in "{[" else -1
            if not depth:
                return True


def _read_string(source: Source, sink: Sink) -> Steps[bool]:
    """The rest of a string whose first quotation mark was read."""
    while True:
        found = _STRING_ENDS.search(source.text, source.at)
        end = len(source.text) if found is None else found.end()
        if end > source.at:
            sink(source.text[source.at : end])
            source.at = end
        if found is None:
            if not source.is_ended:  # as `Source.more`, without a generator for every piece
                yield
            if source.is_ended:
                return False
        elif found[0] == '"':
            return True
        else:  # whatever it is that is escaped
            escaped = yield from peek(source)
            sink(escaped)
            source.at += len(escaped)


def read_json(source: Source) -> Steps[tuple[bool, Any]]:
    """One value, decoded; (False, None) if it is no JSON."""
    found: list[str] = []
    if not (yield from read_value(source, found.append)):
        return False, None
    return decoded("".join(found))


def decoded(text: str) -> tuple[bool, Any]:
    """A text's JSON value; (False, None) if it has none, as NaN and Infinity. Half a surrogate pair, which no
    text may hold, is U+FFFD."""
    try:
        value = json.loads(text, strict=False, parse_constant=_refuse)
        return True, whole_pairs(value) if "\\u" in text else value
    except (ValueError, RecursionError):
        return False, None


def _refuse(name: str) -> None:
    raise ValueError(name)


def whole_pairs(value: Any) -> Any:  # noqa: ANN401
    """A JSON value whose strings can be written as UTF-8."""
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list():
            return [whole_pairs(each) for each in value]
        case dict():
            return {whole_pairs(key): whole_pairs(each) for key, each in value.items()}
    return value


def _read_text(source: Source) -> Steps[str | None]:
    """A string, decoded; None if none is there."""
    if (yield from peek(source)) != '"':
        return None
    _, value = yield from read_json(source)
    return value if isinstance(value, str) else None


def read_arguments(source: Source, sink: Sink) -> Steps[None]:
    """The value of `arguments`: an object as it is written, a string that holds one, or null for none."""
    match (yield from peek(source)):
        case '"':
            text = yield from _read_text(source)
            sink((text or "").strip())
        case "n":
            yield from read_value(source, ignore)
        case _:
            yield from read_value(source, sink)


def read_call(source: Source, sink: EventSink, known: Container[str] | None = None) -> Steps[bool]:
    """One object with a `name` and `arguments` (or `parameters`), in any order; False if it is none.

    With `known` only these names are calls, and nothing but what belongs to a call may stand beside. The
    source must be marked; once a call is certain it is let go.
    """
    if not (yield from literal(source, "{")):
        return False
    name: str | None = None
    call_id: str | None = None
    early: list[str] = []
    has_begun = False
    while True:
        key = yield from _read_key(source)
        if key is None:
            break
        if key == "name" and name is None:
            name = yield from _read_text(source)
            if name is None or not NAME.fullmatch(name) or (known is not None and name not in known):
                return has_begun
        elif key in _ARGUMENTS and not has_begun:
            if name is None:
                yield from read_arguments(source, early.append)
            else:
                has_begun = True
                source.let_go()
                sink.begin_call(name, call_id)
                yield from read_arguments(source, sink.arguments)
        elif known is not None and not has_begun and key not in _OTHER_KEYS:
            return False
        else:
            _, value = yield from read_json(source)
            call_id = value if key == "id" and isinstance(value, str) and value else call_id
        yield from skip_space(source)
        if not (yield from literal(source, ",")):
            break
    yield from skip_space(source)
    is_closed = yield from literal(source, "}")
    if not has_begun:
        if name is None or not is_closed:
            return False
        source.let_go()
        sink.begin_call(name, call_id)
        sink.arguments("".join(early))
    sink.end_call()
    return True


def _read_key(source: Source) -> Steps[str | None]:
    """A key and the colon behind it; None if there is none."""
    yield from skip_space(source)
    key = yield from _read_text(source)
    yield from skip_space(source)
    if key is None or not (yield from literal(source, ":")):
        return None
    yield from skip_space(source)
    return key


def read_calls(
    source: Source, sink: EventSink, known: Container[str] | None = None, *, is_list: bool | None = None
) -> Steps[bool]:
    """Objects as `read_call`'s, one behind the other or in a list; False if there is none.

    `is_list`: the list's bracket was read already.
    """
    if is_list is None:
        is_list = (yield from literal(source, "[")) is not None
    num_found = 0
    while True:
        yield from skip_space(source)
        if num_found:
            if not is_list and (yield from peek(source)) != "{":
                return True
            source.mark()
        if not (yield from read_call(source, sink, known)):
            if num_found:
                source.go_back()
                yield from literal(source, "]")
            return num_found > 0
        num_found += 1
        yield from skip_space(source)
        if is_list:
            yield from literal(source, ",")
