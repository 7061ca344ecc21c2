"""`/v1/responses` with `truncation: "auto"`, over sockets; a random model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai import BadRequestError, OpenAI
from openai.types.responses import Response
from support.chat_templates import QWEN3
from support.server import make_config, running_server
from support.text_folder import QwenShape, make_qwen3_folder

pytestmark = pytest.mark.slow

TURNS = [
    {"role": role, "content": f"{role} {number}. " + "a word " * 30}
    for number in range(40)
    for role in ("user", "assistant")
]
ASKED = [*TURNS, {"role": "user", "content": "And now?"}]
NUM_GONE = 32
"""Turns: without 16 of the 40 it is still too long."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    """Of a server with a model of 4096 tokens."""
    folder = make_qwen3_folder(tmp_path_factory.mktemp("chat") / "chat", shape=QwenShape(max_positions=4096))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": QWEN3}))
    with (
        running_server(make_config(str(folder))) as server,
        OpenAI(base_url=server.api, api_key="none", max_retries=0) as client,
    ):
        yield client
        server.wait_quiet()


def ask(client: OpenAI, asked: Any, **more: Any) -> tuple[Response, int]:  # noqa: ANN401
    """The answer, and how long its prompt was."""
    answer: Any = client.responses.create(
        model="chat", input=asked, instructions="Be kind.", temperature=0, max_output_tokens=5, **more
    )
    assert isinstance(answer, Response)
    assert answer.usage is not None
    return answer, answer.usage.input_tokens


def test_a_conversation_that_is_too_long_goes_on_without_its_oldest_turns(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="maximum context length"):
        ask(client, ASKED)
    short, num_short = ask(client, ASKED[2 * NUM_GONE :])
    whole, num_whole = ask(client, ASKED, truncation="auto")
    assert (short.truncation, whole.truncation) == ("disabled", "auto")
    assert (whole.output_text, num_whole) == (short.output_text, num_short)
    kept = client.responses.input_items.list(whole.id, limit=100).data
    assert len(kept) == len(ASKED)
    _, num_further = ask(client, "Go on.", truncation="auto", previous_response_id=whole.id)
    assert num_whole < num_further < 4096


def test_a_turn_that_is_too_long_by_itself_is_refused(client: OpenAI) -> None:
    with pytest.raises(BadRequestError, match="maximum context length"):
        ask(client, "a " * 4096, truncation="auto")
