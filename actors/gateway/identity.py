"""Who a gateway's caller is, and what the servers behind it are told of that.

Where the gateway has API keys, it checks them. The client's key goes on to the server, or the gateway's own
in place of it; beside it goes the client's address, signed where there is a secret
(`protocols/server/signed_caller.py`), so that callers share a server as if there was nothing between.
"""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from starlette.requests import HTTPConnection

from ...protocols.server.signed_caller import HEADER, SignedCaller, sign
from ..callers import Caller, caller_by_address
from ..config.network import ListenConfig
from ..http.api_keys import KEY_SUBPROTOCOL, ApiKeys, note_key, sent_key
from ..http.origins import is_loopback
from ..relay.headers import Headers, to_server
from ..telemetry.logs import REQUEST_ID
from ..transport.trusted_proxies import CALLER

_SECRET: Final = "ek_"
"""How keys begin that a server has made for one session of a page."""
_MAX_SECRETS: Final = 16_384


@dataclass(frozen=True, slots=True)
class Client:
    """Who sent one request."""

    caller: Caller
    address: str
    key: str | None
    shows_secret: bool = False
    """Its key is one that a server has made: only that server can say whether it holds."""


def secret_name(key: str) -> str:
    """What a server's key is kept as."""
    return f"{_SECRET}{hashlib.sha256(key.encode(errors='replace')).hexdigest()}"


class Identity:
    """The rules of one gateway."""

    def __init__(self, listen: ListenConfig, keys: ApiKeys, server_api_key: str) -> None:
        self._keys = keys
        self._server_api_key = server_api_key
        self._secret = listen.caller_secret.encode()
        self._is_shared = bool(listen.trusted_proxies) or not is_loopback(listen.host)
        self._secrets: OrderedDict[str, Caller] = OrderedDict()

    @property
    def is_shared(self) -> bool:
        """Whether there may be more than one caller."""
        return self._keys.num_callers > 1 if self._keys.are_needed else self._is_shared

    def client(self, connection: HTTPConnection) -> Client:
        """Who sends a request. Raises UnauthorizedError."""
        address = connection.client.host if connection.client else ""
        key = sent_key(connection)
        secret = self._secrets.get(secret_name(key)) if key and key.startswith(_SECRET) else None
        if secret is not None and self._keys.knows(secret):
            note_key(connection)
            return Client(secret, address, key, shows_secret=True)
        caller = caller_by_address(address)
        if self._keys.are_needed:
            caller = self._keys.check(key)
            note_key(connection)
        is_secret = key is not None and key.startswith(_SECRET) and not self._keys.are_needed
        return Client(connection.scope.get(CALLER, caller), address, key, shows_secret=is_secret)

    def made_secret(self, value: str, client: Client) -> None:
        """A server has made a key for a client's pages."""
        self._secrets[secret_name(value)] = client.caller
        if len(self._secrets) > _MAX_SECRETS:
            self._secrets.popitem(last=False)

    def headers(self, connection: HTTPConnection, client: Client, *, method: bytes, target: bytes) -> Headers:
        """The fields of a request to a server, but for those of its body."""
        replaces_key = bool(self._server_api_key) and not client.shows_secret
        found = to_server(connection.scope["headers"], replaces_key=replaces_key)
        if replaces_key:
            found.append((b"authorization", b"Bearer " + self._server_api_key.encode()))
        found.append((b"accept-encoding", b"identity"))
        found.append((b"x-request-id", (REQUEST_ID.get() or "").encode()))
        if client.address:
            found.append((b"x-forwarded-for", client.address.encode()))
            if self._secret:
                found.append((HEADER, self._signed(client, method, target)))
        return found

    def subprotocols(self, connection: HTTPConnection, client: Client) -> list[str]:
        """Those that a server is offered: with the key among them, where the server gets the client's."""
        offered: list[str] = connection.scope.get("subprotocols", [])
        if not self._server_api_key or client.shows_secret:
            return offered
        return [each for each in offered if not each.startswith(KEY_SUBPROTOCOL)]

    def _signed(self, client: Client, method: bytes, target: bytes) -> bytes:
        """Says whose the request is where the server could not tell by the key it is shown."""
        digest = ""
        if client.caller.has_key:
            digest = client.caller.name
        elif self._server_api_key:
            digest = hashlib.sha256(f"address {client.caller.name}".encode()).hexdigest()
        caller = SignedCaller(client.address, digest)
        return sign(caller, self._secret, now_s=time.time(), method=method, target=target)
