"""Pieces of JSON Schema that several dialects' operations are made of."""

from __future__ import annotations

from typing import Final

from .operation import Schema

TEXT: Final[Schema] = {"type": "string"}
OBJECT: Final[Schema] = {"type": "object"}


def tagged(kind: str, **fields: Schema) -> Schema:
    """An object of that `type`, which needs all of these fields."""
    return {
        "type": "object",
        "required": ["type", *fields],
        "properties": {"type": {"const": kind}, **fields},
    }


def message_of(roles: list[str], parts: Schema) -> Schema:
    """A message of one of these roles: a text, or a list of parts."""
    content: Schema = {"anyOf": [TEXT, {"type": "array", "items": parts}]}
    return {
        "type": "object",
        "required": ["role", "content"],
        "properties": {"role": {"enum": roles}, "content": content},
    }
