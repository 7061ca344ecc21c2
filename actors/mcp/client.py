"""Asks MCP servers for their tools and calls them: JSON-RPC over the protocol's streamable HTTP.

Why not the `mcp` package: it resolves names itself and goes to whatever they lead to, takes answers of any
size, and brings a web server, a cryptography library and a tracer along. Here an address is vetted and pinned
as every other that a client writes (`actors/fetching/`), time and bytes are bounded while they come, and
redirects are not followed, because what is sent may hold a key. What a server sends beside its answer
(progress, logs, questions to the model) is passed over: no such ability was offered to it.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import httpx
import msgspec
import trio

from ...protocols.errors import BadRequestError
from ...protocols.mcp_results import CallOutcome, http_error, protocol_error, tool_outcome
from ...protocols.mcp_tools import McpServer, read_listed
from ...protocols.response_items import McpTool
from ...protocols.tools import MAX_TOOLS
from ..fetching.http_get import BrokenError, Get, Head, open_get
from ..fetching.names import Names
from ..fetching.networks import is_reachable
from ..fetching.places import Places
from ..kernel.off_loop import off_loop
from ..mcp_config import McpConfig, read_mcp_address
from .messages import PROTOCOL_VERSION, EventData, Refused, request_body, result_in

logger = logging.getLogger(__name__)

MAX_AT_ONCE: Final = 32
"""Exchanges of all requests; callers share them."""
MAX_ANSWER_BYTES: Final = 1024 * 1024
"""Of one answer of a server: a page of its tools, or a result."""
_MAX_PAGES: Final = 16
"""Of a server's tools."""
_GOODBYE_S: Final = 2.0
_INLINE_BYTES: Final = 32 * 1024


class McpFailure(Exception):  # noqa: N818 (what it holds is an answer, too)
    """A server could not be asked, or did not answer; `outcome` tells why."""

    def __init__(self, outcome: CallOutcome) -> None:
        super().__init__(outcome.text)
        self.outcome = outcome


class McpClients:
    """All that a server asks of MCP servers."""

    def __init__(self, config: McpConfig, names: Names) -> None:
        self.config = config
        self._names = names
        self._places = Places(MAX_AT_ONCE)
        self._tls: ssl.SSLContext | None = None

    def check(self, servers: Sequence[McpServer]) -> None:
        """Raise BadRequestError for the first that the operator has not allowed."""
        for server in servers:
            address = read_mcp_address(server.url)
            if address is None:
                raise BadRequestError(
                    f"`{server.param}` is no http: or https: address without a user's name.",
                    param=server.param,
                    code="url_refused",
                )
            if not self.config.is_allowed(address):
                raise BadRequestError(
                    f"`{server.param}`: MCP servers at that address are not called here; the operator names "
                    "those that are (--allowed-mcp-servers).",
                    param=server.param,
                    code="url_refused",
                )

    def open(self, server: McpServer, caller: str) -> McpSession:
        """A session, which connects when it is used; `caller`: who asks, empty where all are one."""
        return McpSession(self, server, caller)

    @asynccontextmanager
    async def exchange(self, target: httpx.URL, caller: str) -> AsyncIterator[Get]:
        """A connection to an address that was vetted. Raises McpFailure."""
        port = target.port or (443 if target.scheme == "https" else 80)
        found = await self._names.addresses(target.raw_host.decode("ascii"), port, caller)
        allowed = [address for address in found if is_reachable(address, self.config.networks)]
        if not allowed:
            logger.info("no MCP server at %s: no address that is allowed in %s", target.host, list(found))
            raise McpFailure(http_error(502, "The MCP server has no address that this server goes to."))
        if target.scheme == "https" and self._tls is None:
            self._tls = await trio.to_thread.run_sync(httpx.create_ssl_context)
        try:
            tls = self._tls if target.scheme == "https" else None
            async with open_get(target, allowed, tls) as get:
                yield get
        except BrokenError as error:
            raise McpFailure(http_error(502, f"The MCP server cannot be asked: {error}")) from error

    @asynccontextmanager
    async def in_time(self, caller: str) -> AsyncIterator[None]:
        """A place for one exchange, and the time it has. Raises McpFailure."""
        async with self._places.taken(caller):
            try:
                with trio.fail_after(self.config.mcp_timeout_s):
                    yield
            except trio.TooSlowError:
                told = f"The MCP server did not answer within {self.config.mcp_timeout_s:g} s."
                raise McpFailure(http_error(504, told)) from None


