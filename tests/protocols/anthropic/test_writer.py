"""A message is written block by block; however its events come, the whole is the same."""

from __future__ import annotations

import msgspec
from sensorium.protocols.anthropic.response import (
    MessageAnswer,
    MessageUsage,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
)
from sensorium.protocols.anthropic.writer import MessageWriter
from sensorium.protocols.chat.answer_events import (
    ArgumentsAdded,
    CallBegun,
    CallEnded,
    Event,
    ReasoningAdded,
    TextAdded,
)
from sensorium.protocols.shared.generation import named_sse

USAGE = MessageUsage(input_tokens=1, output_tokens=2)
ANSWER: list[Event] = [
    ReasoningAdded("Hm"),
    ReasoningAdded("."),
    TextAdded("I "),
    TextAdded("look."),
    CallBegun(0, "a", "f"),
    ArgumentsAdded(0, '{"x"'),
    ArgumentsAdded(0, ": 1}"),
    CallEnded(0),
    TextAdded("Done."),
]


def writer() -> MessageWriter:
    return MessageWriter(MessageAnswer(id="msg_1", model="m", content=[], usage=USAGE))


def test_an_answer_in_pieces_is_the_answer() -> None:
    one, many = writer(), writer()
    events = [*one.begin(5), *one.add(ANSWER), *one.finish(USAGE, "stop", None)]
    many.begin(5)
    for event in ANSWER:
        many.add([event])
    many.finish(USAGE, "stop", None)
    assert one.message == many.message
    assert one.message.content == [
        ThinkingBlock(thinking="Hm."),
        TextBlock(text="I look."),
        ToolUseBlock(id="a", name="f", input={"x": 1}),
        TextBlock(text="Done."),
    ]
    assert one.message.stop_reason == "tool_use"
    names = [msgspec.json.decode(named_sse(event).split(b"data: ")[1])["type"] for event in events]
    block = ["content_block_start", "content_block_delta", "content_block_delta", "content_block_stop"]
    last = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert names == ["message_start", *block * 3, *last, "message_delta", "message_stop"]


def test_no_field_is_null_where_some_clients_take_a_list_only() -> None:
    """Vercel's AI SDK reads no message whose text has null for `citations`."""
    made = writer()
    made.begin(5)
    made.add(ANSWER)
    made.finish(USAGE, "stop", None)
    blocks = msgspec.json.decode(msgspec.json.encode(made.message))["content"]
    assert [sorted(block) for block in blocks] == [
        ["signature", "thinking", "type"],
        ["text", "type"],
        ["id", "input", "name", "type"],
        ["text", "type"],
    ]


def test_of_a_call_that_was_cut_the_whole_says_nothing() -> None:
    cut = writer()
    cut.begin(5)
    cut.add([CallBegun(0, "a", "f"), ArgumentsAdded(0, '{"x": "ye'), CallEnded(0)])
    cut.finish(USAGE, "length", None)
    assert cut.message.stop_reason == "max_tokens"
    assert cut.message.content == [ToolUseBlock(id="a", name="f", input={})]
