"""What is told of a call, posted to the address that the call named: signed, in order, again if need be.

An address is vetted when the call begins and for each attempt: its host by name (`--call-callback-domains`),
and where the name leads by `actors/config/blocked_networks.py`; the connection goes to the numeric address
that was vetted, and no redirect is followed. Each event is one POST, sent again with growing pauses until it
is taken; the next one waits. **Bounded**: `MAX_WAITING` events of a call wait, of `_MAX_WAITING_BYTES`; one
that finds no room, or that nobody takes in `_ATTEMPTS`, is dropped, and the call is told so. After the call,
what waits has `_AFTER_S`. How many callbacks there may be says `callback_queue.py`.

The signature is Stripe's shape: `Sensorium-Signature: t=<Unix seconds>,v1=<hex>`, an HMAC-SHA256 of
`<t>.<body>` with the operator's secret, so that an old body cannot be sent again unnoticed.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import httpx
import trio

from ...protocols.errors import BadRequestError
from ..config.calls import CallConfig
from ..config.urls import has_port, host_of, read_url
from ..fetching.http_get import BrokenError, Connections, NoAddressError

logger = logging.getLogger(__name__)

MAX_WAITING: Final = 1000
_MAX_WAITING_BYTES: Final = 4 * 1024 * 1024
"""The summary of a call of four long tracks is some megabytes."""
_ATTEMPTS: Final = 6
_FIRST_PAUSE_S: Final = 0.5
"""Before the second attempt, doubled for each further one, less up to a half by chance: 15 s in all."""
_ATTEMPT_S: Final = 10.0
_AFTER_S: Final = 60.0
_SIGNATURE: Final = "Sensorium-Signature"


def read_address(text: str, config: CallConfig) -> httpx.URL:
    """The callback that a call names. Raises BadRequestError (param `callback`) where it may not be one."""
    target = read_url(text)
    if target is None:
        raise _refused("cannot be read")
    if target.scheme not in ("http", "https") or not target.raw_host or target.userinfo:
        raise _refused("must be an http: or https: address without a user's name")
    if not has_port(target):
        raise _refused("has a port that does not exist")
    if not config.is_allowed_name(host_of(target).rstrip(".").lower()):
        raise _refused("is of a host that is not allowed here (--call-callback-domains)")
    return target


def signature(body: bytes, secret: str, *, now: int) -> str:
    """The value of the header that proves who sent `body`, and when."""
    code = hmac.new(secret.encode(), b"%d." % now + body, hashlib.sha256).hexdigest()
    return f"t={now},v1={code}"


class Callback:
    """Posts one call's events. Start `run` in a nursery; it ends after `finish` when nothing waits."""

    def __init__(
        self,
        target: httpx.URL,
        config: CallConfig,
        connections: Connections,
        report_problem: Callable[[str, str], None],
        *,
        caller: str = "",
    ) -> None:
        """`report_problem` gets a code and a message, once for each kind; `caller` is who waits for names."""
        self._target = target
        self._config = config
        self._report_problem = report_problem
        self._reported: set[str] = set()
        self._connections = connections
        self._caller = caller
        self._waiting: deque[bytes] = deque()
        self._num_bytes = 0
        self._stirred = trio.lowlevel.ParkingLot()
        self._scope = trio.CancelScope()
        self._is_finished = False
        self.num_posted = 0
        self.num_dropped = 0

    @property
    def num_waiting(self) -> int:
        """Events that are not posted yet."""
        return len(self._waiting)

    def put(self, frame: str) -> None:
        """Post this after what waits."""
        body = frame.encode()
        if len(self._waiting) >= MAX_WAITING or self._num_bytes + len(body) > _MAX_WAITING_BYTES:
            self.num_dropped += 1
            self._problem(
                "callback_overflow", f"{len(self._waiting)} events wait for the callback; one was dropped"
            )
            return
        self._waiting.append(body)
        self._num_bytes += len(body)
        self._stirred.unpark_all()

    def finish(self) -> None:
        """No more comes."""
        self._is_finished = True
        self._scope.deadline = trio.current_time() + _AFTER_S
        self._stirred.unpark_all()

    async def run(self) -> None:
        """Post until everything is posted, or the time after the call is over."""
        with self._scope:
            while self._waiting or not self._is_finished:
                if not self._waiting:
                    await self._stirred.park()
                    continue
                await self._deliver(self._waiting[0])
                self._num_bytes -= len(self._waiting.popleft())
        self.num_dropped += len(self._waiting)
        self._waiting.clear()

    async def _deliver(self, body: bytes) -> None:
        reason = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                await trio.sleep(_FIRST_PAUSE_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.0))
            reason = "it did not answer in time"
            with trio.move_on_after(_ATTEMPT_S):
                reason = await self._post(body)
            if not reason:
                self.num_posted += 1
                return
        self.num_dropped += 1
        self._problem("callback_failed", f"the callback was tried {_ATTEMPTS} times: {reason}")

    async def _post(self, body: bytes) -> str:
        """Why it was not taken; empty if it was."""
        try:
            async with self._connections.open(self._target, self._caller) as exchange:
                signed = signature(body, self._config.call_callback_secret, now=int(time.time()))
                fields = (("Content-Type", "application/json"), (_SIGNATURE, signed))
                head = await exchange.head(body=body, fields=fields)
        except NoAddressError:
            return "its host has no address that this server goes to"
        except BrokenError as error:
            return str(error)
        return "" if 200 <= head.status < 300 else f"it answered with status {head.status}"

    def _problem(self, code: str, message: str) -> None:
        if code not in self._reported:
            self._reported.add(code)
            self._report_problem(code, message)


def _refused(why: str) -> BadRequestError:
    return BadRequestError(f"the callback {why}", code="callback_refused", param="callback")
