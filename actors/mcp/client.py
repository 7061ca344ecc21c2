"""Connections to MCP servers: who may be asked, how many at once and for how long, and what is counted of it.

Why not the `mcp` package: it resolves names itself and goes to whatever they lead to, takes answers of any
size, and brings a web server, a cryptography library and a tracer along. Here an address is vetted and pinned
as every other that a client writes (`actors/fetching/`), time and bytes are bounded while they come, and
redirects are not followed, because what is sent may hold a key. Read next: `session.py`, which asks.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Final, Literal

import httpx
import trio

from ...protocols.errors import BadRequestError, wrong
from ...protocols.responses.mcp_results import CallOutcome, http_error
from ...protocols.responses.mcp_tools import McpServer
from ..config.mcp import McpConfig, read_mcp_address
from ..fetching.dns import Names
from ..fetching.fair_slots import Places
from ..fetching.http_get import BrokenError, Connections, Get, NoAddressError
from ..runtime.panic_guard import contained
from ..telemetry.metrics import Metrics

logger = logging.getLogger(__name__)

MAX_AT_ONCE: Final = 32
"""Exchanges of all requests; callers share them."""
MAX_CANCELLATIONS: Final = 64
"""Sessions that may send cancellations to their servers at the same time, of all callers together."""

FailureKind = Literal["unreachable", "timeout", "status", "protocol", "tool"]
"""What counters tell apart: no connection, or one that broke; no answer in time; a status that is no success;
what is no result, a refusal included; a result that says that the tool failed."""


class McpFailure(Exception):  # noqa: N818 (what it holds is an answer, too)
    """A server could not be asked, or did not answer; `outcome` tells why."""

    def __init__(self, outcome: CallOutcome, kind: FailureKind = "protocol") -> None:
        super().__init__(outcome.text)
        self.outcome = outcome
        self.kind: FailureKind = kind


class McpClients:
    """All that a server asks of MCP servers."""

    def __init__(self, config: McpConfig, names: Names, metrics: Metrics) -> None:
        self.config = config
        self._connections = Connections(names, config.networks)
        self._metrics = metrics
        self._places = Places(MAX_AT_ONCE)
        self._cancellations = Places(MAX_CANCELLATIONS)
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the tasks that `notify_later` begins; cancelling ends them."""
        try:
            async with trio.open_nursery() as self._nursery:
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._nursery = None

    @property
    def num_cancellations(self) -> int:
        """Sessions that are sending a server that a call is cancelled."""
        return self._cancellations.num_taken

    def notify_later(self, notify: Callable[[], Awaitable[None]], caller: str) -> None:
        """Run `notify`, which raises nothing, in a task of its own. Does nothing where the caller has too
        many."""
        if self._nursery is None or not self._cancellations.take_nowait(caller):
            return

        async def work() -> None:
            try:
                with contained:
                    await notify()
            except Exception:
                logger.exception("an MCP server could not be told what is not wanted any more")
            finally:
                self._cancellations.leave(caller)

        self._nursery.start_soon(work)

    @contextmanager
    def counted(self, server: str, method: str) -> Iterator[None]:
        """Count what is asked of a server here, what came of it, and how long it took."""
        began, outcome = trio.current_time(), "cancelled"
        self._metrics.mcp_active.inc()
        try:
            yield
            outcome = "ok"
        except McpFailure as failure:
            outcome = failure.kind
            raise
        finally:
            self._metrics.mcp_active.dec()
            self._metrics.mcp_calls.labels(server, method, outcome).inc()
            self._metrics.mcp_seconds.labels(server, method).observe(trio.current_time() - began)

    def check(self, servers: Sequence[McpServer]) -> None:
        """Raise BadRequestError for the first that the operator has not allowed."""
        for server in servers:
            address = read_mcp_address(server.url)
            if address is None:
                raise wrong(
                    server.param,
                    "must be an http: or https: address without a user's name",
                    code="url_refused",
                )
            if not self.config.allowed_as(address):
                raise BadRequestError(
                    f"`{server.param}`: MCP servers at that address are not called here; the operator names "
                    "those that are (--allowed-mcp-servers)",
                    param=server.param,
                    code="url_refused",
                )

    @asynccontextmanager
    async def exchange(self, target: httpx.URL, caller: str) -> AsyncIterator[Get]:
        """A connection to an address that was vetted. Raises McpFailure."""
        try:
            async with self._connections.open(target, caller) as get:
                yield get
        except NoAddressError as error:
            message = "The MCP server has no address that this server goes to."
            raise McpFailure(http_error(502, message), "unreachable") from error
        except BrokenError as error:
            message = f"The MCP server cannot be asked: {error}"
            raise McpFailure(http_error(502, message), "unreachable") from error

    @asynccontextmanager
    async def in_time(self, caller: str) -> AsyncIterator[None]:
        """A place for one exchange, and the time it has. Raises McpFailure."""
        async with self._places.taken(caller):
            try:
                with trio.fail_after(self.config.mcp_timeout_s):
                    yield
            except trio.TooSlowError:
                message = f"The MCP server did not answer within {self.config.mcp_timeout_s:g} s."
                raise McpFailure(http_error(504, message), "timeout") from None
