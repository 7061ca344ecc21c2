"""What each family writes, as its published prompt formats show it, and what is found in it.

Texts are our own, made by those rules.
"""

from __future__ import annotations

import re

import msgspec
import pytest
from sensorium.engine.text.tools.formats import FORMATS, FormatName, format_of
from sensorium.engine.text.tools.machine import read_whole
from support.answers import EventTuple, as_tuples, ids, machine

PARIS = ("call", "get_weather", '{"city": "Paris"}')
NOW = ("call", "now", "{}")

WRITTEN: list[tuple[FormatName, str, list[EventTuple]]] = [
    ("hermes", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>', [PARIS]),
    (
        "hermes",
        (
            'I look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n'
            '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>\nDone.'
        ),
        [("text", "I look."), PARIS, NOW, ("text", "Done.")],
    ),
    ("hermes", '<tool_call>{"arguments": {"city": "Paris"}, "name": "get_weather"}</tool_call>', [PARIS]),
    ("hermes", '<tool_call>{"name": "now"}</tool_call>', [NOW]),
    ("hermes", '<tool_call>{"name": "now", "arguments": null}</tool_call>', [NOW]),
    ("hermes", '<tool_call>{"name": "now", "arguments": "{}"}</tool_call>', [NOW]),
    (
        "hermes",
        (
            '<tool_call>[{"name": "now", "arguments": {}}, {"name": "get_weather", "arguments": '
            '{"city": "Paris"}}]</tool_call>'
        ),
        [NOW, PARIS],
    ),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"a": "}\\"]</tool_call>"}}</tool_call>',
        [("call", "f", '{"a": "}\\"]</tool_call>"}')],
    ),
    ("hermes", '<tool_call>{"name": "now", "arguments": {}} and more', [NOW, ("text", "and more")]),
    ("hermes", "Write <tool_call> in front.\n", [("text", "Write <tool_call> in front.\n")]),
    ("hermes", '<tool_call>{"nam": 1}</tool_call>', [("text", '<tool_call>{"nam": 1}</tool_call>')]),
    ("hermes", '<tool_call><tool_call>{"name": "now"}</tool_call>', [("text", "<tool_call>"), NOW]),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"a": [1, "x',
        [("call", "f", '{"a": [1, "x')],
    ),
    ("hermes", '<tool_call>{"name": "f", "argu', [("text", '<tool_call>{"name": "f", "argu')]),
    (
        "qwen3_coder",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>",
        [PARIS],
    ),
    (
        "qwen3_coder",
        (
            "<tool_call>\n<function=get_weather>\n<parameter=city>\n\nA\n\n</parameter>\n<parameter=days>\n3\n"
            "</parameter>\n<parameter=unit>\nnull\n</parameter>\n<parameter=near>\n"
            '["Lyon"]\n</parameter>\n<parameter=any>\ntwo\n</parameter>\n</function>\n</tool_call>'
        ),
        [
            (
                "call",
                "get_weather",
                '{"city": "\\nA\\n", "days": 3, "unit": null, "near": ["Lyon"], "any": "two"}',
            )
        ],
    ),
    ("qwen3_coder", "<tool_call>\n<function=now>\n</function>\n</tool_call>", [NOW]),
    ("qwen3_coder", "<function=now>\n</function>\n</tool_call>", [NOW]),
    (
        "qwen3_coder",
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nPar",
        [("call", "get_weather", '{"city": "Par')],
    ),
    ("llama", '{"name": "get_weather", "parameters": {"city": "Paris"}}', [PARIS]),
    ("llama", '<|python_tag|>{"name": "now", "parameters": {}}', [NOW]),
    (
        "llama",
        '{"name": "now", "parameters": {}}; {"name": "get_weather", "parameters": {"city": "Paris"}}',
        [NOW, PARIS],
    ),
    (
        "llama",
        '{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}',
        [PARIS],
    ),
    ("llama", '{"name": "Ada", "born": 1815}', [("text", '{"name": "Ada", "born": 1815}')]),
    ("llama", '{"answer": {"name": "now"}}', [("text", '{"answer": {"name": "now"}}')]),
    ("llama", "[get_weather(city='Paris'), now()]", [PARIS, NOW]),
    ("llama", "[get_weather(days=NaN, near=[1])]", [("call", "get_weather", '{"days": "NaN", "near": [1]}')]),
    (
        "llama",
        '<|python_start|>[get_weather(city="a\'b", days=2, unit=None, near=[\'x\', "y"])]<|python_end|>',
        [("call", "get_weather", '{"city": "a\'b", "days": 2, "unit": null, "near": ["x", "y"]}')],
    ),
    ("llama", "[1] as they say", [("text", "[1] as they say")]),
    ("llama", "Paris is nice.", [("text", "Paris is nice.")]),
    ("mistral", '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}]', [PARIS]),
    ("mistral", '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]now[ARGS]{}', [PARIS, NOW]),
    ("mistral", 'Now.[TOOL_CALLS]get_weather{"city": "Paris"}', [("text", "Now."), PARIS]),
    (
        "deepseek",
        (
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
            '{"city": "Paris"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n'
            "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
        [PARIS, NOW],
    ),
    (
        "deepseek",
        (
            '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}'
            "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜><｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
        [PARIS, NOW],
    ),
    (
        "glm",
        (
            "Soon.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n</tool_call>\n"
            "<tool_call>now\n</tool_call>"
        ),
        [("text", "Soon."), PARIS, NOW],
    ),
    (
        "glm",
        (
            "<tool_call>get_weather<arg_key>city</arg_key><arg_value>1</arg_value>"
            "<arg_key>days</arg_key><arg_value>1</arg_value></tool_call>"
        ),
        [("call", "get_weather", '{"city": "1", "days": 1}')],
    ),
    (
        "kimi_k2",
        (
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>"
            '{"city": "Paris"}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>'
            "{}<|tool_call_end|><|tool_calls_section_end|>"
        ),
        [PARIS, NOW],
    ),
    (
        "minimax_m2",
        (
            '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n'
            '</invoke>\n<invoke name="now">\n</invoke>\n</minimax:tool_call>'
        ),
        [PARIS, NOW],
    ),
    (
        "harmony",
        (
            "<|channel|>analysis<|message|>They ask.<|end|><|start|>assistant<|channel|>commentary"
            "<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
            '<|constrain|>json<|message|>{"city": "Paris"}'
        ),
        [("thought", "They ask."), ("text", "I look."), PARIS],
    ),
    (
        "harmony",
        " to=functions.now<|channel|>commentary json<|message|>{}<|call|>",
        [NOW],
    ),
    (
        "harmony",
        (
            "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|>Two."
            "<|end|><|start|>assistant<|channel|>final<|message|>Three. to=nobody"
        ),
        [("thought", "One.\n\nTwo."), ("text", "Three. to=nobody")],
    ),
    ("harmony", '{"plain": true}', [("text", '{"plain": true}')]),
    (
        "gemma",
        '<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|><|tool_call>call:now{}<tool_call|>',
        [PARIS, NOW],
    ),
    (
        "gemma",
        (
            '<start_function_call>call:get_weather{city:<escape>a, {b}: "c"<escape>,days:2,'
            "near:[<escape>x<escape>],deep:{on:true}}<end_function_call>"
        ),
        [
            (
                "call",
                "get_weather",
                '{"city": "a, {b}: \\"c\\"", "days": 2, "near": ["x"], "deep": {"on": true}}',
            )
        ],
    ),
]


@pytest.mark.parametrize(("name", "text", "expected"), WRITTEN)
def test_what_a_family_writes(name: FormatName, text: str, expected: list[EventTuple]) -> None:
    assert as_tuples(read_whole(machine(name), text)) == expected


def test_every_format_has_an_example_of_two_calls() -> None:
    several = {name for name, _, expected in WRITTEN if [each[0] for each in expected].count("call") > 1}
    assert several == set(FORMATS) - {"harmony", "qwen3_coder"}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "kimi_k2",
            (
                "<|tool_calls_section_begin|><|tool_call_begin|>functions.now:7<|tool_call_argument_begin|>{}"
                "<|tool_call_end|>"
            ),
            "functions.now:7",
        ),
        ("mistral", "[TOOL_CALLS]now[CALL_ID]a1B2c3D4e[ARGS]{}", "a1B2c3D4e"),
        ("mistral", '[TOOL_CALLS][{"name": "now", "id": "x-9", "arguments": {}}]', "x-9"),
        ("hermes", '<tool_call>{"id": "mine", "name": "now"}</tool_call>', "mine"),
    ],
)
def test_an_id_the_model_wrote_is_kept(name: FormatName, text: str, expected: str) -> None:
    assert ids(read_whole(machine(name), text)) == [expected]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", '<tool_call>{"id": "\\ud83d", "name": "now", "arguments": "\\udc00{}"}</tool_call>'),
        ("hermes", '<tool_call>{"id": "a", "name": "now", "arguments": {"\\ud83d": "\\ude00"}}</tool_call>'),
        ("llama", "[now(a='\\ud83d', b=['\\ud83d'])]"),
    ],
)
def test_half_a_surrogate_pair_can_be_sent(name: FormatName, text: str) -> None:
    events = list(read_whole(machine(name), text))
    assert ids(events), "it is a call"
    msgspec.json.encode(events)


