"""Requests of each dialect that any model answers. What all of a route have in common is its `…_BASE`."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

Body = dict[str, Any]

CITY: Body = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}
PICTURE: Final = (Path(__file__).resolve().parents[2] / "examples" / "data" / "shapes.png").read_bytes()
BASE64: Final = base64.b64encode(PICTURE).decode()
ADDRESS: Final = f"data:image/png;base64,{BASE64}"
THINK: Body = {"role": "user", "content": "Think, and say hello."}
HELLO: Body = {"role": "user", "content": "Hello. What is the weather in Paris?"}
SHORT: Body = {"temperature": 0}

CHAT_TOOL: Body = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
CHAT_CALL: Body = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome"}'}}
    ],
}
FORM: Body = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY, "strict": True}}
CHATS: dict[str, Body] = {
    "plain": {},
    "two choices": {"n": 2, "temperature": 1, "seed": 1},
    "logprobs": {"logprobs": True, "top_logprobs": 2},
    "logprobs without alternatives": {"logprobs": True},
    "stop": {"stop": ["e", "a"]},
    "cut": {"max_completion_tokens": 3},
    "seed": {"seed": 7, "temperature": 0.7, "top_p": 0.9},
    "penalties": {"presence_penalty": 0.5, "frequency_penalty": 0.5},
    "logit bias": {"logit_bias": {"5": -100}},
    "system": {"messages": [{"role": "system", "content": "Be brief."}, HELLO]},
    "developer": {"messages": [{"role": "developer", "content": "Be brief."}, HELLO]},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]},
    "tools offered": {"tools": [CHAT_TOOL]},
    "call required": {"tools": [CHAT_TOOL], "tool_choice": "required"},
    "call named": {
        "tools": [CHAT_TOOL],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
    },
    "no parallel calls": {"tools": [CHAT_TOOL], "tool_choice": "required", "parallel_tool_calls": False},
    "calls forbidden": {"tools": [CHAT_TOOL], "tool_choice": "none"},
    "tool result": {
        "messages": [HELLO, CHAT_CALL, {"role": "tool", "tool_call_id": "call_1", "content": "Sunny"}],
        "tools": [CHAT_TOOL],
    },
    "schema": {"response_format": FORM, "max_completion_tokens": 40},
    "object": {"response_format": {"type": "json_object"}},
    "picture": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": ADDRESS, "detail": "auto"}},
                    {"type": "text", "text": "What is this?"},
                ],
            }
        ]
    },
    "thoughts": {"messages": [THINK]},
    "thoughts before a call": {
        "messages": [THINK],
        "tools": [CHAT_TOOL],
        "tool_choice": "required",
        "max_completion_tokens": 200,
    },
    "text format": {"response_format": {"type": "text"}},
    "metadata": {"metadata": {"a": "b"}, "user": "u", "store": False, "service_tier": "auto"},
}
COMPLETIONS: dict[str, Body] = {
    "plain": {},
    "list": {"prompt": ["Hello", "World"]},
    "token ids": {"prompt": [5, 6, 7]},
    "lists of token ids": {"prompt": [[5, 6, 7], [8]]},
    "logprobs": {"logprobs": 2},
    "logprobs of none": {"logprobs": 0},
    "echo": {"echo": True},
    "two choices": {"n": 2, "seed": 1, "temperature": 1},
    "stop": {"stop": "e"},
}
RESPONSE_TOOL: Body = {"type": "function", "name": "weather", "parameters": CITY, "strict": True}
RESPONSES: dict[str, Body] = {
    "plain": {},
    "messages": {"input": [{"role": "user", "content": "Hello"}]},
    "cut": {"max_output_tokens": 16, "input": "Hello, and tell me more."},
    "typed messages": {
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}]
    },
    "instructions": {"instructions": "Be brief."},
    "not stored": {"store": False},
    "logprobs": {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
    "tools offered": {"tools": [RESPONSE_TOOL]},
    "call required": {"tools": [RESPONSE_TOOL], "tool_choice": "required"},
    "call named": {"tools": [RESPONSE_TOOL], "tool_choice": {"type": "function", "name": "weather"}},
    "tool result": {
        "input": [
            {"role": "user", "content": "Hello"},
            {"type": "function_call", "call_id": "c", "name": "weather", "arguments": '{"city":"Rome"}'},
            {"type": "function_call_output", "call_id": "c", "output": "Sunny"},
        ],
        "tools": [RESPONSE_TOOL],
    },
    "picture": {
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_image", "image_url": ADDRESS, "detail": "auto"},
                    {"type": "input_text", "text": "What is this?"},
                ],
            }
        ]
    },
    "thoughts": {"input": [THINK]},
    "thoughts before a call": {
        "input": [THINK],
        "tools": [RESPONSE_TOOL],
        "tool_choice": "required",
        "max_output_tokens": 200,
    },
    "object": {"text": {"format": {"type": "json_object"}}, "input": "Answer in JSON with 'city'."},
    "schema": {"text": {"format": {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}}},
    "metadata": {"metadata": {"a": "b"}, "user": "u", "truncation": "auto"},
    "reasoning": {"reasoning": {"effort": "low"}},
}
MESSAGE_TOOL: Body = {"name": "weather", "input_schema": CITY}
MESSAGES: dict[str, Body] = {
    "plain": {},
    "system": {"system": "Be brief."},
    "cut": {"max_tokens": 3},
    "system blocks": {"system": [{"type": "text", "text": "Be brief."}]},
    "blocks": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hello"}]}]},
    "stop": {"stop_sequences": ["e"]},
    "sampled": {"temperature": 0.5, "top_p": 0.9, "top_k": 5},
    "tools offered": {"tools": [MESSAGE_TOOL]},
    "call required": {"tools": [MESSAGE_TOOL], "tool_choice": {"type": "any"}},
    "call named": {"tools": [MESSAGE_TOOL], "tool_choice": {"type": "tool", "name": "weather"}},
    "tool result": {
        "messages": [
            HELLO,
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t", "name": "weather", "input": {"city": "Rome"}}],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "Sunny"}]},
        ],
        "tools": [MESSAGE_TOOL],
    },
    "picture": {
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "image",
                        "source": {"type": "base64", "media_type": "image/png", "data": BASE64},
                    },
                    {"type": "text", "text": "What is this?"},
                ],
            }
        ]
    },
    "thoughts": {"messages": [THINK]},
    "thoughts before a call": {
        "messages": [THINK],
        "tools": [MESSAGE_TOOL],
        "tool_choice": {"type": "any"},
        "max_tokens": 200,
    },
    "prefilled": {"messages": [HELLO, {"role": "assistant", "content": "It is"}]},
    "metadata": {"metadata": {"user_id": "u"}},
}
CHAT_BASE: Body = SHORT | {"messages": [HELLO], "max_completion_tokens": 60}
COMPLETION_BASE: Body = SHORT | {"prompt": "Hello", "max_tokens": 8}
RESPONSE_BASE: Body = SHORT | {"input": "Hello", "max_output_tokens": 60}
MESSAGE_BASE: Body = SHORT | {"messages": [HELLO], "max_tokens": 60}
BAD: dict[str, Body] = {
    "no such model": {"model": "no-such-model"},
    "not a number": {"temperature": "warm"},
    "out of range": {"temperature": -1},
    "unknown field": {"no_such_field": 1},
    "no model's kind": {"model": 5},
}
