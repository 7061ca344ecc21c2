"""What msgspec says about JSON of the wrong shape, taken apart. The only file that reads its wording.

`protocols/realtime/codec.py` makes error events of it, `protocols/shared/json_body.py` makes HTTP errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Final, Literal, Union, get_args, get_origin

import msgspec

_LOCATION: Final = re.compile(r"^(?P<problem>.*?)(?: - at `\$(?P<path>[^`]*)`)?$", re.DOTALL)
_MISSING: Final = re.compile(r"^Object missing required field `(?P<field>[^`]*)`$")
_UNKNOWN: Final = re.compile(r"^Object contains unknown field `(?P<field>.*)`$", re.DOTALL)
_CHOICE: Final = re.compile(r"^Invalid (enum )?value ")
_STEP: Final = re.compile(r"\[[^\]]*\]|\.[^.\[]+")
"""Of a path: into a field, or into what a list or a mapping holds."""
_MOST: Final = 1000
"""Characters of a message's ends. What a client wrote stands between them, and may be as long as its body: a
pattern would take seconds over that, in which no other thread runs."""


@dataclass(frozen=True, slots=True)
class Fault:
    """``Expected `float` <= 1.0 - at `$.a.b` `` is the param `a.b` and the problem before it.

    `param` is empty where the whole is wrong; of a missing or an unknown field it is the field. What is wrong
    with a choice says what is allowed.
    """

    param: str
    problem: str
    kind: Literal["missing", "unknown", "choice", "invalid"] = "invalid"
    allowed: str = ""
    """The names of the fields that are known where an unknown one lies inside another."""


def read_fault(message: str, prefix: str = "", kind: object = None) -> Fault:
    """Take a ValidationError's message apart, about something of the type `kind` that lies at `prefix`.

    A client chose an unknown field's name: little of it is repeated.
    """
    if len(message) > 2 * _MOST:
        message = message[:_MOST] + message[-_MOST:]
    found = _LOCATION.match(message)
    problem, path = (found["problem"], found["path"] or "") if found else (message, "")
    param = (prefix + path).strip(".")
    if missing := _MISSING.match(problem):
        return Fault(f"{param}.{missing['field']}".lstrip("."), problem, "missing")
    if unknown := _UNKNOWN.match(problem):
        allowed = ", ".join(_fields(kind, path)) if path else ""
        return Fault(f"{param}.{shortened(unknown['field'])}".lstrip("."), problem, "unknown", allowed)
    if _CHOICE.match(problem) and (choices := dict.fromkeys(map(str, _choices(kind, path)))):
        allowed = ", ".join(choices)
        return Fault(param, f"{shortened(problem)}; allowed: {allowed}", "choice")
    return Fault(param, problem)


def _fields(kind: object, path: str) -> Iterator[str]:
    """The names of the fields at `path` of a type, if one type may be there."""
    found = [each for each in _at(kind, path) if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    if len(found) == 1:
        yield from (field.encode_name for field in msgspec.structs.fields(found[0]))


def _at(kind: object, path: str) -> Iterator[object]:
    """The types that may be at `path` of a type."""
    kinds = [kind]
    for step in _STEP.findall(path):
        kinds = [inner for outer in kinds for each in _alternatives(outer) for inner in _inside(each, step)]
    return (each for outer in kinds for each in _alternatives(outer))


def _choices(kind: object, path: str) -> Iterator[object]:
    """What the literals or tags at `path` of a type are; of all of a union's, whichever was meant."""
    for each in _at(kind, path):
        if get_origin(each) is Literal:
            yield from get_args(each)
        elif isinstance(each, str):
            yield each


def _alternatives(kind: object) -> Iterator[object]:
    """The types of a union, without what annotates them."""
    match get_origin(kind):
        case origin if origin in (Union, UnionType):
            for each in get_args(kind):
                yield from _alternatives(each)
        case origin if origin is Annotated:
            yield from _alternatives(get_args(kind)[0])
        case _:
            yield kind


def _inside(kind: object, step: str) -> Iterator[object]:
    """The types there; of a tag the tag."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        config = kind.__struct_config__
        if step == f".{config.tag_field}":
            yield config.tag
        yield from (field.type for field in msgspec.structs.fields(kind) if f".{field.encode_name}" == step)
    elif step.startswith("["):
        yield from get_args(kind)


def shortened(text: str, limit: int = 60) -> str:
    """A text of at most `limit` characters and an ellipsis."""
    return text if len(text) <= limit else text[:limit] + "…"
