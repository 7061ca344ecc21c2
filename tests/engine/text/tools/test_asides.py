"""Special tokens that show in an answer stand where they came; formats read the same without them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.engine.text.tools.asides import Asides
from sensorium.engine.text.tools.formats import FORMATS, FormatName
from sensorium.engine.text.tools.machine import AnswerFormat, AnswerMachine
from sensorium.engine.text.tools.thinking import THINK
from sensorium.protocols.chat.answer_events import Event
from support.answers import TOOLS, EventTuple, as_tuples

NAMES = ("<|box|>", "<|boxes|>", "<pad>", "<s>")
CALLS = {
    "hermes": '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>',
    "qwen3_coder": "<function=get_weather><parameter=city>\nParis\n</parameter></function>",
    "harmony": '<|channel|>commentary to=functions.get_weather<|message|>{"city": "Paris"}<|call|>',
    "deepseek": '<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Paris"}<｜tool▁call▁end｜>',
}
words = st.sampled_from([*NAMES, "<", "<|", "<|box", "x", " ", "|>", "<s", "p"])
cuts = st.lists(st.integers(0, 200), max_size=5)


def pieces(text: str, edges: Sequence[int]) -> list[str]:
    places = [0, *sorted(min(edge, len(text)) for edge in edges), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(places)]


@settings(max_examples=500)
@given(st.lists(words, max_size=12).map("".join), cuts)
def test_every_cut_finds_the_same_names(text: str, edges: list[int]) -> None:
    def found(parts: list[str]) -> list[str]:
        asides, seen = Asides(NAMES), [""]
        for part, is_last in [*((part, False) for part in parts), ("", True)]:
            for plain, name in asides.split(part, is_last=is_last):
                seen[-1] += plain
                if name:
                    seen += [name, ""]
        return seen

    whole = found([text])
    assert "".join(whole) == text
    assert found(pieces(text, edges)) == found(list(text)) == whole
    assert not any(name in plain for plain in whole[::2] for name in NAMES)


def read(name: FormatName, text: str, edges: Sequence[int], asides: Sequence[str]) -> list[EventTuple]:
    tags = None if name == "harmony" else THINK
    machine = AnswerMachine(AnswerFormat(FORMATS[name], tags), TOOLS, asides=asides)
    events: list[Event] = [event for piece in pieces(text, edges) for event in machine.push(piece)]
    return as_tuples([*events, *machine.finish()])


def without_names(found: Sequence[EventTuple]) -> list[EventTuple]:
    """Without the names, the layout's white space, and what is empty then."""
    plain: list[EventTuple] = []
    for kind, *rest in found:
        *names, text = rest
        for name in NAMES if kind != "call" else ():
            text = text.replace(name, "")
        if kind != "call":
            text = "".join(text.split())
        if kind == "call" or text:
            plain.append((kind, *names, text))
    merged: list[EventTuple] = []
    for each in plain:
        if merged and each[0] == merged[-1][0] != "call":
            merged[-1] = (each[0], merged[-1][1] + each[1])
        else:
            merged.append(each)
    return merged


thoughts = st.sampled_from(["", "<think>So it is.</think>", "<think>cut"])


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(sorted(CALLS)),
    thoughts,
    st.sampled_from(["", "Hello. "]),
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 160)), max_size=4),
    cuts,
)
def test_calls_and_thoughts_are_read_as_without(
    name: FormatName, thought: str, text: str, put: list[tuple[str, int]], edges: list[int]
) -> None:
    plain = f"{'' if name == 'harmony' else thought}{text}{CALLS[name]}"
    shown = plain
    for aside, place in sorted(put, key=lambda each: -each[1]):
        at = min(place, len(plain))
        shown = shown[:at] + aside + shown[at:]
    found = read(name, shown, edges, NAMES)
    assert found == read(name, shown, [], NAMES) == read(name, shown, range(len(shown)), NAMES)
    assert without_names(found) == without_names(read(name, plain, [], ()))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<s>Hi<pad> there", [("text", "<s>Hi<pad> there")]),
        ("<think>a<s>b</think>c<s>", [("thought", "a<s>b"), ("text", "c<s>")]),
        ("<think><s>a</think>b", [("thought", "<s>a"), ("text", "b")]),
        ("<s><think>a</think>b", [("text", "<s>"), ("thought", "a"), ("text", "b")]),
        (
            f"<s>{CALLS['hermes']}<pad>".replace("Paris", "Pa<s>ris"),
            [("text", "<s>"), ("call", "get_weather", '{"city": "Paris"}'), ("text", "<pad>")],
        ),
        ("a <s", [("text", "a <s")]),
    ],
)
def test_where_they_stand(text: str, expected: list[EventTuple]) -> None:
    assert read("hermes", text, [], NAMES) == expected