class McpSession:
    """One server, as one response asks it. Several calls may be made at once; cancelling one closes its
    connection."""

    def __init__(self, clients: McpClients, server: McpServer, caller: str) -> None:
        address = read_mcp_address(server.url)
        assert address is not None, "checked before"
        self.server = server
        self._clients = clients
        self._target = address
        self._caller = caller
        self._fields: tuple[tuple[str, str], ...] = (
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
            *server.fields,
        )
        self._id = ""
        self._beginning = trio.Lock()
        self._has_begun = False
        self._number = 0

    async def tools(self) -> list[McpTool]:
        """The server's tools that may be called. Raises McpFailure."""
        found: list[McpTool] = []
        cursor: object = None
        async with self._clients.in_time(self._caller):
            await self._begin()
            for _ in range(_MAX_PAGES):
                result = await self._ask("tools/list", {} if cursor is None else {"cursor": cursor})
                page = result.get("tools")
                if not isinstance(page, list):
                    raise McpFailure(protocol_error(-32603, "The MCP server tells no list of tools."))
                found += await off_loop(
                    partial(read_listed, self.server, page), size=len(page), most_inline=16
                )
                cursor = result.get("nextCursor")
                if len(found) > MAX_TOOLS:
                    told = f"The MCP server has more than {MAX_TOOLS} tools; name some in `allowed_tools`."
                    raise McpFailure(protocol_error(-32603, told))
                if cursor is None:
                    break
        return found

    async def call(self, name: str, arguments: dict[str, Any]) -> CallOutcome:
        """What a call comes to; whatever fails is told there."""
        try:
            async with self._clients.in_time(self._caller):
                await self._begin()
                return tool_outcome(await self._ask("tools/call", {"name": name, "arguments": arguments}))
        except McpFailure as failure:
            return failure.outcome

    async def close(self) -> None:
        """Tell the server that there is no more; it does not matter whether it hears it."""
        if not self._id:
            return
        with trio.move_on_after(_GOODBYE_S):
            try:
                async with self._clients.exchange(self._target, self._caller) as get:
                    await get.head(fields=self._fields, method="DELETE")
            except (McpFailure, BrokenError) as error:
                logger.info("an MCP server did not hear the end of its session: %s", error)

    async def _begin(self) -> None:
        async with self._beginning:
            if self._has_begun:
                return
            told = {
                "protocolVersion": PROTOCOL_VERSION,
                "capabilities": {},
                "clientInfo": {"name": "sensorium", "version": "1"},
            }
            result = await self._ask("initialize", told)
            version = result.get("protocolVersion")
            if not isinstance(version, str) or not version.isascii() or not version.isprintable():
                raise McpFailure(protocol_error(-32603, "The MCP server names no version of the protocol."))
            self._fields += (("MCP-Protocol-Version", version[:40]),)
            body = request_body("notifications/initialized", {})
            async with self._clients.exchange(self._target, self._caller) as get:
                _check(await get.head(body, self._fields))
            self._has_begun = True

    async def _ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The result of a request. Raises McpFailure."""
        self._number += 1
        number = self._number
        async with self._clients.exchange(self._target, self._caller) as get:
            head = await get.head(request_body(method, params, number), self._fields)
            _check(head)
            if not self._has_begun and (session := head.fields.get("mcp-session-id", "")):
                self._id = session
                self._fields += (("Mcp-Session-Id", session),)
            try:
                found = await _result(get, head, number)
            except Refused as refused:
                raise McpFailure(protocol_error(refused.code, refused.message)) from refused
            except (msgspec.DecodeError, RecursionError) as error:
                told = "The MCP server does not answer in JSON-RPC."
                raise McpFailure(protocol_error(-32700, told)) from error
        if found is None:
            raise McpFailure(protocol_error(-32603, "The MCP server ended its answer without a result."))
        return found


async def _result(get: Get, head: Head, number: int) -> dict[str, Any] | None:
    """In a body, or in the first event that has it: what comes after is not waited for. Raises McpFailure,
    and as `result_in`."""
    kind = head.fields.get("content-type", "").partition(";")[0].strip().lower()
    events = EventData() if kind == "text/event-stream" else None
    body, size = bytearray(), 0
    while piece := await get.piece():
        size += len(piece)
        if size > MAX_ANSWER_BYTES:
            told = f"The MCP server's answer has more than {MAX_ANSWER_BYTES:,} bytes."
            raise McpFailure(protocol_error(-32603, told))
        if events is None:
            body += piece
            continue
        for data in events.push(piece):
            if (found := await _read(data, number)) is not None:
                return found
    return None if events is not None else await _read(bytes(body), number)


async def _read(data: bytes, number: int) -> dict[str, Any] | None:
    return await off_loop(partial(result_in, data, number), size=len(data), most_inline=_INLINE_BYTES)


def _check(head: Head) -> None:
    """Raise McpFailure for a status that is no success, and for a packed body."""
    if not 200 <= head.status < 300:
        raise McpFailure(http_error(head.status, f"The MCP server answered with status {head.status}."))
    if head.fields.get("content-encoding", "identity").strip().lower() != "identity":
        raise McpFailure(protocol_error(-32603, "The MCP server packs its answer (Content-Encoding)."))
