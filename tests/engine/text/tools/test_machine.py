"""However an answer is cut into pieces, the same is found in it; nothing it says is lost."""

from __future__ import annotations

import itertools
import json
from typing import get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sensorium.engine.text.tools.formats import FORMATS, FormatName
from sensorium.engine.text.tools.machine import AnswerFormat, AnswerMachine, read_whole
from sensorium.engine.text.tools.thinking import THINK, Thinking, ThinkTags, tags_of
from sensorium.protocols.chat.answer_events import (
    ArgumentsAdded,
    CallBegun,
    CallEnded,
    Event,
    TextAdded,
    merged,
)
from support.answers import TOOLS, as_tuples, machine

names = st.sampled_from(sorted(FORMATS))
PIECES = [
    *(mark for each in FORMATS.values() for mark in each.marks),
    *("<think>", "</think>", "\n", " ", "```json", ">", "call:", "functions.", " to=functions.now", "; "),
    *('{"name": "now", "arguments": ', '{"city": "P\\"a', '"}', "{", "}", "[", "]", "(", ")", "=", ",", ":0"),
    *("now", "get_weather", "city", "days", "3", "null", "'x'", '"id": "a"', "Paris is ü nice", "🌤", "\\"),
]
answers = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
cuts = st.lists(st.integers(0, 200), max_size=4)


def pushed(name: FormatName, text: str, edges: list[int], thinking: Thinking = "may") -> list[Event]:
    """The events of an answer that comes in pieces."""
    reader = machine(name, thinking=thinking)
    places = [0, *sorted(min(edge, len(text)) for edge in edges), len(text)]
    events = [event for start, end in itertools.pairwise(places) for event in reader.push(text[start:end])]
    return [*events, *reader.finish()]


def without_ids(events: list[Event]) -> list[Event]:
    return [CallBegun(e.index, "", e.name) if isinstance(e, CallBegun) else e for e in merged(events)]


@settings(max_examples=1000, deadline=None)
@given(names, answers, cuts, st.sampled_from(get_args(Thinking)))
@example(
    "glm", "<tool_call>get_weather<arg_key>city</arg_key><arg_value>\n</arg_value></tool_call>", [60], "may"
)
def test_every_cut_finds_the_same(name: FormatName, text: str, edges: list[int], thinking: Thinking) -> None:
    whole = without_ids(pushed(name, text, [], thinking))
    assert without_ids(pushed(name, text, edges, thinking)) == whole
    assert without_ids(pushed(name, text, list(range(len(text))), thinking)) == whole


@settings(max_examples=500, deadline=None)
@given(names, answers, cuts, st.sampled_from(get_args(Thinking)))
@example("harmony", "<|channel|>" + "a" * 300 + "<|end|>b", [], "may")
@example("hermes", " a \n<think>b</think> c <tool_call>d </tool_call>\n", [3], "may")
def test_each_text_is_where_it_is_said_to_be(
    name: FormatName, text: str, edges: list[int], thinking: Thinking
) -> None:
    reader = AnswerMachine(AnswerFormat(FORMATS[name], THINK), TOOLS, thinking=thinking, traces=True)
    places = [0, *sorted(min(edge, len(text)) for edge in edges), len(text)]
    after = 0
    for start, end in (*itertools.pairwise(places), (None, None)):
        events = reader.finish() if start is None else reader.push(text[start:end])
        texts = [event.text for event in events if isinstance(event, TextAdded)]
        spans = reader.take_spans()
        assert ["".join(text[a:b] for a, b in each) for each in spans] == texts
        for a, b in (span for each in spans for span in each):
            assert after <= a < b
            after = b


@settings(max_examples=300, deadline=None)
@given(names, answers, cuts)
def test_calls_are_begun_once_and_ended_in_order(name: FormatName, text: str, edges: list[int]) -> None:
    events = [e for e in pushed(name, text, edges) if isinstance(e, CallBegun | ArgumentsAdded | CallEnded)]
    open_index, num_begun = None, 0
    for event in events:
        if isinstance(event, CallBegun):
            assert open_index is None
            assert event.index == num_begun
            open_index, num_begun = event.index, num_begun + 1
        else:
            assert event.index == open_index
            open_index = None if isinstance(event, CallEnded) else open_index
    assert open_index is None


@given(names, st.text("abc \n{}äß🌤", max_size=40))
def test_a_text_without_marks_stays_as_it_is(name: FormatName, text: str) -> None:
    found = merged(read_whole(machine(name), text))
    assert found == ([TextAdded(text)] if text else [])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**6), 10**6) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["hermes", "mistral", "deepseek", "kimi_k2", "llama", "harmony"]),
    st.dictionaries(st.text(max_size=6), json_values, max_size=4),
    cuts,
)
def test_any_json_arguments_come_back_verbatim(
    name: FormatName, arguments: dict[str, object], edges: list[int]
) -> None:
    written = json.dumps(arguments, ensure_ascii=False)
    text = {
        "hermes": f'<tool_call>{{"name": "now", "arguments": {written}}}</tool_call>',
        "mistral": f"[TOOL_CALLS]now[ARGS]{written}",
        "deepseek": f"<｜tool▁call▁begin｜>now<｜tool▁sep｜>{written}<｜tool▁call▁end｜>",
        "kimi_k2": f"<|tool_call_begin|>now:0<|tool_call_argument_begin|>{written}<|tool_call_end|>",
        "llama": f'{{"name": "now", "parameters": {written}}}',
        "harmony": f"<|channel|>commentary to=functions.now<|message|>{written}<|call|>",
    }[name]
    assert as_tuples(pushed(name, text, edges)) == [("call", "now", written)]


