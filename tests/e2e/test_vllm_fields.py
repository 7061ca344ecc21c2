"""Fields that vLLM alone has: prompts that are cut, and tokens that are told by their numbers."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from support.event_frames import event_frames
from support.server import Server

pytestmark = pytest.mark.slow

PROMPT = "The quick brown fox jumps over"


def post(server: Server, path: str, **body: object) -> httpx.Response:
    return httpx.post(f"{server.api}/{path}", json=body, timeout=60)


def complete(server: Server, **body: object) -> dict[str, Any]:
    request = {"max_tokens": 4, "temperature": 0, "return_token_ids": True, **body}
    answer: dict[str, Any] = post(server, "completions", **request).json()
    return answer


def test_a_prompt_is_read_without_its_beginning(text_server: Server) -> None:
    whole = complete(text_server, prompt=PROMPT)["choices"][0]
    ids = whole["prompt_token_ids"]
    last = complete(text_server, prompt=ids[-3:], echo=True, logprobs=1)
    for prompt in (PROMPT, ids):
        cut = complete(text_server, prompt=prompt, truncate_prompt_tokens=3, echo=True, logprobs=1)
        assert cut["choices"] == last["choices"]
        assert cut["usage"]["prompt_tokens"] == 3
    for most in (len(ids), -1):
        assert complete(text_server, prompt=PROMPT, truncate_prompt_tokens=most)["choices"] == [whole]


def test_what_is_too_long_is_cut_so_that_the_answer_fits(text_server: Server) -> None:
    text = f"{PROMPT} " * 200
    counted = httpx.post(f"{text_server.url}/tokenize", json={"prompt": text}).json()
    found = complete(text_server, prompt=text, truncate_prompt_tokens=-1)
    assert found["usage"]["prompt_tokens"] == counted["max_model_len"] - 4
    assert found["choices"][0]["prompt_token_ids"] == counted["tokens"][4 - counted["max_model_len"] :]


def test_where_a_prompt_cannot_be_cut_it_is_said(text_server: Server) -> None:
    for wrong in (0, -2):
        refused = post(text_server, "completions", prompt=PROMPT, truncate_prompt_tokens=wrong)
        assert refused.json()["error"]["param"] == "truncate_prompt_tokens"
    messages = [{"role": "user", "content": "Hi"}]
    refused = post(text_server, "chat/completions", messages=messages, truncate_prompt_tokens=5)
    assert refused.json()["error"]["code"] == "unsupported_parameter"


def test_tokens_may_be_told_by_their_numbers(text_server: Server) -> None:
    """No two share one, as parts of characters share a name."""
    numbered = {"return_tokens_as_token_ids": True, "return_token_ids": True, "max_tokens": 4}
    [choice] = complete(text_server, prompt=PROMPT, logprobs=3, **numbered)["choices"]
    names = [f"token_id:{each}" for each in choice["token_ids"]]
    assert choice["logprobs"]["tokens"] == names
    for name, best in zip(names, choice["logprobs"]["top_logprobs"], strict=True):
        assert len(best) == 3, "the chosen is the likeliest"
        assert name in best
    messages = [{"role": "user", "content": "Hi"}]
    chat = {"messages": messages, "logprobs": True, "top_logprobs": 2, "temperature": 0, **numbered}
    [choice] = post(text_server, "chat/completions", **chat).json()["choices"]
    names = [f"token_id:{each}" for each in choice["token_ids"]]
    content = choice["logprobs"]["content"]
    assert (
        [each["token"] for each in content] == [each["top_logprobs"][0]["token"] for each in content] == names
    )
    streamed = "".join(event_frames(post(text_server, "chat/completions", stream=True, **chat).text))
    assert all(f'"token":"{name}"' in streamed for name in names)
