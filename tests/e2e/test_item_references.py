"""An input may refer to items of earlier responses by their ids, as Vercel's AI SDK does."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from support.server import Server

pytestmark = pytest.mark.slow

KEY, OTHER_KEY = "one", "another"
QUESTION = {"role": "user", "content": "What time is it?"}
NOW = {"type": "function", "name": "now", "parameters": {"type": "object", "properties": {}}}
ANSWER = '<think>\nHm.\n</think>\n\nI look.\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


@pytest.fixture
def server(keyed_server: Server) -> Server:
    return keyed_server


def post(server: Server, *items: object, path: str = "", key: str = KEY, **more: object) -> httpx.Response:
    body = {"input": items, "tools": [NOW], **more}
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.post(f"{server.api}/responses{path}", json=body, headers=headers, timeout=60)


@pytest.fixture
def answered(server: Server) -> list[dict[str, Any]]:
    """The items of a response: what was thought, said and called."""
    answer = post(server, QUESTION, structured_outputs={"choice": [ANSWER]}).json()
    items: list[dict[str, Any]] = answer["output"]
    assert [item["type"] for item in items] == ["reasoning", "message", "function_call"]
    return items


def reference(item: dict[str, Any]) -> dict[str, str]:
    return {"type": "item_reference", "id": item["id"]}


def test_what_is_referred_to_is_read_as_if_it_was_sent(
    server: Server, answered: list[dict[str, Any]]
) -> None:
    result = {"type": "function_call_output", "call_id": answered[-1]["call_id"], "output": "noon"}
    by_hand = [QUESTION, *answered, result]
    by_name = [QUESTION, *map(reference, answered), result]
    whole, referred = (post(server, *items, max_output_tokens=4).json() for items in (by_hand, by_name))
    assert referred["usage"]["input_tokens"] == whole["usage"]["input_tokens"]
    counted = post(server, *by_name, path="/input_tokens").json()
    assert counted["input_tokens"] == whole["usage"]["input_tokens"]
    # Who asks what it was asked with gets the items themselves.
    headers = {"Authorization": f"Bearer {KEY}"}
    listed = httpx.get(
        f"{server.api}/responses/{referred['id']}/input_items?order=asc", headers=headers
    ).json()
    assert listed["data"][1:4] == answered
    # An item that the conversation goes on from need not be all of it.
    assert post(server, reference(answered[1]), QUESTION, max_output_tokens=1).status_code == 200


def test_what_cannot_be_referred_to_is_named(server: Server, answered: list[dict[str, Any]]) -> None:
    thought, message, _ = answered

    def refused(*items: dict[str, str], key: str = KEY) -> tuple[int, str]:
        answer = post(server, QUESTION, *items, key=key)
        return answer.status_code, answer.json()["error"]["param"]

    assert refused(reference(thought), reference(thought)) == (400, "input[2].id")
    assert refused(reference(message), key=OTHER_KEY) == (404, "input[1].id")
    unknown = ("msg_else", f"{message['id'][:-1]}9", message["id"].replace("msg_", "fc_"), f"msg_{'0' * 48}0")
    for name in unknown:
        answer = post(server, QUESTION, {"type": "item_reference", "id": name})
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (404, "input[1].id")
        assert name.partition("_")[2][:48] in error["message"], "the item's id, or that of its response"
