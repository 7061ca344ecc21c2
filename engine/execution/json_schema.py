"""A client's JSON schema as llguidance takes it, with the two conventions of structured output applied.

An object that lists `properties` has no others unless its schema opens it: a model that may invent keys does.
And `format` is an annotation: one that the compiler knows constrains, any other says nothing. Used by
`engine/execution/grammar.py`; knows no grammars.
"""

from __future__ import annotations

from typing import Any, Final

from ..text.tools.schemas import referred

FORMATS: Final = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "unknown", "uri", "uuid"}
)
"""Those llguidance turns into a pattern."""
_MAPS: Final = frozenset({"properties", "patternProperties", "$defs", "definitions"})
_LISTS: Final = frozenset({"prefixItems", "items"})
_SINGLE: Final = frozenset({"items", "additionalItems", "additionalProperties", "unevaluatedItems"})
_PARTS: Final = ("allOf", "anyOf", "oneOf")
_MAX_VISITS: Final = 200_000
"""Schemas looked at for one: a fraction of a second. Real ones take a few thousand."""

_Names = dict[str, None]
"""Property names in order. Where None stands in place of them, the object is open."""


def prepared(schema: dict[str, Any]) -> dict[str, Any]:
    """`schema` with its objects closed and unknown formats left out.

    Objects that are put together (`allOf`, alternatives beside `properties`, references) are closed to the
    names that all parts list. `additionalProperties` and `unevaluatedProperties` open and close as they say.
    Raises ValueError if references multiply beyond reason.
    """
    found = _Preparation(schema).prepared(schema, {})
    assert isinstance(found, dict)
    return found


class _Preparation:
    """Of one schema, which references point into."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._num_visits = 0
        self._inlining: list[str] = []

    def prepared(self, schema: object, outer: _Names | None) -> object:
        """`schema` where the objects it is a part of list `outer`, too."""
        self._visit()
        if not isinstance(schema, dict):
            return schema
        own, every = self._names(schema, _PARTS[:1], set()), self._names(schema, _PARTS, set())
        within, whole = _joined(outer, own), _joined(outer, every)
        found: dict[str, Any] = {}
        for key, value in schema.items():
            if key in _MAPS and isinstance(value, dict):
                found[key] = {name: self.prepared(each, {}) for name, each in value.items()}
            elif key in _PARTS and isinstance(value, list):
                names = whole if key == "allOf" else within
                found[key] = [self.prepared(each, names) for each in value]
            elif key in _LISTS and isinstance(value, list):
                found[key] = [self.prepared(each, {}) for each in value]
            elif key in _SINGLE:
                found[key] = self.prepared(value, {})
            elif not _has_no_effect(key, value):
                found[key] = value
        if whole is not None and _lists_properties(schema):
            listed = found.get("properties", {})
            more = {name: True for name in whole if name not in listed}
            found |= {"properties": {**listed, **more}, "additionalProperties": False}
        return self._with_reference(found, whole)

    def _with_reference(self, schema: dict[str, Any], whole: _Names | None) -> dict[str, Any]:
        """`schema` with what it refers to in place of the reference, where that is put together with more.

        What is referred to alone is closed where it stands.
        """
        reference = schema.get("$ref")
        if not isinstance(reference, str) or reference in self._inlining:
            return schema
        target = referred(reference, self._root) if reference.startswith("#") else None
        if not isinstance(target, dict):
            return schema
        alone = self._names(target, _PARTS, set())
        if alone is None or (whole is not None and whole.keys() == alone.keys()):
            return schema
        self._inlining.append(reference)
        inlined = self.prepared(target, whole)
        self._inlining.pop()
        others = {key: value for key, value in schema.items() if key != "$ref"}
        return {**others, "allOf": [inlined, *others.get("allOf", ())]}

    def _names(self, schema: object, parts: tuple[str, ...], visited: set[str]) -> _Names | None:
        """What an object may have by `schema` and these parts of it."""
        self._visit()
        if not isinstance(schema, dict):
            return {}
        if any(
            schema.get(key, False) is not False for key in ("additionalProperties", "unevaluatedProperties")
        ):
            return None
        found: _Names = {}
        for key in ("properties", "required"):
            listed = schema.get(key)
            if isinstance(listed, dict | list):
                found |= dict.fromkeys(name for name in listed if isinstance(name, str))
        inner = [each for key in parts if isinstance(schema.get(key), list) for each in schema[key]]
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference not in visited:
            visited.add(reference)
            target = referred(reference, self._root) if reference.startswith("#") else None
            if target is None:
                return None
            inner.append(target)
        for each in inner:
            names = self._names(each, parts, visited)
            if names is None:
                return None
            found |= names
        return found

    def _visit(self) -> None:
        self._num_visits += 1
        if self._num_visits > _MAX_VISITS:
            raise ValueError("its parts refer to each other too often")


def _joined(outer: _Names | None, inner: _Names | None) -> _Names | None:
    return None if outer is None or inner is None else {**outer, **inner}


def _lists_properties(schema: dict[str, Any]) -> bool:
    """Whether it is to be closed, and does not say so itself."""
    if "additionalProperties" in schema:
        return False
    return isinstance(schema.get("properties"), dict) or schema.get("unevaluatedProperties") is False


def _has_no_effect(key: str, value: object) -> bool:
    match key:
        case "format":
            return isinstance(value, str) and value not in FORMATS
        case "unevaluatedProperties":
            return isinstance(value, bool)  # true is the default, and false how every object is closed
        case "uniqueItems":
            return value is False
    return False
