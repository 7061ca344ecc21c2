"""Every field that OpenAI and vLLM publish is served, refused by its name, or says what is done anyway."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, get_args

import msgspec
import pytest
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import ResponseIncludable, response_create_params
from sensorium.protocols.anthropic.request import MessageRequest, parse_message
from sensorium.protocols.chat.completions import CompletionRequest, parse_completion
from sensorium.protocols.chat.request import ChatRequest, parse_chat
from sensorium.protocols.chat.tokenize import parse_detokenize, parse_tokenize
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.realtime.client_secrets import parse_client_secret
from sensorium.protocols.responses.request import ResponsesRequest, parse_response
from sensorium.protocols.shared.foreign_options import OF_TEXT
from sensorium.protocols.shared.structured_outputs import StructuredOutputs
from sensorium.protocols.shared.unsupported_fields import DONE_ANYWAY, MARKS, UNSERVED

MESSAGES = [{"role": "user", "content": "Hi"}]
PARSERS: dict[str, tuple[Callable[[bytes], object], dict[str, Any]]] = {
    "chat": (parse_chat, {"messages": MESSAGES}),
    "completions": (parse_completion, {"prompt": "Hi"}),
    "responses": (parse_response, {"input": "Hi"}),
    "messages": (parse_message, {"messages": MESSAGES, "max_tokens": 5}),
    "tokenize": (parse_tokenize, {"prompt": "Hi"}),
    "detokenize": (parse_detokenize, {"tokens": [1]}),
    "client_secrets": (parse_client_secret, {}),
}
VLLM = [
    "add_special_tokens",
    "allowed_token_ids",
    "bad_words",
    "cache_salt",
    "detokenize",
    "documents",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "ignore_eos",
    "include_stop_str_in_output",
    "kv_transfer_params",
    "length_penalty",
    "logits_processors",
    "min_p",
    "min_tokens",
    "mm_processor_kwargs",
    "priority",
    "prompt_logprobs",
    "repetition_penalty",
    "request_id",
    "return_token_ids",
    "return_tokens_as_token_ids",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "stop_token_ids",
    "structured_outputs",
    "top_k",
    "truncate_prompt_tokens",
    "use_beam_search",
    "vllm_xargs",
]
VLLM_CHAT = [
    "add_generation_prompt",
    "chat_template",
    "chat_template_kwargs",
    "continue_final_message",
    "include_reasoning",
]
ANTHROPIC = [
    "cache_control",
    "container",
    "context_management",
    "inference_geo",
    "max_tokens",
    "mcp_servers",
    "messages",
    "metadata",
    "model",
    "output_config",
    "output_format",
    "service_tier",
    "speed",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
]
STRUCTS: dict[str, type[msgspec.Struct]] = {
    "chat": ChatRequest,
    "completions": CompletionRequest,
    "responses": ResponsesRequest,
    "messages": MessageRequest,
}
MARKED = {
    "responses": {"metadata", "prompt_cache_options", "prompt_cache_retention"},
    "messages": {"metadata", "cache_control"},
}
"""Those that may say anything, where they are not `MARKS`: what is said again is of its type."""
WEIRD = {"sensorium": "never heard of"}
"""No field's value."""


def parse(route: str, **fields: Any) -> object:  # noqa: ANN401 (JSON)
    parser, least = PARSERS[route]
    return parser(json.dumps({**least, **fields}).encode())


def refusal(route: str, **fields: Any) -> tuple[str | None, str]:  # noqa: ANN401 (JSON)
    with pytest.raises(BadRequestError) as caught:
        parse(route, **fields)
    return caught.value.param, caught.value.code


def published() -> list[tuple[str, str]]:
    chat = chat_create_params.CompletionCreateParamsBase.__annotations__
    plain = completion_create_params.CompletionCreateParamsBase.__annotations__
    responses = response_create_params.ResponseCreateParamsBase.__annotations__
    found = {("chat", name) for name in (*chat, *VLLM, *VLLM_CHAT, "speculative")}
    found |= {("completions", name) for name in (*plain, *VLLM, "prediction", "speculative")}
    found |= {("responses", name) for name in responses}
    return sorted(found | {("messages", name) for name in ANTHROPIC})


@pytest.mark.parametrize(("route", "name"), published())
def test_a_published_field_is_known_or_refused(route: str, name: str) -> None:
    """What is neither a mark nor read is refused at a value nobody means; so none is passed over."""
    if name in MARKED.get(route, MARKS):
        parse(route, **{name: WEIRD})
        return
    # Objects of any names: the template's, and those that depend on the model, which refuses the others.
    if (route, name) not in {("chat", "chat_template_kwargs"), ("chat", "mm_processor_kwargs")}:
        param, code = refusal(route, **{name: WEIRD})
        assert (param or "").split(".")[0].split("[")[0] == name, param
        assert code in ("invalid_value", "unsupported_parameter", "unknown_parameter")
    if name in STRUCTS[route].__struct_fields__ and name not in PARSERS[route][1]:
        parse(route, **{name: None})  # as clients send what they do not set


@pytest.mark.parametrize("route", PARSERS)
def test_what_no_api_has_is_refused(route: str) -> None:
    assert refusal(route, temperatur=0.5) == ("temperatur", "unknown_parameter")