@given(st.text(max_size=30), cuts)
def test_any_text_is_a_string_argument(value: str, edges: list[int]) -> None:
    text = f"<function=get_weather><parameter=city>\n{value}\n</parameter></function>"
    if "</parameter>" in value:
        return
    ((_, _, arguments),) = as_tuples(pushed("qwen3_coder", text, edges))
    assert json.loads(arguments) == {"city": value}


def test_text_goes_out_as_soon_as_it_cannot_be_a_mark() -> None:
    reader = machine("hermes")
    assert as_tuples(reader.push("Hello <")) == [("text", "Hello")]
    assert as_tuples(reader.push("b> and")) == [("text", " <b> and")]


def test_a_name_is_told_before_its_arguments_and_these_as_they_grow() -> None:
    reader = machine("hermes")
    assert reader.push('<tool_call>{"name": "get_weather", ') == []
    begun, *rest = reader.push('"arguments": {"ci')
    assert isinstance(begun, CallBegun)
    assert rest == [ArgumentsAdded(0, '{"ci')]
    assert reader.push('ty": "Par') == [ArgumentsAdded(0, 'ty": "Par')]
    assert reader.push('is"}}') == [ArgumentsAdded(0, 'is"}'), CallEnded(0)]


def test_a_string_between_tags_grows_as_well() -> None:
    reader = machine("glm")
    reader.push("<tool_call>get_weather<arg_key>city</arg_key><arg_value>")
    assert reader.push("San ") == [ArgumentsAdded(0, '"San ')]


def test_calls_beyond_the_number_asked_for_are_left_out() -> None:
    call = '<tool_call>{"name": "now"}</tool_call>'
    reader = machine("hermes", max_calls=1)
    assert as_tuples(read_whole(reader, f"{call}{call}Bye.")) == [("call", "now", "{}"), ("text", "Bye.")]


def test_without_tools_calls_stay_text() -> None:
    call = '<tool_call>{"name": "now"}</tool_call>'
    assert as_tuples(read_whole(machine("hermes", None), call)) == [("text", call)]


@pytest.mark.parametrize(
    ("thinking", "text", "expected"),
    [
        ("may", "<think>\nhm\n</think>\n\nYes.", [("thought", "hm"), ("text", "Yes.")]),
        ("may", "Yes <think> no.", [("text", "Yes <think> no.")]),
        ("may", "  <think></think>  Yes. ", [("text", "Yes. ")]),
        ("open", "hm\n</think>Yes.", [("thought", "hm"), ("text", "Yes.")]),
        ("open", "hm, cut ", [("thought", "hm, cut")]),
        ("closed", "<think>x", [("text", "<think>x")]),
        ("open", '</think><tool_call>{"name": "now"}</tool_call>', [("call", "now", "{}")]),
    ],
)
def test_reasoning_stands_apart(thinking: Thinking, text: str, expected: list[tuple[str, ...]]) -> None:
    assert as_tuples(read_whole(machine("hermes", thinking=thinking), text)) == expected


def test_a_call_ends_reasoning_where_its_marks_are_control_tokens() -> None:
    tags = tags_of("</think> <|tool_calls_section_begin|>")
    call = "<|tool_call_begin|>now:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    text = f"hm<|tool_calls_section_begin|>{call}"
    found = as_tuples(read_whole(machine("kimi_k2", tags=tags, thinking="open"), text))
    assert found == [("thought", "hm"), ("call", "now", "{}")]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("<|im_start|>assistant\n<think>\n", "open"),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", "closed"),
        ("<|im_start|>assistant\n", "may"),
    ],
)
def test_a_prompt_says_how_its_answer_begins(prompt: str, expected: Thinking) -> None:
    assert THINK.state_of(prompt) == expected


def test_an_answer_to_be_continued_says_where_it_was_cut() -> None:
    assert THINK.state_after("<think>so far") == "open"
    assert THINK.state_after("<think>so</think>Far") == "closed"
    assert THINK.state_after("Far") == "closed"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ content.split('</think>')[-1] }}", THINK),
        ("[THINK] … [/THINK]", ThinkTags("[THINK]", "[/THINK]")),
        (
            "<|channel>thought\n<channel|>",
            ThinkTags("<|channel>", "<channel|>", ("<|tool_call>",), "thought\n"),
        ),
        ("{{ message.content }}", None),
    ],
)
def test_a_template_says_the_tags_of_reasoning(template: str, expected: ThinkTags | None) -> None:
    assert tags_of(template) == expected


def test_marks_that_must_show() -> None:
    gemma = AnswerFormat(FORMATS["gemma"], tags_of("<|channel> <channel|>"))
    assert gemma.marks(with_tools=False) == ("<|channel>", "<channel|>")
    assert "<|tool_call>" in gemma.marks(with_tools=True)
    assert AnswerFormat(FORMATS["harmony"]).marks(with_tools=False) == FORMATS["harmony"].marks
    assert AnswerFormat(FORMATS["harmony"]).reasons
    assert not AnswerFormat(FORMATS["hermes"]).reasons