def test_an_id_written_twice_is_two() -> None:
    call = '<tool_call>{"id": "mine", "name": "now"}</tool_call>'
    assert ids(read_whole(machine("hermes"), call * 3)) == ["mine", "mine-1", "mine-2"]


@pytest.mark.parametrize(
    ("name", "text", "pattern"),
    [
        ("mistral", "[TOOL_CALLS]now[ARGS]{}", r"[a-zA-Z0-9]{9}"),
        ("hermes", '<tool_call>{"name": "now"}</tool_call>', r"call_[0-9a-f]{24}"),
    ],
)
def test_else_it_gets_one_its_family_takes_back(name: FormatName, text: str, pattern: str) -> None:
    made = {ids(read_whole(machine(name), text))[0] for _ in range(20)}
    assert len(made) == 20
    assert all(re.fullmatch(pattern, each) for each in made)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("… <tool_call>\n{\"name\": … 'arguments' … </tool_call>", "hermes"),
        ("<tool_call>\n<function=example>\n<parameter=a>", "qwen3_coder"),
        ("<tool_call>{name}\n<arg_key>{k}</arg_key>", "glm"),
        ("'[TOOL_CALLS]' + tool_call.name + '[ARGS]'", "mistral"),
        ("'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>'", "deepseek"),
        ("<|tool_call_begin|>{{ id }}<|tool_call_argument_begin|>", "kimi_k2"),
        ("set toolcall_begin_token = '<minimax:tool_call>'", "minimax_m2"),
        ("<|start|>assistant<|channel|>final<|message|>", "harmony"),
        ("'<|tool_call>call:' + name", "gemma"),
        ("<start_function_call>call:", "gemma"),
        ('Environment: ipython … {"name": function name, "parameters": dictionary …}', "llama"),
        ("<|python_tag|>", "llama"),
        ("<|im_start|>{{ message.role }}", None),
    ],
)
def test_a_template_says_the_format(template: str, expected: FormatName | None) -> None:
    found = format_of(template)
    assert (None if found is None else found.name) == expected
