"""`prediction` and `speculative` over HTTP: the same tokens, and what drafts were worth is told."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from support.server import Server

pytestmark = pytest.mark.slow

PROMPT = "The quick brown fox jumps over"


def post(server: Server, path: str, **body: object) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, timeout=60)


def test_drafts_change_no_token_and_tell_what_they_were_worth(text_server: Server) -> None:
    plain: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 40, "return_token_ids": True, "temperature": 0}
    expected = post(text_server, "/v1/completions", **plain).json()["choices"][0]
    predicted = {"type": "content", "content": expected["text"]}
    wrong = {"type": "content", "content": "something else " * 5}
    sampled = {"temperature": 0.8, "seed": 3}
    drafting: list[dict[str, Any]] = [{"prediction": predicted}, {"prediction": wrong}, {"speculative": {}}]
    for drafts in drafting:
        answer = post(text_server, "/v1/completions", **plain, **drafts).json()
        assert answer["choices"][0]["token_ids"] == expected["token_ids"]
        details = answer["usage"].get("completion_tokens_details")
        assert (details is None) == ("speculative" in drafts)
        without = post(text_server, "/v1/completions", **plain | sampled).json()
        again = post(text_server, "/v1/completions", **plain | sampled, **drafts).json()
        assert without["choices"][0]["token_ids"] == again["choices"][0]["token_ids"]
    accepted = histogram(text_server, "sensorium_draft_accepted_length")
    assert accepted["count"] > accepted["0.0"], "of some drafts the first token was right"
    chat = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 30}
    text = post(text_server, "/v1/chat/completions", **chat).json()["choices"][0]["message"]["content"]
    chat["prediction"] = {"type": "content", "content": text}
    answer = post(text_server, "/v1/chat/completions", **chat).json()
    assert answer["choices"][0]["message"]["content"] == text
    details = answer["usage"]["completion_tokens_details"]
    assert set(details) == {"accepted_prediction_tokens", "rejected_prediction_tokens"}


def histogram(server: Server, name: str) -> dict[str, float]:
    """Counts of a histogram by bucket, and in all; of every model and class together."""
    found: dict[str, float] = {"count": 0.0}
    for line in httpx.get(f"{server.url}/metrics").text.splitlines():
        if line.startswith(f"{name}_bucket"):
            bound = line.split('le="')[1].split('"')[0]
            found[bound] = found.get(bound, 0.0) + float(line.rsplit(" ", 1)[1])
        elif line.startswith(f"{name}_count"):
            found["count"] += float(line.rsplit(" ", 1)[1])
    return found
