"""Structured output on the wire: OpenAI's `response_format`, vLLM's `structured_outputs` → a `Grammar`.

Checks shapes and sizes; whether a grammar can be compiled is `engine/execution/grammar.py`'s business.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from ..engine.messages import Grammar
from ..errors import BadRequestError, wrong
from .json_body import missing, refuse

MAX_GRAMMAR_BYTES: Final = 64 * 1024
_MOST_RAW: Final = 6 * MAX_GRAMMAR_BYTES + 3
"""Bytes that a schema of so many cannot have in a body: in a string a character takes six at most."""


class JsonSchemaFormat(Struct, frozen=True, forbid_unknown_fields=True):
    """`response_format.json_schema`; the schema stays as it was written."""

    name: str | None = None
    schema: Raw | UnsetType = UNSET
    strict: bool | None = None
    description: str | None = None


class ResponseFormat(Struct, frozen=True, forbid_unknown_fields=True):
    """OpenAI's way to ask for structured output."""

    type: str
    json_schema: JsonSchemaFormat | None = None


class StructuredOutputs(Struct, frozen=True, forbid_unknown_fields=True):
    """vLLM's way: exactly one of these."""

    json: Raw | UnsetType = UNSET
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


def grammar_of(response_format: ResponseFormat | None, outputs: StructuredOutputs | None) -> Grammar | None:
    """What the answer must match, by either way of asking. Raises BadRequestError naming the field."""
    found = [each for each in (_from_format(response_format), _structured(outputs)) if each]
    if len(found) > 1:
        raise wrong("structured_outputs", "and `response_format` exclude each other")
    return found[0] if found else None


def _from_format(response_format: ResponseFormat | None) -> Grammar | None:
    match response_format:
        case None | ResponseFormat(type="text"):
            return None
        case ResponseFormat(type="json_object"):
            return Grammar("json_object")
        case ResponseFormat(type="json_schema", json_schema=JsonSchemaFormat(schema=Raw() as schema)):
            return Grammar("json_schema", _schema("response_format.json_schema.schema", schema))
        case ResponseFormat(type="json_schema"):
            raise missing("response_format.json_schema.schema")
        case ResponseFormat(type=other):
            raise refuse("response_format.type", other, "text, json_object, json_schema")


def _structured(options: StructuredOutputs | None) -> Grammar | None:
    if options is None:
        return None
    param = "structured_outputs"
    found: list[Grammar] = []
    if isinstance(options.json, Raw) and bytes(options.json) != b"null":
        found.append(Grammar("json_schema", _schema(f"{param}.json", options.json)))
    if options.regex is not None:
        found.append(Grammar("regex", _source(f"{param}.regex", options.regex)))
    if options.choice is not None:
        if not options.choice or not all(options.choice):
            raise refuse(f"{param}.choice", options.choice, "at least one string, none of them empty")
        found.append(
            Grammar("choice", _source(f"{param}.choice", msgspec.json.encode(options.choice).decode()))
        )
    if options.grammar is not None:
        found.append(Grammar("lark", _source(f"{param}.grammar", options.grammar)))
    if options.json_object:
        found.append(Grammar("json_object"))
    if len(found) != 1:
        raise wrong(
            param,
            f"has {len(found)} of `json`, `regex`, `choice`, `grammar`, `json_object`; allowed: exactly one",
        )
    return found[0]


def _schema(param: str, raw: Raw) -> str:
    """A JSON schema: an object (or a boolean), or a string that holds one."""
    data = bytes(memoryview(raw)[:_MOST_RAW])
    if len(data) == _MOST_RAW:
        raise _too_long(param, data.decode(errors="replace"))
    try:
        # Its length comes first: this is the loop's time.
        text = _source(param, msgspec.json.decode(data, type=str) if data[:1] == b'"' else data.decode())
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise refuse(param, data.decode(errors="replace"), "a JSON schema") from None
    if not isinstance(value, dict | bool):
        raise refuse(param, value, "a JSON schema, which is an object")
    return text


def _source(param: str, source: str) -> str:
    try:
        size = len(source[: MAX_GRAMMAR_BYTES + 1].encode())
    except UnicodeEncodeError:
        raise wrong(param, "holds half a surrogate pair") from None
    if not 0 < size <= MAX_GRAMMAR_BYTES:
        raise _too_long(param, source)
    return source


def _too_long(param: str, source: str) -> BadRequestError:
    return refuse(param, source, f"1 to {MAX_GRAMMAR_BYTES:,} bytes")
