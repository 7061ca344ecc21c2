"""Objects have the properties that their schema lists, and formats that say nothing constrain nothing."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from sensorium.engine.execution.grammar import GrammarError
from sensorium.engine.execution.grammar_store import GrammarStore
from sensorium.engine.execution.json_schema import FORMATS, prepared
from sensorium.protocols.engine.messages import Grammar
from sensorium.protocols.errors import BadRequestError
from support.grammars import matcher_of
from support.text_folder import byte_level_tokenizer

INTEGER = {"type": "integer"}


@cache
def store() -> GrammarStore:
    tokenizer = byte_level_tokenizer()
    size = int(tokenizer.get_vocab_size())
    return GrammarStore(tokenizer.to_str(), vocab_size=size, stop_token_ids=(size - 1,))


def matches(grammar: Grammar, answer: str) -> bool:
    """Whether a model may answer so."""
    matcher = matcher_of(store(), grammar)
    try:
        matcher.advance(byte_level_tokenizer().encode(answer, add_special_tokens=False).ids)
    except GrammarError:
        return False
    return matcher.is_complete


def follows(schema: dict[str, Any], value: object) -> bool:
    return matches(Grammar("json_schema", json.dumps(schema)), json.dumps(value, ensure_ascii=False))


def an_object(**properties: object) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


A, B = an_object(a=INTEGER), an_object(b=INTEGER)
NEEDS_A, NEEDS_B = {**A, "required": ["a"]}, {**B, "required": ["b"]}
TREE = {**an_object(v=INTEGER, kids={"type": "array", "items": {"$ref": "#/$defs/T"}}), "required": ["v"]}


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (A, [{}, {"a": 1}], [{"b": 1}, {"a": 1, "b": 1}]),
        (an_object(), [{}], [{"a": 1}]),
        (an_object(x=A), [{"x": {"a": 1}}], [{"x": {"b": 1}}]),
        ({"type": "array", "items": A}, [[{"a": 1}]], [[{"b": 1}]]),
        ({**A, "required": ["a", "z"]}, [{"a": 1, "z": "any"}], [{"a": 1, "z": 1, "b": 1}]),
        ({"anyOf": [A, {"type": "null"}]}, [{"a": 1}, None], [{"b": 1}]),
        ({"$defs": {"T": TREE}, "$ref": "#/$defs/T"}, [{"v": 1, "kids": [{"v": 2}]}], [{"v": 1, "b": 1}]),
        # Put together: closed to what all parts list.
        ({"allOf": [A, B]}, [{}, {"a": 1, "b": 2}, {"b": 2}], [{"c": 1}, {"a": 1, "c": 1}, {"a": "x"}]),
        (
            {"allOf": [{"$ref": "#/$defs/A"}, B], "$defs": {"A": A}},
            [{"a": 1, "b": 2}],
            [{"a": "x"}, {"c": 1}],
        ),
        ({**A, "$ref": "#/$defs/B", "$defs": {"B": B}}, [{"b": 2, "a": 1}], [{"b": "x"}, {"c": 1}]),
        (
            {**an_object(k=INTEGER), "required": ["k"], "anyOf": [NEEDS_A, NEEDS_B]},
            [{"k": 1, "a": 1}, {"k": 1, "b": 1}],
            [{"k": 1}, {"k": 1, "a": 1, "b": 1}, {"k": 1, "a": 1, "z": 1}],
        ),
        # Opened, or closed, as the schema says.
        ({**A, "additionalProperties": True}, [{"a": 1, "b": "x"}], [{"a": "x"}]),
        ({**A, "additionalProperties": INTEGER}, [{"a": 1, "b": 1}], [{"a": 1, "b": "x"}]),
        ({**A, "unevaluatedProperties": True}, [{"a": 1, "b": 1}], [{"a": "x"}]),
        ({"allOf": [A, B], "unevaluatedProperties": False}, [{"a": 1, "b": 1}], [{"c": 1}]),
        ({"allOf": [{**A, "additionalProperties": True}, B]}, [{"c": 1}], [{"b": "x"}]),
        ({**A, "patternProperties": {"^x": INTEGER}}, [{"a": 1, "x1": 1}], [{"b": 1}, {"x1": "x"}]),
        ({"type": "object"}, [{}, {"a": 1}], [1]),
        ({"type": "object", "additionalProperties": INTEGER}, [{"a": 1}], [{"a": "x"}]),
        # With closed objects alternatives that need different properties exclude each other.
        ({"oneOf": [NEEDS_A, NEEDS_B]}, [{"a": 1}, {"b": 1}], [{}, {"a": 1, "b": 1}]),
        # Names of properties are no keywords.
        (an_object(format={"type": "string"}, properties=A), [{"properties": {"a": 1}}], [{"properties": 1}]),
        ({"enum": [{"properties": {}, "format": "x"}]}, [{"properties": {}, "format": "x"}], [{}]),
    ],
    ids=str,
)
def test_objects_have_the_properties_that_are_listed(
    schema: dict[str, Any], right: list[object], wrong: list[object]
) -> None:
    for value in right:
        assert follows(schema, value), value
    for value in wrong:
        assert not follows(schema, value), value


def test_the_parts_of_an_answer_are_closed_too() -> None:
    parts = {"j0": {"json": an_object()}, "j1": {"kind": "json_schema", "source": an_object(x=A)}}
    grammar = Grammar("answer", json.dumps({"lark": 'start: "call" @j0 | "say" @j1', "parts": parts}))
    assert matches(grammar, "call{}")
    assert not matches(grammar, 'call{"a": 1}')
    assert matches(grammar, 'say{"x": {"a": 1}}')
    assert not matches(grammar, 'say{"x": {"b": 1}}')


@pytest.mark.parametrize(
    "name",
    ["password", "binary", "byte", "path", "file-path", "uri-reference", "int32", "json-string", "x y"],
)
def test_a_format_that_is_not_known_constrains_nothing(name: str) -> None:
    one: dict[str, Any] = {"type": "string", "format": name}
    assert follows(one, "anything: é")
    assert follows(an_object(secret={**one, "writeOnly": True}), {"secret": "x"})
    assert follows({"anyOf": [{"type": ["string", "null"], "format": name}]}, None)
    assert not follows({**one, "maxLength": 3}, "long")


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [("date", "2026-11-28", "28.11."), ("ipv4", "127.0.0.1", "localhost"), ("email", "a@example.org", "a")],
)
def test_a_format_that_is_known_constrains(name: str, right: str, wrong: str) -> None:
    assert follows({"type": "string", "format": name}, right)
    assert not follows({"type": "string", "format": name}, wrong)


def test_the_formats_named_here_are_those_the_library_knows() -> None:
    for name in FORMATS:
        store().compile(Grammar("json_schema", json.dumps({"type": "string", "format": name})))


@pytest.mark.parametrize(
    "alternatives",
    [
        [{"type": "string"}, {"type": "string", "maxLength": 3}],
        [INTEGER, {"type": "number"}],
        [A, B],
    ],
    ids=str,
)
def test_alternatives_that_overlap_are_refused_with_the_way_out(alternatives: list[object]) -> None:
    with pytest.raises(BadRequestError, match="write `anyOf`"):
        store().compile(Grammar("json_schema", json.dumps({"oneOf": alternatives})))
    store().compile(Grammar("json_schema", json.dumps({"anyOf": alternatives})))


def test_a_schema_that_refers_to_itself_in_every_part_is_refused_soon() -> None:
    parts = [{"$ref": f"#/$defs/T{number}"} for number in range(250)]
    definitions = {f"T{number}": {"anyOf": parts, "properties": {f"p{number}": {}}} for number in range(250)}
    with pytest.raises(ValueError, match="too often"):
        prepared({"$defs": definitions, "anyOf": parts})


def test_a_schema_is_left_as_it_was() -> None:
    schema = {"allOf": [{"$ref": "#/$defs/A"}, B], "$defs": {"A": A}, "format": "x"}
    before = json.dumps(schema)
    assert prepared(schema) != schema
    assert json.dumps(schema) == before
