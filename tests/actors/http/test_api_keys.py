"""Where a client may put its key, and an operator those of all."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from sensorium.actors.config.server import ListenConfig
from sensorium.actors.http.api_keys import ApiKeys, sent_key
from starlette.requests import HTTPConnection
from support.no_threads import refusing_threads
from trio.testing import MockClock


def connection(*headers: tuple[str, str], subprotocols: tuple[str, ...] = ()) -> HTTPConnection:
    fields = [(name.lower().encode(), value.encode()) for name, value in headers]
    return HTTPConnection({"type": "websocket", "headers": fields, "subprotocols": list(subprotocols)})


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ([("Authorization", "Bearer sk-1")], "sk-1"),
        ([("X-Api-Key", "sk-1")], "sk-1"),
        ([("api-key", "sk-1")], "sk-1"),
        ([("Authorization", "Bearer sk-1"), ("api-key", "sk-2")], "sk-1"),
        ([("Authorization", "Basic abc"), ("api-key", "sk-2")], "sk-2"),
        ([("api-key", "")], None),
        ([], None),
    ],
)
def test_a_key_may_be_in_any_of_three_headers(headers: list[tuple[str, str]], expected: str | None) -> None:
    assert sent_key(connection(*headers)) == expected


def test_a_browsers_key_is_a_subprotocol() -> None:
    offered = ("realtime", "openai-insecure-api-key.sk-1")
    assert sent_key(connection(subprotocols=offered)) == "sk-1"


def test_a_file_of_keys_may_begin_with_a_mark(tmp_path: Path) -> None:
    """As editors of Windows write UTF-8."""
    file = tmp_path / "keys"
    file.write_text("sk-1\nsk-2\n", "utf-8-sig")
    keys = ApiKeys(ListenConfig(api_key_file=file))
    assert keys.check("sk-1") != keys.check("sk-2")


async def test_a_file_of_keys_is_followed_again_when_there_are_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    file = tmp_path / "keys"
    file.write_text("sk-1\n")
    keys = ApiKeys(ListenConfig(api_key_file=file))
    refusing_threads(monkeypatch, until_s=60)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(keys.watch)
        await trio.sleep(30)
        file.write_text("sk-1\nsk-2\n")
        while keys.num_callers == 1:  # noqa: ASYNC110 (of a file)
            await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert keys.check("sk-2")
