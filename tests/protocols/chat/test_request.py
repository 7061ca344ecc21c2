"""`/v1/chat/completions`: what a conversation becomes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sensorium.protocols.chat.request import ChatRequest, Conversation, chat_params, parse_chat
from sensorium.protocols.engine.messages import SamplingParams
from sensorium.protocols.errors import BadRequestError

HELLO = {"role": "user", "content": "Hello"}
TOOL = {"type": "function", "function": {"name": "f"}}
REPLY = {"role": "assistant", "content": "Well,"}


def parse(*messages: object, **fields: object) -> tuple[ChatRequest, Conversation]:
    return parse_chat(json.dumps({"messages": list(messages) or [HELLO], **fields}).encode())


def test_a_conversation() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    request, conversation = parse(tools=[tool], chat_template_kwargs={"enable_thinking": False})
    assert conversation.messages[0].content == "Hello"
    assert conversation.tools == [tool]
    assert conversation.template_kwargs == {"enable_thinking": False}
    assert conversation.add_generation_prompt
    assert not conversation.continue_final_message
    assert parse(tools=[tool], tool_choice="none")[1].tools is None
    assert not request.streams


def test_a_final_message_is_continued() -> None:
    _, conversation = parse(HELLO, REPLY, continue_final_message=True)
    assert conversation.continue_final_message
    assert not conversation.add_generation_prompt


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "Hello"}, "messages"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": 3}, "logprobs"),
        ({"chat_template": "{{ 1 }}"}, "chat_template"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"reasoning_effort": "utmost"}, "reasoning_effort"),
        (
            {"tools": [TOOL], "tool_choice": "required", "structured_outputs": {"regex": "a"}},
            "structured_outputs",
        ),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"bos_token": "x"}}, "chat_template_kwargs.bos_token"),
        ({"chat_template_kwargs": {"a b": 1}}, "chat_template_kwargs.a b"),
        ({"chat_template_kwargs": {f"k{i}": 1 for i in range(33)}}, "chat_template_kwargs"),
        ({"continue_final_message": True}, "continue_final_message"),
        (
            {"messages": [HELLO, REPLY], "continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
        ),
        ({"frequency_penalty": 9}, "frequency_penalty"),
    ],
)
def test_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse_chat(json.dumps({"messages": [HELLO], **fields}).encode())
    assert caught.value.param == param


def test_parameters() -> None:
    def params(**fields: object) -> SamplingParams:
        return chat_params(parse(**fields)[0], num_room=100, vocab_size=10)

    assert params().max_tokens == 100
    assert params(max_tokens=5).max_tokens == 5
    assert params(max_tokens=5, max_completion_tokens=7).max_tokens == 7
    assert params().logprobs is None
    assert params(logprobs=True).logprobs == 0
    assert params(logprobs=True, top_logprobs=4).logprobs == 4


def test_reasoning_reaches_the_template_by_each_of_its_names() -> None:
    def kwargs(**fields: object) -> dict[str, Any]:
        return parse(**fields)[1].template_kwargs

    assert kwargs() == {}
    assert kwargs(reasoning_effort="high") == {"reasoning_effort": "high"}
    off = {"enable_thinking": False, "thinking": False}
    assert kwargs(reasoning_effort="none") == kwargs(enable_thinking=False) == off
    both = kwargs(enable_thinking=False, chat_template_kwargs={"enable_thinking": True})
    assert both["enable_thinking"], "what names the template's own word wins"
    assert parse(include_reasoning=None)[0].shows_reasoning
    assert not parse(include_reasoning=False)[0].shows_reasoning


def test_what_may_be_called() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    assert parse(tools=[tool])[1].tool_use.max_calls is None
    assert parse(tools=[tool], parallel_tool_calls=False)[1].tool_use.max_calls == 1
    forced = parse(tools=[tool], tool_choice="required", response_format={"type": "text"})[1]
    assert forced.tool_use.is_forced
