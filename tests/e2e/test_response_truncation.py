"""`/v1/responses` with `truncation: "auto"`, over sockets; a random model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai import BadRequestError, OpenAI
from openai.types.responses import Response
from support.server import Server

pytestmark = pytest.mark.slow

TURNS = [
    {"role": role, "content": f"{role} {number}. " + "a word " * 30}
    for number in range(40)
    for role in ("user", "assistant")
]
CONVERSATION = [*TURNS, {"role": "user", "content": "And now?"}]
NUM_GONE = 32
"""Turns: without 16 of the 40 it is still too long."""


@pytest.fixture
def client(chat_server: Server) -> Iterator[OpenAI]:
    """Of a server with a model of 4096 tokens."""
    with OpenAI(base_url=chat_server.api, api_key="none", max_retries=0) as client:
        yield client


def create(client: OpenAI, given: Any, **more: Any) -> tuple[Response, int]:  # noqa: ANN401
    """The answer, and how long its prompt was."""
    answer: Any = client.responses.create(
        model="chat", input=given, instructions="Be kind.", temperature=0, max_output_tokens=5, **more
    )
    assert isinstance(answer, Response)
    assert answer.usage is not None
    return answer, answer.usage.input_tokens


def test_a_conversation_that_is_too_long_goes_on_without_its_oldest_turns(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="maximum context length"):
        create(client, CONVERSATION)
    short, num_short = create(client, CONVERSATION[2 * NUM_GONE :])
    whole, num_whole = create(client, CONVERSATION, truncation="auto")
    assert (short.truncation, whole.truncation) == ("disabled", "auto")
    assert (whole.output_text, num_whole) == (short.output_text, num_short)
    kept = client.responses.input_items.list(whole.id, limit=100).data
    assert len(kept) == len(CONVERSATION)
    _, num_further = create(client, "Go on.", truncation="auto", previous_response_id=whole.id)
    assert num_whole < num_further < 4096


def test_a_turn_that_is_too_long_by_itself_is_refused(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="maximum context length"):
        create(client, "a " * 4096, truncation="auto")
