"""Requests of `/v1/messages` become conversations; `tests/e2e/test_messages.py` sends them over sockets."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from sensorium.protocols.anthropic.request import parse_message
from sensorium.protocols.chat.content import ChatMessage, MediaPart, TextPart
from sensorium.protocols.errors import BadRequestError

CALL = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
SOURCE = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"x").decode()}


def read(*messages: dict[str, Any]) -> tuple[ChatMessage, ...]:
    body = {"max_tokens": 1, "messages": [{"role": "user", "content": "Hello"}, *messages]}
    return parse_message(json.dumps(body).encode()).conversation.messages


def test_an_image_in_a_tools_result_is_shown_behind_the_results() -> None:
    shot = [{"type": "text", "text": "The screen:"}, {"type": "image", "source": SOURCE}]
    results = [
        {"type": "tool_result", "tool_use_id": "a", "content": shot},
        {"type": "tool_result", "tool_use_id": "b", "content": "2"},
    ]
    *_, first, second, shown = read(
        {"role": "assistant", "content": [CALL, CALL | {"id": "b"}]},
        {"role": "user", "content": [*results, {"type": "text", "text": "And?"}]},
    )
    assert [(each.role, each.content) for each in (first, second)] == [("tool", "The screen:"), ("tool", "2")]
    image = MediaPart("image", b"x", "messages[2].content[0].content[1]")
    assert (shown.role, shown.content) == ("user", (image, TextPart("And?")))


def test_the_conversation_may_be_told_of_things_in_the_midst() -> None:
    """As Claude Code does of its agents."""
    text = {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}
    *_, first, more, last = read(
        {"role": "system", "content": "a"},
        {"role": "system", "content": [text, text]},
        {"role": "user", "content": "c"},
    )
    assert [(each.role, each.content) for each in (first, more)] == [("system", "a"), ("system", "b\nb")]
    assert last.content == "c"


def test_sessions_of_claude_code_begin_alike() -> None:
    """Their first words would differ, and nothing behind them be found computed."""

    def first(version: str) -> ChatMessage:
        texts = [f"x-anthropic-billing-header: cc_version={version};", "You are an agent.", "Be kind."]
        system = [{"type": "text", "text": text} for text in texts]
        body = {"max_tokens": 1, "messages": [{"role": "user", "content": "Hello"}], "system": system}
        return parse_message(json.dumps(body).encode()).conversation.messages[0]

    assert first("2.1.bc8").content == first("2.1.82f").content == "You are an agent.\nBe kind."


@pytest.mark.parametrize("kind", ["AAA", "image", "tool_result"])
@pytest.mark.parametrize("is_inline", [False, True], ids=["system", "message"])
def test_system_texts_are_text_blocks(kind: str, *, is_inline: bool) -> None:
    blocks = [{"type": "text", "text": "Be brief."}, {"type": kind, "text": "Hello"}]
    message = {"role": "user", "content": "Hello"}
    body: dict[str, Any] = {"max_tokens": 1, "messages": [message], "system": blocks}
    if is_inline:
        body = {"max_tokens": 1, "messages": [message, {"role": "system", "content": blocks}]}
    with pytest.raises(BadRequestError, match="allowed: text") as refused:
        parse_message(json.dumps(body).encode())
    assert refused.value.param == ("messages[1].content[1].type" if is_inline else "system[1].type")
