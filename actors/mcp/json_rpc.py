"""JSON-RPC messages of MCP, and the server-sent events they may come in. Knows no connection.

Read next: `client.py`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

PROTOCOL_VERSION: Final = "2025-06-18"
"""What is offered; a server may answer with an older one."""
_MAX_MESSAGE: Final = 2000


class Refused(Exception):  # noqa: N818 (the server's own word)
    """A server answers with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def request_body(method: str, params: dict[str, Any], number: int | None = None) -> bytes:
    """A request; without a number a notification."""
    message: dict[str, Any] = {"jsonrpc": "2.0", "method": method, "params": params}
    return msgspec.json.encode(message if number is None else message | {"id": number})


def result_in(data: bytes, number: int) -> dict[str, Any] | None:
    """The result of that request, None in a message that is none. Raises Refused, msgspec.DecodeError and
    RecursionError."""
    message = msgspec.json.decode(data)
    for each in message if isinstance(message, list) else [message]:
        if not isinstance(each, dict) or each.get("id") != number or "method" in each:
            continue
        error, result = each.get("error"), each.get("result")
        if isinstance(error, dict):
            code, text = error.get("code"), error.get("message")
            raise Refused(code if isinstance(code, int) else -32603, str(text)[:_MAX_MESSAGE])
        if isinstance(result, dict):
            return result
        raise Refused(-32603, "The MCP server's answer has no result.")
    return None


class EventData:
    """The data of server-sent events, as their stream comes."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._data: list[bytes] = []

    def push(self, piece: bytes) -> list[bytes]:
        """Of the events that end in this piece; that of one that is not ended is not told."""
        found: list[bytes] = []
        start, place = len(self._held), 0
        self._held += piece
        while (end := self._held.find(b"\n", max(start, place))) >= 0:
            line = bytes(self._held[place:end]).removesuffix(b"\r")
            place = end + 1
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif not line and self._data:
                found.append(b"\n".join(self._data))
                self._data = []
        del self._held[:place]
        return found


def result_among(events: EventData, piece: bytes, number: int) -> dict[str, Any] | None:
    """The result of that request, if an event that ends in this piece has it. Raises as `result_in`."""
    found = (result_in(data, number) for data in events.push(piece))
    return next((result for result in found if result is not None), None)
