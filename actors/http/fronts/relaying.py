"""One request that names what another front has, and that front's answer: bodies byte for byte.

The caller was admitted here; the field that gateways sign names the caller to the other front, which
is shown no key, unless it alone can say whether the key holds. What cannot be relayed is answered 503 with a
reason. Read `sockets.py` for WebSockets, `actors/fronts/listener.py` for the other end.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import h11
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ....protocols.errors import UnavailableError
from ....protocols.server.signed_caller import HEADER as CALLER_HEADER
from ....protocols.server.signed_caller import SignedCaller, sign
from ....protocols.shared.event_stream import DONE
from ...callers import Caller
from ...fronts.fronts import Front, Fronts
from ...fronts.listener import HEADER, RelayedFor
from ...relay.connections import ServerConnection, ServerGoneError
from ...relay.headers import Headers, to_client, to_server
from ...runtime.nursery import open_work
from ...telemetry.logs import REQUEST_ID
from ...telemetry.metrics import Metrics
from ...transport.http_exchange import HALF_CLOSED
from ..error_bodies import error_shape

logger = logging.getLogger(__name__)

_REPEATABLE: Final = frozenset({"GET", "HEAD", "DELETE"})


def target_of(scope: Scope) -> bytes:
    """The target of a request as it came."""
    path: bytes = scope["raw_path"]
    query: bytes = scope["query_string"]
    return path + b"?" + query if query else path


def relayed_headers(
    connection: HTTPConnection, fronts: Fronts, caller: Caller, reason: RelayedFor, *, method: bytes
) -> Headers:
    """The fields that another front gets, but for `host` and those of the body."""
    found = to_server(connection.scope["headers"], replaces_key=reason == "id")
    address = connection.client.host.partition("%")[0] if connection.client else ""
    who = SignedCaller(address or "::", caller.name if caller.has_key else "")
    signed = sign(
        who,
        fronts.caller_secret.encode(),
        now_s=time.time(),
        method=method,
        target=target_of(connection.scope),
    )
    return [
        *(each for each in found if each[0] != HEADER),
        (b"accept-encoding", b"identity"),
        (b"x-request-id", (REQUEST_ID.get() or "").encode()),
        (CALLER_HEADER, signed),
        (HEADER, reason.encode()),
    ]


def unreachable(*, is_refused: bool = False) -> UnavailableError:
    """For what names something that a front has which cannot be reached. `is_refused`: its machine answers,
    and no front listens there."""
    if is_refused:
        return UnavailableError(
            "The server of the cluster that has what the request names has ended. What it had in memory is "
            "lost; what it has in a file is there again when it is started again.",
            code="front_lost",
        )
    return UnavailableError(
        "The server of the cluster that has what the request names cannot be reached now; try again.",
        code="front_unreachable",
    )


class RelayedResponse(Response):
    """The answer of another front, as it comes. `hold` counts the request meanwhile.

    Raises UnavailableError where that front cannot be reached, or is lost before it answers.
    """

    def __init__(
        self,
        front: Front,
        fronts: Fronts,
        metrics: Metrics,
        caller: Caller,
        *,
        body: bytes = b"",
        hold: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        super().__init__()
        self._front = front
        self._fronts = fronts
        self._metrics = metrics
        self._caller = caller
        self._sent_body = body
        self._hold = hold
        self._connection: ServerConnection | None = None
        self._has_begun = self._is_events = self._is_ending = self._is_half_closed = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        has_left = False

        async def follow_client() -> None:
            nonlocal has_left
            while (message := await receive())["type"] != "http.disconnect":
                if message["type"] == HALF_CLOSED:  # the front finds out whether the client is there
                    self._is_half_closed = True
                    if self._connection is not None:
                        await self._connection.half_close()
            if not self._is_ending:  # ASGI says so of an answer that is complete, too
                has_left = True
                nursery.cancel_scope.cancel()

        with self._hold():
            async with open_work() as nursery:
                nursery.start_soon(follow_client)
                await self._relay(scope, send)
                nursery.cancel_scope.cancel()
        if has_left:
            raise ClientDisconnect

    async def _relay(self, scope: Scope, send: Send) -> None:
        error: UnavailableError | None = None
        with self._front.relaying() as given_up:
            error = await self._exchange(scope, send)
        if given_up.cancelled_caught:
            error = self._lost(scope)
        self._metrics.relays.labels("request", error.code if error is not None else "answered").inc()
        if error is None:
            return
        if not self._has_begun:
            raise error
        logger.warning("the front at %s broke off an answer of %s", self._front.address, scope["path"])
        if self._is_events:
            body = b"\n\n" + error_shape(scope).event(error) + DONE
            await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _exchange(self, scope: Scope, send: Send) -> UnavailableError | None:
        """The whole answer; what went wrong, if anything did."""
        try:
            connection = ServerConnection(await self._front.open())
        except ServerGoneError as error:
            return unreachable(is_refused=error.is_refused)
        self._connection = connection
        is_whole = False
        try:
            await self._send(connection, scope)
            await self._pass_on(connection, await connection.head(), send)
            is_whole = True
            return None
        except ServerGoneError as error:
            logger.info("the front at %s: %s", self._front.address, error)
            return self._lost(scope)
        finally:
            self._connection = None
            if is_whole:
                connection.close()
            else:
                connection.reset()

    def _lost(self, scope: Scope) -> UnavailableError:
        if self._has_begun or scope["method"] in _REPEATABLE:
            return UnavailableError(
                "The server of the cluster that answers was lost before its answer was whole.",
                code="server_lost",
            )
        return UnavailableError(
            "The server of the cluster that has what the request names was lost before it answered; it may "
            "have carried out the request.",
            code="server_lost",
        )

    async def _send(self, connection: ServerConnection, scope: Scope) -> None:
        method, body = scope["method"].encode(), self._sent_body
        self._sent_body = b""
        fields = relayed_headers(HTTPConnection(scope), self._fronts, self._caller, "id", method=method)
        fields.append((b"host", str(self._front.address).encode()))
        if body or method == b"POST":
            fields.append((b"content-length", b"%d" % len(body)))
        parts = (h11.Data(data=body),) if body else ()
        request = h11.Request(method=method, target=target_of(scope), headers=fields)
        await connection.send(request, *parts, h11.EndOfMessage())
        if self._is_half_closed:
            await connection.half_close()

    async def _pass_on(self, connection: ServerConnection, head: h11.Response, send: Send) -> None:
        fields = to_client((bytes(name), bytes(value)) for name, value in head.headers)
        kind = next((value for name, value in fields if name == b"content-type"), b"")
        self._is_events, self._has_begun = kind.startswith(b"text/event-stream"), True
        await send({"type": "http.response.start", "status": head.status_code, "headers": fields})
        while isinstance(event := await connection.next_event(), h11.Data):
            await send({"type": "http.response.body", "body": bytes(event.data), "more_body": True})
        self._is_ending = True
        await send({"type": "http.response.body", "body": b"", "more_body": False})
