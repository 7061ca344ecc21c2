"""Arguments of forced calls: what is sampled follows the schema, whatever a format makes of strings."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from sensorium.engine.text.tools.formats import FORMATS, FormatName
from sensorium.engine.text.tools.grammars import call_grammar
from sensorium.engine.text.tools.machine import AnswerFormat, AnswerMachine, read_whole
from sensorium.protocols.chat.tools import Tool
from sensorium.protocols.engine.messages import Grammar
from sensorium.protocols.errors import BadRequestError
from support.answers import as_tuples
from support.grammar_sampler import Sampler

DEFS = {
    "Color": {"enum": ["red", "blue"], "type": "string", "title": "Color"},
    "Size": {
        "type": "object",
        "properties": {"x": {"enum": [1]}},
        "required": ["x"],
        "additionalProperties": False,
    },
}
COLOR = {"$ref": "#/$defs/Color"}
LISTED: dict[str, tuple[Any, list[Any]]] = {
    "words elsewhere": (COLOR, ["red", "blue"]),
    "with remarks": ({"allOf": [COLOR], "default": "red", "description": "a"}, ["red", "blue"]),
    "words or null": ({"anyOf": [COLOR, {"type": "null"}]}, ["red", "blue", None]),
    "a constant": ({"const": "on"}, ["on"]),
    "mixed": ({"enum": ["a", 7, None, True]}, ["a", 7, None, True]),
    "a word or numbers": (
        {"anyOf": [{"const": "auto"}, {"type": "integer", "minimum": 1, "maximum": 3}]},
        ["auto", 1, 2, 3],
    ),
    "a word or an object": ({"anyOf": [{"const": "auto"}, {"$ref": "#/$defs/Size"}]}, ["auto", {"x": 1}]),
    "of some types": ({"type": ["string", "null"], "enum": ["Rome", None, 3]}, ["Rome", None]),
    "words like JSON": ({"enum": ["null", "true", "3", ""]}, ["null", "true", "3", ""]),
}
STRING, INTEGER, NULL = {"type": "string"}, {"type": "integer"}, {"type": "null"}
ROWS = {"type": "array", "items": INTEGER}
WRITTEN: dict[FormatName, str] = {
    "qwen3_coder": ("<tool_call>\n<function=f>\n<parameter=a>\n%s\n</parameter>\n</function>\n</tool_call>"),
    "glm": "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>%s</arg_value>\n</tool_call>",
    "minimax_m2": (
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">%s</parameter>\n</invoke>\n'
        "</minimax:tool_call>"
    ),
}
every_format = pytest.mark.parametrize(
    ("name", "has_tokens"),
    [(name, has) for name in get_args(FormatName) for has in (True, False) if has or name != "harmony"],
)


def sampler_of(name: FormatName, *, has_tokens: bool = True) -> Sampler:
    return Sampler(AnswerFormat(FORMATS[name], None), has_tokens=has_tokens)


def forced(sampler: Sampler, schema: dict[str, Any]) -> Grammar:
    tools, token_id = (Tool("f", schema),), sampler.text.added_id
    grammar = call_grammar(sampler.kind, tools, token_id, is_parallel=False, thinking="closed")
    assert grammar is not None
    return grammar


def arguments(sampler: Sampler, schema: dict[str, Any], text: str) -> dict[str, Any]:
    found = as_tuples(read_whole(AnswerMachine(sampler.kind, {"f": schema}, thinking="closed"), text))
    ((_, __, written),) = [each for each in found if each[0] == "call"]
    read: dict[str, Any] = json.loads(written)
    return read


@every_format
@pytest.mark.parametrize("what", LISTED)
def test_values_that_are_listed_are_what_comes(name: FormatName, has_tokens: bool, what: str) -> None:
    wanted, values = LISTED[what]
    schema = {"properties": {"a": wanted}, "required": ["a"], "$defs": DEFS}  # an object, without saying so
    sampler = sampler_of(name, has_tokens=has_tokens)
    grammar = forced(sampler, schema)
    for seed in range(8):
        read = arguments(sampler, schema, sampler.sample(grammar, seed))
        assert list(read) == ["a"]
        assert read["a"] in values


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("has_tokens", [True, False])
@pytest.mark.parametrize(
    ("wanted", "read"),
    [
        ({"anyOf": [STRING, NULL]}, {"Rome": "Rome", "null": None, "12 Main St": "12 Main St", '"a"': '"a"'}),
        ({"type": ["string", "null"]}, {"Rome": "Rome", "": "", "None": None, "[1]": "[1]"}),
        ({"type": ["string", "integer"]}, {"Rome": "Rome", "7": 7, "a 7": "a 7", "{1": "{1"}),
        ({"anyOf": [STRING, ROWS, NULL]}, {"Rome": "Rome", "[7]": [7], "7": "7", "null": None}),
        (True, {"Rome": "Rome", "[7]": [7], "null": None, '{"a": "b"}': {"a": "b"}}),
    ],
)
def test_strings_beside_other_types_stand_as_they_are(
    name: FormatName, has_tokens: bool, wanted: object, read: dict[str, Any]
) -> None:
    schema = {"type": "object", "properties": {"a": wanted}, "required": ["a"]}
    sampler = sampler_of(name, has_tokens=has_tokens)
    grammar = forced(sampler, schema)
    for text, value in read.items():
        written = WRITTEN[name] % text
        assert sampler.accepts(grammar, written), text
        assert arguments(sampler, schema, written) == {"a": value}


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("text", ["1.5", " 2.5", '["x"]', "{}"])
def test_a_text_that_would_be_read_as_a_wrong_value_does_not_come(name: FormatName, text: str) -> None:
    wanted = {"anyOf": [STRING, INTEGER, ROWS, {"$ref": "#/$defs/Size"}]}
    schema = {"type": "object", "properties": {"a": wanted}, "required": ["a"], "$defs": DEFS}
    sampler = sampler_of(name)
    assert not sampler.accepts(forced(sampler, schema), WRITTEN[name] % text)


@every_format
@pytest.mark.parametrize("more", [{"additionalProperties": {"enum": [7]}}, {}])
def test_what_is_required_comes_though_nothing_else_is_said_of_it(
    name: FormatName, has_tokens: bool, more: dict[str, Any]
) -> None:
    schema = {"type": "object", "properties": {"b": {"enum": [1]}}, "required": ["b", "a"], **more}
    sampler = sampler_of(name, has_tokens=has_tokens)
    grammar = forced(sampler, schema)
    sampler.store.compile(grammar)
    if more:
        read = arguments(sampler, schema, sampler.sample(grammar, 1))
        assert (read["a"], read["b"]) == (7, 1)


def test_gemmas_strings_have_its_marks_beside_other_types_too() -> None:
    sampler, wanted = sampler_of("gemma"), {"anyOf": [STRING, ROWS, NULL]}
    for schema in ({"a:b": wanted}, {"a:b": True}):
        whole = {"type": "object", "properties": schema, "required": ["a:b"]}
        for text, value in {'<|"|>Rome<|"|>': "Rome", "[7]": [7], "null": None}.items():
            written = f'<|tool_call>call:f{{"a:b":{text}}}<tool_call|>'
            assert sampler.accepts(forced(sampler, whole), written)
            assert arguments(sampler, whole, written) == {"a:b": value}


@pytest.mark.parametrize(
    ("name", "key", "wanted", "named"),
    [
        ("qwen3_coder", "a>b", STRING, "`a>b`"),
        ("minimax_m2", "'a'", STRING, "`'a'`"),
        ("glm", " a", STRING, "` a`"),
        ("qwen3_coder", "a", {"enum": ["x</parameter>"]}, "'x</parameter>' for `a`"),
        ("glm", "a", {"enum": ["\nx"]}, "'\\nx' for `a`"),
        ("minimax_m2", "a", {"enum": ["1", 2]}, "'1' for `a`"),
        ("gemma", "a", {"const": '<|"|>'}, "'<|\"|>' for `a`"),
    ],
)
def test_what_a_format_does_not_hold_is_refused_by_name(
    name: FormatName, key: str, wanted: dict[str, Any], named: str
) -> None:
    schema = {"type": "object", "properties": {key: wanted}, "required": [key]}
    with pytest.raises(BadRequestError) as caught:
        forced(sampler_of(name), schema)
    assert caught.value.param == "tools"
    assert named in caught.value.message


def test_many_copies_of_one_large_schema_are_refused() -> None:
    words = [f"word {index}" for index in range(2000)]
    schema = {
        "type": "object",
        "properties": {f"p{index}": {"$ref": "#/$defs/words"} for index in range(200)},
        "$defs": {"words": {"enum": words}},
    }
    with pytest.raises(BadRequestError, match="too large"):
        forced(sampler_of("glm"), schema)
