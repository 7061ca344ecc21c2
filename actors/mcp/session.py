"""One MCP server as one response asks it: JSON-RPC over the protocol's streamable HTTP.

What a server sends beside its answer (progress, logs, questions to the model) is passed over: no such
ability was offered to it. A request whose answer nobody waits for any more is taken back
(`notifications/cancelled`), in a task of its own, as who gave it up waits for nothing. Connections are
`client.py`'s.
"""

from __future__ import annotations

import logging
import re
from functools import partial
from typing import Any, Final

import msgspec
import trio

from ...protocols.chat.tools import MAX_TOOLS
from ...protocols.responses.mcp_results import CallOutcome, http_error, protocol_error, tool_outcome
from ...protocols.responses.mcp_tools import McpServer, read_listed
from ...protocols.responses.output_items import McpTool
from ..config.mcp import read_mcp_address
from ..fetching.http_get import Get, Head
from ..runtime.off_loop import off_loop
from .client import McpClients, McpFailure
from .json_rpc import PROTOCOL_VERSION, EventData, Refused, request_body, result_among, result_in

logger = logging.getLogger(__name__)

MAX_ANSWER_BYTES: Final = 1024 * 1024
"""Of one answer of a server: a page of its tools, or a result."""
_MAX_PAGES: Final = 16
"""Of a server's tools."""
_VISIBLE: Final = re.compile(r"[\x21-\x7e]+")
"""What an id of a session may be, by MCP."""
_CLOSE_TIMEOUT_S: Final = 2.0
_INLINE_BYTES: Final = 32 * 1024
_INLINE_EVENTS: Final = 4 * 1024
"""Bytes of a stream, which may be of tiny events."""


