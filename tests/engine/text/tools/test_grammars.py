"""Calls that must come: whatever is sampled under the grammar, the format's own reader finds valid calls."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from sensorium.engine.text.tools.formats import FORMATS, FormatName
from sensorium.engine.text.tools.grammars import after_thinking, call_grammar
from sensorium.engine.text.tools.machine import AnswerFormat, AnswerMachine, read_whole
from sensorium.engine.text.tools.thinking import THINK, Thinking
from sensorium.protocols.chat.answer_events import Event
from sensorium.protocols.chat.tools import NO_ARGUMENTS, Tool
from sensorium.protocols.engine.messages import Grammar
from sensorium.protocols.errors import BadRequestError
from support.answers import as_tuples
from support.grammar_sampler import Sampler
from support.grammars import matcher_of

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": ["Paris", 'Sa"o']},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "exact": {"type": "boolean"},
    },
    "required": ["city", "days"],
}
SCHEMA = '{"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]}'
TOOLS = (Tool("get_weather", WEATHER), Tool("now", NO_ARGUMENTS))
SEEDS = range(20)


def events(sampler: Sampler, text: str, thinking: Thinking = "closed") -> list[Event]:
    schemas = {tool.name: tool.parameters for tool in TOOLS}
    return read_whole(AnswerMachine(sampler.kind, schemas, thinking=thinking), text)


def check(found: list[tuple[str, ...]], text: str) -> None:
    assert found, text
    for kind, *rest in found:
        assert kind == "call", (found, text)
        name, written = rest
        arguments = json.loads(written)
        if name == "now":
            assert arguments == {}
            continue
        assert name == "get_weather"
        assert arguments["city"] in ("Paris", 'Sa"o')
        assert 1 <= arguments["days"] <= 9
        assert set(arguments) <= {"city", "days", "exact"}
        assert isinstance(arguments.get("exact", True), bool)


@pytest.mark.parametrize(
    ("name", "has_tokens"),
    [(name, has) for name in get_args(FormatName) for has in (True, False) if has or name != "harmony"],
)
def test_whatever_is_sampled_is_calls(name: FormatName, has_tokens: bool) -> None:
    kind = AnswerFormat(FORMATS[name], None)
    sampler = Sampler(kind, has_tokens=has_tokens)
    for is_parallel in (True, False):
        grammar = call_grammar(kind, TOOLS, sampler.text.added_id, is_parallel=is_parallel, thinking="closed")
        assert grammar is not None
        for seed in SEEDS:
            text = sampler.sample(grammar, seed)
            found = as_tuples(events(sampler, text))
            check([each for each in found if each[0] != "thought"], text)
            if not is_parallel:
                assert len([each for each in found if each[0] == "call"]) == 1


@pytest.mark.parametrize("name", get_args(FormatName))
def test_of_calls_that_are_cut_anywhere_nothing_becomes_text(name: FormatName) -> None:
    kind = AnswerFormat(FORMATS[name], None if name == "harmony" else THINK)
    sampler = Sampler(kind, has_tokens=True)
    grammar = call_grammar(kind, TOOLS, sampler.text.added_id, is_parallel=True, thinking="may")
    assert grammar is not None
    schemas = {tool.name: tool.parameters for tool in TOOLS}
    kinds = set()
    for seed in range(4):
        text = sampler.sample(grammar, seed)
        for end in range(len(text)):
            found = as_tuples(read_whole(AnswerMachine(kind, schemas, only_calls=True), text[:end]))
            kinds |= {each[0] for each in found}
    assert kinds == {"thought", "call"}


@pytest.mark.parametrize(
    ("name", "has_tokens"),
    [(name, has) for name in get_args(FormatName) for has in (True, False) if has or name != "harmony"],
)
def test_where_calls_may_come_beside_a_form_all_is_one_or_the_other(
    name: FormatName, has_tokens: bool
) -> None:
    kind = AnswerFormat(FORMATS[name], None)
    sampler = Sampler(kind, has_tokens=has_tokens)
    form = Grammar("json_schema", SCHEMA[:-1] + ', "additionalProperties": false}')
    grammar = call_grammar(kind, TOOLS, sampler.text.added_id, is_parallel=True, thinking="closed", form=form)
    assert grammar is not None
    kinds = set()
    for seed in range(40):
        text = sampler.sample(grammar, seed)
        found = [each for each in as_tuples(events(sampler, text)) if each[0] != "thought"]
        kinds.add(found[0][0])
        if found[0][0] == "text":
            assert json.loads("".join(text_of_event for _, text_of_event in found)) == {"a": 1}
        else:
            check(found, text)
    assert kinds == {"text", "call"}


def test_what_is_at_fault_in_a_form_or_beside_it_is_named() -> None:
    kind = AnswerFormat(FORMATS["hermes"], THINK)
    sampler = Sampler(kind, has_tokens=True)
    token_id, broken = sampler.text.added_id, '{"type": "string", "pattern": "("}'
    good, bad = Grammar("json_schema", SCHEMA), Grammar("json_schema", broken)
    crooked = Tool("f", {"type": "object", "properties": {"a": json.loads(broken)}})

    def combined(tool: Tool, form: Grammar | None) -> Grammar | None:
        return call_grammar(kind, (tool,), token_id, is_parallel=True, thinking="open", form=form)

    for grammar, param in (
        (combined(TOOLS[0], bad), "response_format"),
        (combined(crooked, good), "tools"),
        (combined(crooked, bad), "response_format"),
        (combined(crooked, None), "tools"),
        (after_thinking(kind, bad, token_id, "open"), "response_format"),
        (after_thinking(kind, Grammar("regex", "("), token_id, "open"), "response_format"),
    ):
        assert grammar is not None
        assert grammar.kind == "answer"
        with pytest.raises(BadRequestError) as caught:
            sampler.store.compile(grammar)
        assert caught.value.param == param
        assert f"`{param}`" in caught.value.message


def test_a_named_tool_is_the_one_that_is_called() -> None:
    sampler = Sampler(AnswerFormat(FORMATS["hermes"]), has_tokens=True)
    grammar = call_grammar(
        sampler.kind, TOOLS[1:], sampler.text.added_id, is_parallel=False, thinking="closed"
    )
    assert grammar is not None
    for seed in SEEDS:
        ((kind, name, _),) = as_tuples(events(sampler, sampler.sample(grammar, seed)))
        assert (kind, name) == ("call", "now")


@pytest.mark.parametrize("thinking", ["open", "may"])
@pytest.mark.parametrize("has_tokens", [True, False])
def test_a_model_may_think_in_front(thinking: Thinking, has_tokens: bool) -> None:
    kind = AnswerFormat(FORMATS["hermes"], THINK)
    sampler = Sampler(kind, has_tokens=has_tokens)
    grammar = call_grammar(kind, TOOLS, sampler.text.added_id, is_parallel=False, thinking=thinking)
    assert grammar is not None
    matcher = matcher_of(sampler.store, grammar)
    start = "<think>" if thinking == "may" else ""
    answer = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
    text = f"{start}Hm, <b>?\n</think>\n\n{answer}"
    matcher.advance(sampler.text.encode(text, allow_special=True))
    assert matcher.is_complete
    assert as_tuples(events(sampler, text, thinking)) == [("thought", "Hm, <b>?"), ("call", "now", "{}")]


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("json_schema", SCHEMA),
        Grammar("json_object"),
        Grammar("regex", r'\{"a": 1\}|/x'),
        Grammar("choice", '["{\\"a\\": 1}", "b"]'),
        Grammar("lark", 'start: "{" rest\nrest: "\\"a\\": 1}"'),
    ],
    ids=lambda grammar: grammar.kind,
)
def test_a_grammar_begins_behind_what_is_thought(grammar: Grammar) -> None:
    kind = AnswerFormat(FORMATS["hermes"], THINK)
    sampler = Sampler(kind, has_tokens=True)
    assert after_thinking(kind, grammar, sampler.text.added_id, "closed") == grammar
    assert after_thinking(kind, grammar, sampler.text.added_id, "may") == grammar
    found = after_thinking(kind, grammar, sampler.text.added_id, "open")
    matcher = matcher_of(sampler.store, found)
    matcher.advance(sampler.text.encode('so {"b"}</think>{"a": 1}', allow_special=True))
    matcher.advance(())
    assert (sampler.end in allowed(matcher.masks((), (sampler.end,))[0].tolist())) or matcher.is_complete


def allowed(packed: list[int]) -> list[int]:
    return [8 * at + bit for at, byte in enumerate(packed) for bit in range(8) if byte >> bit & 1]


def test_harmonys_answers_are_on_their_channel() -> None:
    kind = AnswerFormat(FORMATS["harmony"])
    sampler = Sampler(kind, has_tokens=True)
    grammar = Grammar(
        "json_schema", '{"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"]}'
    )
    found = after_thinking(kind, grammar, sampler.text.added_id, "closed")
    matcher = matcher_of(sampler.store, found)
    text = "<|channel|>analysis<|message|>So.<|end|><|start|>assistant<|channel|>final<|message|>"
    matcher.advance(sampler.text.encode(f'{text}{{"a": 1}}', allow_special=True))
    assert matcher.is_complete


def test_a_recursive_schema_is_served_and_one_that_explodes_is_refused_by_name() -> None:
    kind = AnswerFormat(FORMATS["hermes"])
    sampler = Sampler(kind, has_tokens=True)
    tree = {"type": "object", "properties": {"a": {"$ref": "#"}}, "additionalProperties": False}
    pattern = {"type": "object", "properties": {"a": {"type": "string", "pattern": "a?" * 5000}}}

    def made(schema: dict[str, Any]) -> Grammar:
        tools = [Tool("f", schema)]
        found = call_grammar(kind, tools, sampler.text.added_id, is_parallel=False, thinking="closed")
        assert found is not None
        return found

    sampler.store.compile(made(tree))
    with pytest.raises(BadRequestError) as caught:
        sampler.store.compile(made(pattern))
    assert caught.value.param == "tools"


@pytest.mark.parametrize("place", ["$defs", "definitions"])
@pytest.mark.parametrize("name", ["qwen3_coder", "glm", "minimax_m2"])
def test_arguments_may_refer_to_what_their_schema_defines(name: FormatName, place: str) -> None:
    schema = {
        "type": "object",
        "properties": {"days": {"$ref": f"#/{place}/Days"}},
        "required": ["days"],
        place: {"Days": {"type": "integer", "enum": [3]}},
    }
    sampler = Sampler(AnswerFormat(FORMATS[name], None), has_tokens=True)
    grammar = call_grammar(
        sampler.kind, (Tool("plan", schema),), sampler.text.added_id, is_parallel=False, thinking="closed"
    )
    assert grammar is not None
    assert "3" in sampler.sample(grammar, 1)