@pytest.mark.parametrize(("name", "allowed"), DONE_ANYWAY.items())
def test_what_is_done_anyway_may_be_said(name: str, allowed: tuple[str, ...]) -> None:
    for route in ("chat", "completions"):
        for said in (*allowed, "null"):
            parse(route, **{name: json.loads(said)})
        assert refusal(route, **{name: 7}) == (name, "unsupported_parameter")


@pytest.mark.parametrize(
    ("route", "name", "value"),
    [
        ("responses", "prediction", {"type": "content", "content": "a"}),
        ("messages", "prediction", {"type": "content", "content": "a"}),
        ("responses", "tools[0].type", [{"type": "web_search"}]),
        ("responses", "input[0].type", [{"type": "web_search_call"}]),
        ("messages", "mcp_servers", [{"type": "url", "url": "https://a.example", "name": "a"}]),
    ],
)
def test_what_another_api_has_or_another_server_runs_is_refused_by_name(
    route: str,
    name: str,
    value: Any,  # noqa: ANN401
) -> None:
    param, code = refusal(route, **{name.partition("[")[0]: value})
    assert param == name
    assert code in ("unsupported_parameter", "unknown_parameter")


@pytest.mark.parametrize("name", [each for each in UNSERVED if each.startswith("guided_")])
def test_a_refusal_names_only_fields_that_there_are(name: str) -> None:
    with pytest.raises(BadRequestError, match=name) as caught:
        parse_chat(json.dumps({"messages": MESSAGES, name: "x"}).encode())
    named = re.findall(r"structured_outputs\.(\w+)", str(caught.value))
    assert set(named) <= set(StructuredOutputs.__struct_fields__)


def test_the_table_has_no_field_that_is_none() -> None:
    assert set(DONE_ANYWAY) | MARKS <= set(UNSERVED)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream": True, "stream_options": {"include_obfuscation": True}}, "stream_options"),
        ({"response_format": {"type": "text", "strictly": True}}, "response_format.strictly"),
        ({"structured_outputs": {"regex": "a", "whitespace_pattern": " "}}, "structured_outputs.whitespace"),
    ],
)
@pytest.mark.parametrize("route", ["chat", "completions"])
def test_fields_inside_are_refused_too(route: str, fields: dict[str, Any], param: str) -> None:
    assert (refusal(route, **fields)[0] or "").startswith(param)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"prefix": True}, "messages[0].prefix"),
        ({"audio": {"id": "a"}}, "messages[0].audio"),
        ({"content": [{"type": "text", "text": "a", "style": "bold"}]}, "messages[0].content[0].style"),
        (
            {
                "content": [
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,", "detail": "fine"}}
                ]
            },
            "messages[0].content[0].image_url.detail",
        ),
    ],
)
def test_fields_of_messages_are_refused_too(message: dict[str, Any], param: str) -> None:
    assert refusal("chat", messages=[{"role": "user", "content": "a"} | message])[0] == param


def test_hints_for_another_servers_cache_and_style_cost_nobody_the_answer() -> None:
    """What agents and samples of OpenAI's send beside all else."""
    mark = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    for said in ("low", "medium", "high"):
        parse("chat", verbosity=said)
        parse("responses", text={"verbosity": said})
    parse("chat", messages=[{"role": "user", "content": [{"type": "text", "text": "a"} | mark]}])
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    text = {"type": "input_text", "text": "a"}
    parse("responses", input=[{"role": "user", "content": [text | mark, image | mark]}])
    parse("responses", include=list(get_args(ResponseIncludable)), client_metadata={"session_id": "a"})


def test_an_answer_may_be_sent_back_as_it_came() -> None:
    """As `message.model_dump()` of OpenAI's SDK has it, nulls and all."""
    answer: dict[str, Any] = {"role": "assistant", "content": "a", "refusal": None}
    answer |= {"annotations": [], "audio": None}
    parse("chat", messages=[*MESSAGES, answer | {"function_call": None, "tool_calls": None}, *MESSAGES])


@pytest.mark.parametrize("route", ["chat", "completions"])
def test_what_others_call_otherwise_is_refused_with_its_name_here(route: str) -> None:
    """Of llama.cpp, SGLang and transformers; a name in a hint is a field of the request."""
    for name in OF_TEXT:
        with pytest.raises(BadRequestError, match=f"^`{name}` is not a known field") as caught:
            parse(route, **{name: 7})
        named = set(re.findall(r"`(\w+)`", OF_TEXT[name]))
        assert (OF_TEXT[name] in str(caught.value)) == (named <= set(STRUCTS[route].__struct_fields__))
        assert route == "completions" or OF_TEXT[name] in str(caught.value)
    with pytest.raises(BadRequestError, match="it is called `repetition_penalty` here"):
        parse(route, repeat_penalty=1.1)
    with pytest.raises(BadRequestError, match=r"did you mean `temperature`\?$"):
        parse(route, temperatur=0.5)
    with pytest.raises(BadRequestError, match=r"is not a known field\.$"):
        parse(route, nothing_like_it_at_all=0)
