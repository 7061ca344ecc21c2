"""What a tool's JSON schema says of one argument, and a text as that: formats that write no JSON need it.

Read next: `engine/text/tools/tagged_calls.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from .json_text import decoded

STRING: Final = frozenset({"string"})
_ALL: Final = frozenset({"string", "number", "boolean", "object", "array", "null"})
_SHARED: Final = ("$defs", "definitions")
"""Where a schema keeps what its parts refer to; the second is what pydantic 1 writes."""
_REMARKS: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"}
)
"""What may stand in a schema and says nothing of values."""
_WORDS: Final = {"True": "true", "False": "false", "None": "null"}
"""Python's words, which models mix in."""
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)
"""`json.dumps` would make a new one for every piece."""
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')


@dataclass(frozen=True, slots=True)
class Leaf:
    """A schema without alternatives."""

    schema: dict[str, Any]
    types: frozenset[str]
    """Of JSON; all of them where the schema does not say. Integers are numbers."""
    values: list[Any] | None
    """Those it lists; None: it does not."""


def types_of(schema: dict[str, Any], key: str) -> frozenset[str]:
    """JSON types the argument `key` may have; all of them where the schema does not say. Integers are
    numbers."""
    return _types_in(_wanted(schema, key), schema)


def leaves_of(schema: dict[str, Any], key: str) -> list[Leaf]:
    """Schemas of which the argument `key` follows one: references are followed, and alternatives parted."""
    shared: dict[str, Any] = {name: schema[name] for name in _SHARED if name in schema}
    found = []
    for each in _parted(_wanted(schema, key), schema):
        types = _types_in(each, schema)
        listed = [each["const"]] if "const" in each else each.get("enum")
        values = [value for value in listed if type_of(value) in types] if isinstance(listed, list) else None
        found.append(Leaf({**shared, **each}, types, values))
    return found


def _wanted(schema: dict[str, Any], key: str) -> object:
    properties = schema.get("properties")
    wanted = properties.get(key) if isinstance(properties, dict) else None
    return schema.get("additionalProperties") if wanted is None else wanted


def _parted(wanted: object, root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    visited: set[str] = set()
    left = [wanted]
    while left:
        each = left.pop()
        if not isinstance(each, dict):
            if each is not False:
                yield {}
            continue
        keys = each.keys() - _REMARKS
        if keys == {"$ref"}:
            if each["$ref"] not in visited:
                visited.add(each["$ref"])
                left.append(referred(each["$ref"], root))
        elif keys in ({"anyOf"}, {"oneOf"}) or (keys == {"allOf"} and len(each["allOf"]) == 1):
            left += reversed(each[keys.pop()])
        else:
            yield each


def _types_in(wanted: object, root: dict[str, Any]) -> frozenset[str]:
    found: set[str] = set()
    visited: set[str] = set()
    left = [wanted]
    while left:
        each = left.pop()
        if not isinstance(each, dict):
            continue
        named, reference = each.get("type"), each.get("$ref")
        if isinstance(named, str | list):
            found.update(map(as_number, [named] if isinstance(named, str) else named))
        elif isinstance(reference, str):
            if reference not in visited:
                visited.add(reference)
                left.append(referred(reference, root))
        elif isinstance(each.get("enum"), list):
            found.update(map(type_of, each["enum"]))
        elif "const" in each:
            found.add(type_of(each["const"]))
        for several in ("anyOf", "oneOf", "allOf"):
            if isinstance(each.get(several), list):
                left += each[several]
    return frozenset(found) or _ALL


def as_number(kind: object) -> str:
    """A type's name; integers are numbers."""
    return "number" if kind == "integer" else str(kind)


def referred(reference: str, root: dict[str, Any]) -> object:
    """The schema a reference within `root` points at; None where there is none."""
    found: object = root
    path = reference.removeprefix("#").strip("/")
    for part in path.split("/") if path else ():
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def type_of(value: object) -> str:
    """The JSON type of a value."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def as_json(text: str, types: frozenset[str]) -> str:
    """A text as JSON of one of `types`, if it can be read so, else as a string."""
    written = text.strip()
    written = _WORDS.get(written, written)
    is_json, value = decoded(written)
    if is_json and type_of(value) in types - STRING:
        return written
    if is_json and isinstance(value, str) and "string" not in types:
        return written
    return _ENCODER.encode(text)


def escaped(text: str) -> str:
    """A piece of a string, as it stands between the quotation marks."""
    return _ENCODER.encode(text)[1:-1] if _ESCAPED.search(text) else text
