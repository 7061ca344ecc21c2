"""What a tool's JSON schema says of one argument, and a text as that: formats that write no JSON need it.

Read next: `engine/text/tools/tagged_calls.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from .json_text import decoded

STRING: Final = frozenset({"string"})
_ALL: Final = frozenset({"string", "number", "boolean", "object", "array", "null"})
_MAX_DEPTH: Final = 16
_WORDS: Final = {"True": "true", "False": "false", "None": "null"}
"""Python's words, which models mix in."""
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False)
"""`json.dumps` would make a new one for every piece."""
_ESCAPED: Final = re.compile(r'["\\\x00-\x1f]')


def types_of(schema: dict[str, Any], key: str) -> frozenset[str]:
    """JSON types the argument `key` may have; all of them where the schema does not say. Integers are
    numbers."""
    properties = schema.get("properties")
    wanted = properties.get(key) if isinstance(properties, dict) else None
    if wanted is None:
        wanted = schema.get("additionalProperties")
    found = frozenset(_types(wanted, schema, 0))
    return found or _ALL


def _types(wanted: object, root: dict[str, Any], depth: int) -> Iterator[str]:
    if not isinstance(wanted, dict) or depth > _MAX_DEPTH:
        return
    named = wanted.get("type")
    if isinstance(named, str | list):
        for each in [named] if isinstance(named, str) else named:
            yield "number" if each == "integer" else str(each)
    elif isinstance(wanted.get("$ref"), str):
        yield from _types(_referred(wanted["$ref"], root), root, depth + 1)
    elif isinstance(wanted.get("enum"), list):
        yield from map(_type_of, wanted["enum"])
    elif "const" in wanted:
        yield _type_of(wanted["const"])
    for several in ("anyOf", "oneOf", "allOf"):
        if isinstance(wanted.get(several), list):
            for each in wanted[several]:
                yield from _types(each, root, depth + 1)


def _referred(reference: str, root: dict[str, Any]) -> object:
    found: object = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def _type_of(value: object) -> str:
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
    if is_json and _type_of(value) in types - STRING:
        return written
    if is_json and isinstance(value, str) and "string" not in types:
        return written
    return _ENCODER.encode(text)


def escaped(text: str) -> str:
    """A piece of a string, as it stands between the quotation marks."""
    return _ENCODER.encode(text)[1:-1] if _ESCAPED.search(text) else text