class McpSession:
    """It connects when it is used. Several calls may be made at once; cancelling one closes its connection,
    and the server is told, as it is of one that took too long. `leave` ends it."""

    def __init__(self, clients: McpClients, server: McpServer, caller: str) -> None:
        """`server` was checked (`McpClients.check`); `caller`: who asks, empty where all are one."""
        address = read_mcp_address(server.url)
        assert address is not None, "checked before"
        self.server = server
        self._clients = clients
        self._target = address
        self._counted_as = clients.config.allowed_as(address)
        self._caller = caller
        self._own_fields: tuple[tuple[str, str], ...] = (
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
            *server.fields,
        )
        self._fields = self._own_fields
        """With those of the session, once it has begun."""
        self._id = ""
        self._beginning = trio.Lock()
        self._has_begun = False
        self._number = 0
        self._unwanted: list[int] = []
        """Requests whose answers nobody waits for, of which the server is to be told."""
        self._is_over = False
        self._notifying = trio.Lock()

    async def tools(self) -> list[McpTool]:
        """The server's tools that may be called. Raises McpFailure."""
        found: list[McpTool] = []
        with self._clients.counted(self._counted_as, "tools/list"):
            async with self._clients.in_time(self._caller):
                await self._list_into(found)
        return found

    async def call(self, name: str, arguments: dict[str, Any]) -> CallOutcome:
        """What a call comes to; whatever fails is told there."""
        try:
            with self._clients.counted(self._counted_as, "tools/call"):
                async with self._clients.in_time(self._caller):
                    await self._begin()
                    arguments_sent = {"name": name, "arguments": arguments}
                    outcome = tool_outcome(await self._request("tools/call", arguments_sent))
                    if outcome.error is not None:
                        raise McpFailure(outcome, "tool")
                    return outcome
        except McpFailure as failure:
            return failure.outcome

    def leave(self) -> None:
        """Nothing more is asked: the server is told, without waiting, what is not wanted and that the session
        is over; it does not matter whether it hears it."""
        self._is_over = True
        if self._id:
            self._clients.notify_later(self._send_notices, self._caller)

    async def _list_into(self, found: list[McpTool]) -> None:
        cursor: object = None
        await self._begin()
        for _ in range(_MAX_PAGES):
            result = await self._request("tools/list", {} if cursor is None else {"cursor": cursor})
            page = result.get("tools")
            if not isinstance(page, list):
                raise McpFailure(protocol_error(-32603, "The MCP server tells no list of tools."))
            found += await off_loop(partial(read_listed, self.server, page), size=len(page), most_inline=16)
            cursor = result.get("nextCursor")
            if len(found) > MAX_TOOLS:
                message = f"The MCP server has more than {MAX_TOOLS} tools; name some in `allowed_tools`."
                raise McpFailure(protocol_error(-32603, message))
            if cursor is None:
                break

    async def _send_notices(self) -> None:
        """Of all that is to be told now, in order."""
        async with self._notifying:
            with trio.move_on_after(_CLOSE_TIMEOUT_S):
                try:
                    while self._unwanted:
                        gone = {"requestId": self._unwanted.pop(), "reason": "Nobody waits for it any more."}
                        await self._notify("notifications/cancelled", gone)
                    if self._is_over and self._id:
                        self._id = ""
                        async with self._clients.exchange(self._target, self._caller) as get:
                            await get.head(fields=self._fields, method="DELETE")
                except McpFailure as error:
                    logger.info("an MCP server did not hear what is not wanted any more: %s", error)

    async def _begin(self) -> None:
        async with self._beginning:
            if self._has_begun:
                return
            self._fields, self._id = self._own_fields, ""
            message = {
                "protocolVersion": PROTOCOL_VERSION,
                "capabilities": {},
                "clientInfo": {"name": "sensorium", "version": "1"},
            }
            result = await self._request("initialize", message)
            version = result.get("protocolVersion")
            if not isinstance(version, str) or not version.isascii() or not version.isprintable():
                raise McpFailure(protocol_error(-32603, "The MCP server names no version of the protocol."))
            self._fields += (("MCP-Protocol-Version", version[:40]),)
            _check(await self._notify("notifications/initialized", {}))
            self._has_begun = True

    async def _notify(self, method: str, params: dict[str, Any]) -> Head:
        """Raises McpFailure."""
        async with self._clients.exchange(self._target, self._caller) as get:
            return await get.head(request_body(method, params), self._fields)

    async def _request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of a request. Raises McpFailure."""
        self._number += 1
        number = self._number
        try:
            found = await self._answer(method, params, number)
        except trio.Cancelled:
            if self._has_begun:  # nobody may take back `initialize`
                self._unwanted.append(number)
                self._clients.notify_later(self._send_notices, self._caller)
            raise
        if found is None:
            raise McpFailure(protocol_error(-32603, "The MCP server ended its answer without a result."))
        return found

    async def _answer(self, method: str, params: dict[str, Any], number: int) -> dict[str, Any] | None:
        """Raises McpFailure."""
        session = self._id
        async with self._clients.exchange(self._target, self._caller) as get:
            head = await get.head(request_body(method, params, number), self._fields)
            if head.status == 404 and session and session == self._id:
                self._has_begun, self._id = False, ""  # it was forgotten; the next call begins another
            _check(head)
            if not self._has_begun and (begun := head.fields.get("mcp-session-id", "")):
                if not _VISIBLE.fullmatch(begun):
                    raise McpFailure(protocol_error(-32603, "The MCP server names its session unreadably."))
                self._id = begun
                self._fields += (("Mcp-Session-Id", begun),)
            try:
                return await _result(get, head, number)
            except Refused as refused:
                raise McpFailure(protocol_error(refused.code, refused.message)) from refused
            except (msgspec.DecodeError, RecursionError) as error:
                message = "The MCP server does not answer in JSON-RPC."
                raise McpFailure(protocol_error(-32700, message)) from error


async def _result(get: Get, head: Head, number: int) -> dict[str, Any] | None:
    """In a body, or in the first event that has it: what comes after is not waited for. Raises McpFailure,
    and as `result_in`."""
    kind = head.fields.get("content-type", "").partition(";")[0].strip().lower()
    events = EventData() if kind == "text/event-stream" else None
    body, size = bytearray(), 0
    while piece := await get.piece():
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            message = f"The MCP server's answer has more than {MAX_ANSWER_BYTES:,} bytes."
            raise McpFailure(protocol_error(-32603, message))
        if events is None:
            body += piece
            continue
        read = partial(result_among, events, piece, number)
        if (found := await off_loop(read, size=len(piece), most_inline=_INLINE_EVENTS)) is not None:
            return found
    if events is not None:
        return None
    return await off_loop(partial(result_in, bytes(body), number), size=size, most_inline=_INLINE_BYTES)


def _check(head: Head) -> None:
    """Raise McpFailure for a status that is no success, and for a packed body."""
    if not 200 <= head.status < 300:
        message = f"The MCP server answered with status {head.status}."
        raise McpFailure(http_error(head.status, message), "status")
    if head.fields.get("content-encoding", "identity").strip().lower() != "identity":
        raise McpFailure(protocol_error(-32603, "The MCP server packs its answer (Content-Encoding)."))
