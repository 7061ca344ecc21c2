"""What a schema says of an argument, and a text as that."""

from __future__ import annotations

from typing import Any

import pytest
from sensorium.engine.text.tools.schemas import as_json, leaves_of, types_of

ALL = {"string", "number", "boolean", "object", "array", "null"}


@pytest.mark.parametrize(
    ("wanted", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["integer", "null"]}, {"number", "null"}),
        ({"anyOf": [{"type": "array"}, {"type": "null"}]}, {"array", "null"}),
        ({"enum": ["a", 1, None, True]}, {"string", "number", "null", "boolean"}),
        ({"const": {"a": 1}}, {"object"}),
        ({"$ref": "#/$defs/a~1b"}, {"boolean"}),
        ({"$ref": "#/$defs/loop"}, ALL),
        ({"$ref": "#/nowhere"}, ALL),
        ({"$ref": "#/$defs/wide"}, {"null"}),
        ({"$ref": "#/$defs/chain0"}, {"null"}),
        ({"$ref": "#"}, {"object"}),
        ({}, ALL),
        (True, ALL),
    ],
)
def test_types(wanted: object, types: set[str]) -> None:
    defs: dict[str, Any] = {"a/b": {"type": "boolean"}, "loop": {"$ref": "#/$defs/loop"}}
    defs |= {f"chain{number}": {"anyOf": [{"$ref": f"#/$defs/chain{number + 1}"}]} for number in range(2000)}
    defs["chain2000"] = {"type": "null"}
    defs["wide"] = {"anyOf": [*[{"$ref": "#/$defs/wide"}] * 100, {"type": "null"}]}
    schema = {"type": "object", "properties": {"x": wanted}, "$defs": defs}
    assert types_of(schema, "x") == types
    leaves = leaves_of(schema, "x")
    assert frozenset[str]().union(*(leaf.types for leaf in leaves)) == types or "loop" in str(wanted)


def test_arguments_the_schema_does_not_name() -> None:
    assert types_of({}, "x") == ALL
    assert types_of({"properties": None, "additionalProperties": {"type": "integer"}}, "x") == {"number"}


@pytest.mark.parametrize(
    ("text", "types", "expected"),
    [
        (" 3 ", {"number"}, "3"),
        ("3", {"string"}, '"3"'),
        ("3", {"string", "number"}, "3"),
        ("null", {"string"}, '"null"'),
        ("null", {"string", "null"}, "null"),
        ("None", {"number", "null"}, "null"),
        ("True", {"boolean"}, "true"),
        ('{"a": [1]}', {"object"}, '{"a": [1]}'),
        ("{'a'}", {"object"}, "\"{'a'}\""),
        ('"x"', {"array"}, '"x"'),
        ("ü\n", ALL, '"ü\\n"'),
        ("NaN", ALL, '"NaN"'),
        ("[1, -Infinity]", ALL, '"[1, -Infinity]"'),
        ("[" * 100_000, {"array"}, f'"{"[" * 100_000}"'),
    ],
)
def test_a_text_as_json(text: str, types: set[str], expected: str) -> None:
    assert as_json(text, frozenset(types)) == expected
