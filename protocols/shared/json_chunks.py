"""A whole answer as JSON, in pieces: no call of the encoder holds Python's lock for long.

One call that encodes megabytes keeps every other thread from running, the network loop too, though it is made
in a thread of its own; so does one that frees as much. Used by the routes of text models.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import UNSET, Struct

ITEMS_AT_ONCE: Final = 128
"""Of a list. The largest are tokens with 20 alternatives, 1.8 kB each."""

_encode: Final = msgspec.json.Encoder().encode


def answer_body(envelope: Struct, choices: Iterable[Struct]) -> bytes:
    """An answer with these as its `choices`.

    They are made one by one, and used up: what their lists of objects held is forgotten piece by piece.
    """
    body = io.BytesIO()
    _write_fields(body, envelope, choices)
    return body.getvalue()


def _write_fields(body: io.BytesIO, value: Struct, choices: Iterable[Struct] = ()) -> None:
    mark = b"{"
    for name, key in zip(value.__struct_fields__, value.__struct_encode_fields__, strict=True):
        field = getattr(value, name)
        if field is UNSET:
            continue
        body.write(mark + b'"' + key.encode() + b'":')
        mark = b","
        if name == "choices":
            _write_choices(body, choices)
        else:
            _write(body, field)
    body.write(b"{}" if mark == b"{" else b"}")


def _write_choices(body: io.BytesIO, choices: Iterable[Struct]) -> None:
    body.write(b"[")
    for number, choice in enumerate(choices):
        body.write(b"," if number else b"")
        _write_fields(body, choice)
    body.write(b"]")


def _write(body: io.BytesIO, value: object) -> None:
    if isinstance(value, Struct) and _is_plain(value):
        _write_fields(body, value)
    elif isinstance(value, list | tuple) and len(value) > ITEMS_AT_ONCE:
        body.write(b"[")
        for at in range(0, len(value), ITEMS_AT_ONCE):
            some = value[at : at + ITEMS_AT_ONCE]
            body.write((b"," if at else b"") + _encode(some)[1:-1])
            if isinstance(value, list) and isinstance(some[-1], dict | Struct):
                value[at : at + ITEMS_AT_ONCE] = [None] * len(some)
        body.write(b"]")
    else:
        body.write(_encode(value))


def _is_plain(value: Struct) -> bool:
    """Whether it is its fields, each of them, and nothing more."""
    config = value.__struct_config__
    return not (config.tag or config.omit_defaults or config.array_like)
