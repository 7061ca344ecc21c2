"""What a session still has to send, bounded in events, bytes and time: a slow reader hurts itself only.

`put` never waits. When a bound is reached it raises `SlowReaderError`, and what had piled up is dropped in
favour of the close frame that says why. The session puts, one writer task (`run`) sends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import trio


class SlowReaderError(Exception):
    """The client does not read what it is sent."""


class Outbox:
    """Text frames in order, then at most one close."""

    def __init__(self, *, max_events: int, max_bytes: int, send_timeout_s: float) -> None:
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._send_timeout_s = send_timeout_s
        self._frames: deque[str] = deque()
        self._num_bytes = 0
        self._close: tuple[int, str] | None = None
        self._wake = trio.lowlevel.ParkingLot()
        self._less = trio.lowlevel.ParkingLot()
        self._is_open = True
        self._sending_since = float("inf")
        self.close_code: int | None = None
        """The code sent (or to be sent) to the client, if the server ends the session."""

    async def room(self) -> None:
        """Wait while a quarter of the bytes wait to be read: for whoever can, which costs nothing but time.

        Returns, too, when nothing will be sent any more."""
        while self._is_open and self._close is None and self._num_bytes > self._max_bytes // 4:
            await self._less.park()

    def put(self, frame: str) -> None:
        """Queue one frame. Raises SlowReaderError at a bound; after `close` it does nothing."""
        if self._close is not None:
            return
        if len(self._frames) >= self._max_events or self._num_bytes + len(frame) > self._max_bytes:
            raise SlowReaderError(f"{len(self._frames)} events are waiting to be read")
        self._frames.append(frame)
        self._num_bytes += len(frame)
        self._wake.unpark_all()

    def close(self, code: int, reason: str, *, drop: bool = False) -> None:
        """Send what is queued (unless `drop`), then close. The first call decides."""
        if self._close is not None:
            return
        if drop:
            self._frames.clear()
        self._close = (code, reason)
        self.close_code = code
        self._wake.unpark_all()
        self._less.unpark_all()

    async def run(
        self, send: Callable[[str], Awaitable[None]], close: Callable[[int, str], Awaitable[None]]
    ) -> None:
        """Send until closed. A send that the transport gives up simply returns: the reader sees the end."""
        try:
            while True:
                while self._frames:
                    frame = self._frames.popleft()
                    self._num_bytes -= len(frame)
                    self._less.unpark_all()
                    self._sending_since = trio.current_time()
                    await send(frame)
                    self._sending_since = float("inf")
                if self._close is not None:
                    await close(*self._close)
                    return
                await self._wake.park()
        finally:
            self._is_open = False
            self._less.unpark_all()

    async def watch(self) -> None:
        """Raise SlowReaderError when one send has taken too long; runs until then."""
        while True:
            await trio.sleep(self._send_timeout_s / 4)
            if trio.current_time() - self._sending_since > self._send_timeout_s:
                raise SlowReaderError(f"nothing was read for {self._send_timeout_s:g} s")
