"""A quick part of `make peers`: answers held to the types of OpenAI's package, strictly."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from openai.types import chat, responses
from peers.cases import CHAT_BASE, CHATS, RESPONSE_BASE, RESPONSES
from peers.run import Tally, tally
from pydantic import TypeAdapter
from support.server import Server

EVENT: TypeAdapter[Any] = TypeAdapter(responses.ResponseStreamEvent)


@pytest.mark.slow
def test_chats(chat_server: Server) -> None:
    with httpx.Client(base_url=chat_server.api) as client:
        for name in ("two choices", "logprobs", "call required", "tool result", "schema"):
            answer = client.post("/chat/completions", json=CHAT_BASE | CHATS[name])
            assert answer.status_code == 200, (name, answer.text)
            chat.ChatCompletion.model_validate_json(answer.content, strict=True)


@pytest.mark.slow
def test_events_of_responses(chat_server: Server) -> None:
    with httpx.Client(base_url=chat_server.api) as client:
        for name in ("logprobs", "call required", "tool result", "schema"):
            answer = client.post("/responses", json=RESPONSE_BASE | RESPONSES[name] | {"stream": True})
            assert answer.status_code == 200, (name, answer.text)
            found = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
            parsed = [EVENT.validate_json(each, strict=True) for each in found]
            assert parsed[-1].type in ("response.completed", "response.incomplete"), name


def test_a_report_is_counted() -> None:
    report = b"""<testsuites><testsuite>
        <testcase name="a"/><testcase name="b"><failure/></testcase><testcase name="c"><error/></testcase>
        <testcase name="d"><skipped type="pytest.skip"/></testcase>
        <testcase name="e"><skipped type="pytest.xfail"/></testcase></testsuite></testsuites>"""
    counted = tally(report)
    assert counted == Tally(passed=1, failed=2, expected=1, skipped=1)
    assert counted.tried == 4
