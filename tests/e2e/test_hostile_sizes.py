"""The largest bodies, images and answers that are taken: nobody else's loop is held by one of them.

Each test runs under `Server.free_loop` (the fixture), which asserts how long any task kept the loop.
"""

from __future__ import annotations

import base64
import io
import json
import os
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from support.server import Server

pytestmark = pytest.mark.slow

HELLO = {"role": "user", "content": "Hello"}


def post(server: Server, path: str, body: dict[str, Any] | bytes) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    return httpx.post(server.url + path, content=content, headers=headers, timeout=120)


def chat(server: Server, *content: Any, model: str = "text", **more: Any) -> httpx.Response:  # noqa: ANN401
    message = {"role": "user", "content": list(content)} if content else HELLO
    body = {"model": model, "messages": [message], "max_tokens": 2, **more}
    return post(server, "/v1/chat/completions", body)


def data_uri(data: bytes) -> dict[str, Any]:
    text = base64.b64encode(data).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{text}"}}


@pytest.mark.parametrize(
    ("more", "param"),
    [
        (
            {"tools": [{"type": "function", "function": {"name": "f", "description": "x y " * 2_500_000}}]},
            "tools",
        ),
        ({"tools": [{"a": 1}] * 45_000}, "tools"),
        ({"chat_template_kwargs": {"note": ["é" * 100] * 45_000}}, "chat_template_kwargs"),
        ({"messages": [{**HELLO, "content": "word " * 1_600_000}]}, "messages"),
        (
            {
                "messages": [
                    {"role": "assistant", "content": "a", "reasoning_content": "b " * 4_000_000},
                    HELLO,
                ]
            },
            "messages",
        ),
    ],
    ids=["one long tool", "many tools", "template", "content", "reasoning"],
)
def test_megabytes_that_a_template_would_see(server: Server, more: dict[str, Any], param: str) -> None:
    refused = chat(server, **more)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == param
    # The model calls no tools: that is seen before how long they are.
    assert refused.json()["error"]["code"] in (
        ("unsupported_parameter", "invalid_value") if param == "tools" else ("context_length_exceeded",)
    )


@pytest.mark.parametrize(
    "more",
    [
        {"logit_bias": {str(token_id): 1 for token_id in range(280_000)}},
        {"chat_template_kwargs": {"note": ["a"] * 280_000}},
    ],
    ids=["biases", "template"],
)
def test_more_strings_than_anybody_sends_are_not_decoded(server: Server, more: dict[str, Any]) -> None:
    assert chat(server, **more).status_code == 413


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", {"prompt": "word " * 1_600_000}, "prompt"),
        ("/v1/completions", {"prompt": [7] * 290_000}, "prompt"),
        ("/tokenize", {"prompt": "word " * 1_600_000}, "prompt"),
    ],
)
def test_megabytes_of_prompt(server: Server, path: str, body: dict[str, Any], param: str) -> None:
    refused = post(server, path, {"model": "text", **body})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == param


def test_megabytes_of_tokens_are_written(server: Server) -> None:
    one, many = (post(server, "/detokenize", {"model": "text", "tokens": [7] * num}) for num in (1, 290_000))
    assert many.json()["prompt"] == one.json()["prompt"] * 290_000


def test_an_answer_of_very_many_logprobs_is_refused(server: Server) -> None:
    for path, param, more in (
        ("/v1/completions", "logprobs", {"prompt": "a", "logprobs": 20}),
        ("/v1/chat/completions", "top_logprobs", {"messages": [HELLO], "logprobs": True, "top_logprobs": 20}),
    ):
        for streams in (False, True):
            body = {"model": "text", "n": 128, "max_tokens": 200, "stream": streams, **more}
            refused = post(server, path, body)
            assert refused.status_code == 400, refused.text[:200]
            assert refused.json()["error"]["param"] == param
            assert "300,000" in refused.json()["error"]["message"]


def test_where_no_limit_is_named_the_answer_is_shortened_instead(server: Server) -> None:
    body = {"messages": [HELLO], "model": "text", "logprobs": True, "top_logprobs": 20, "n": 100}
    answer = post(server, "/v1/chat/completions", body).json()
    assert len(answer["choices"]) == 100
    lengths = [len(choice["logprobs"]["content"]) for choice in answer["choices"]]
    assert 0 < sum(lengths) * 21 <= 300_000


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_of_many_logprobs(server: Server, *, stream: bool) -> None:
    body = {"model": "text", "prompt": "a b c", "n": 32, "max_tokens": 200, "logprobs": 20}
    body |= {"ignore_eos": True, "stream": stream}
    answer = post(server, "/v1/completions", body)
    assert answer.status_code == 200
    assert len(answer.content) > 2_000_000


def test_names_of_many_tokens(server: Server) -> None:
    answer = post(server, "/tokenize", {"model": "text", "prompt": "a b " * 120, "return_token_strs": True})
    assert len(answer.json()["token_strs"]) == answer.json()["count"] > 200


def test_the_largest_images(server: Server) -> None:
    solid = io.BytesIO()
    Image.new("RGB", (7900, 8000)).save(solid, "PNG")
    noise = io.BytesIO()
    pixels = np.frombuffer(os.urandom(2200 * 2200 * 3), np.uint8).reshape(2200, 2200, 3)
    Image.fromarray(pixels).save(noise, "PNG", compress_level=0)
    for data in (solid.getvalue(), noise.getvalue()):
        answer = chat(server, data_uri(data), model="vision")
        assert answer.status_code == 200, answer.text[:200]
    over = io.BytesIO()
    Image.new("L", (8100, 8000)).save(over, "PNG")
    refused = chat(server, data_uri(over.getvalue()), model="vision")
    assert refused.status_code == 413
    assert refused.json()["error"]["param"] == "messages[0].content[0]"


@pytest.mark.parametrize("kind", ["image_url", "input_audio"])
def test_the_largest_bodies(server: Server, kind: str) -> None:
    """30 MB of nothing: read, taken out of base64 and refused."""
    text = base64.b64encode(os.urandom(30_000_000)).decode()
    part: dict[str, Any] = {"type": kind, "image_url": {"url": f"data:image/png;base64,{text}"}}
    if kind == "input_audio":
        part = {"type": kind, "input_audio": {"data": text, "format": "wav"}}
    refused = chat(server, part, model="audio" if kind == "input_audio" else "vision")
    assert refused.status_code in {400, 413}
    assert refused.json()["error"]["param"] == "messages[0].content[0]"


@pytest.fixture
def server(text_server: Server) -> Server:
    return text_server
