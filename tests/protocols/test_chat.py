"""`/v1/chat/completions`: what a conversation becomes, and bodies that the `openai` package accepts."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import openai.types.chat as openai_chat
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.chat import (
    AnswerMessage,
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatRequest,
    ChoiceLogprobs,
    ChunkChoice,
    Conversation,
    Delta,
    TokenLogprob,
    TopLogprob,
    chat_params,
    parse_chat,
)
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.generation import FinishedBy, sse, usage
from sensorium.protocols.messages import SamplingParams

HELLO = {"role": "user", "content": "Hello"}
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


TOKENS = st.lists(st.tuples(st.text(max_size=3), st.floats(-20, 0)), max_size=4)


def logprobs_of(pairs: list[tuple[str, float]]) -> ChoiceLogprobs:
    return ChoiceLogprobs(
        [
            TokenLogprob(text, value, list(text.encode()), [TopLogprob(text, value, list(text.encode()))])
            for text, value in pairs
        ]
    )


@given(st.text(), TOKENS, st.sampled_from(["stop", "length"]))
def test_openai_reads_every_body(text: str, pairs: list[tuple[str, float]], reason: FinishedBy) -> None:
    body = ChatCompletion(
        id="chatcmpl-1",
        created=1,
        model="m",
        choices=[
            ChatChoice(
                index=0,
                message=AnswerMessage(content=text),
                finish_reason=reason,
                logprobs=logprobs_of(pairs),
            )
        ],
        usage=usage(3, 2, 1),
    )
    parsed = openai_chat.ChatCompletion.model_validate_json(msgspec.json.encode(body), strict=True)
    assert parsed.choices[0].message.content == text
    assert parsed.choices[0].logprobs is not None
    assert [token.logprob for token in parsed.choices[0].logprobs.content or []] == [v for _, v in pairs]


@given(st.text(), TOKENS, st.sampled_from(["stop", "length", None]), st.booleans())
def test_openai_reads_every_chunk(
    text: str, pairs: list[tuple[str, float]], reason: FinishedBy | None, is_first: bool
) -> None:
    delta = Delta(role="assistant", content="") if is_first else Delta(content=text)
    chunk = ChatChunk(
        id="chatcmpl-1",
        created=1,
        model="m",
        choices=[ChunkChoice(index=0, delta=delta, finish_reason=reason, logprobs=logprobs_of(pairs))],
        usage=None,
    )
    event = sse(chunk)
    assert b"\n" not in event[:-2]
    parsed = openai_chat.ChatCompletionChunk.model_validate_json(event.removeprefix(b"data: "), strict=True)
    assert parsed.choices[0].delta.content == ("" if is_first else text)
    assert parsed.choices[0].finish_reason == reason


def test_openai_reads_the_chunk_with_the_usage() -> None:
    chunk = ChatChunk(id="chatcmpl-1", created=1, model="m", choices=[], usage=usage(3, 2, 1))
    event = sse(chunk).removeprefix(b"data: ")
    parsed = openai_chat.ChatCompletionChunk.model_validate_json(event, strict=True)
    assert parsed.usage is not None
    assert parsed.usage.completion_tokens == 2
