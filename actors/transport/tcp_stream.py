"""One TCP connection as bytes: sends that give up on a standstill, a close that the peer has time to read.

Knows no protocol. `actors/transport/http11.py` and `actors/transport/websocket.py` speak through it.
"""

from __future__ import annotations

import contextlib
import fcntl
import select
import socket
import struct
import sys
import termios
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import trio

SLICE_BYTES: Final = 64 * 1024
"""Sent or received in one call."""
_LINGER_NONE: Final = struct.pack("ii", 1, 0)
_DISCARD_BYTES: Final = 256 * 1024 * 1024
"""Read from a peer that goes on sending after our last word."""
_POLL_S: Final = 0.01
_MAX_POLL_S: Final = 1.0


class Wire:
    """A connected socket. One task may receive while others send."""

    def __init__(
        self,
        connected: trio.socket.SocketType,
        *,
        send_timeout_s: float,
        unread: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """`send_timeout_s`: how long the peer may take nothing of what we send. `unread` is entered for as
        long as the peer has to read before more can be sent."""
        self._socket = connected
        self._unread = unread
        self._send_timeout_s = send_timeout_s
        self._unsent = bytearray()
        self._given_back = b""
        self._sending = trio.Lock()
        self.is_broken = False
        """Nothing can be sent any more."""
        self.has_ended = False
        """The peer sends nothing more."""

    async def receive(self, max_bytes: int = SLICE_BYTES) -> bytes:
        """Bytes from the peer, empty at its end of stream; cancelling loses none.

        Raises BrokenResourceError.
        """
        if self._given_back:
            data, self._given_back = self._given_back[:max_bytes], self._given_back[max_bytes:]
            await trio.lowlevel.checkpoint()
            return data
        try:
            data = await self._socket.recv(max_bytes)
        except (OSError, trio.ClosedResourceError) as error:
            self.is_broken = True
            raise trio.BrokenResourceError("the connection is broken") from error
        self.has_ended = not data
        return data

    def give_back(self, data: bytes) -> None:
        """Have what was received be received again."""
        self._given_back = data + self._given_back

    def write(self, data: bytes) -> None:
        """Append to what is to be sent; it is on its way once `flush` has returned."""
        self._unsent += data

    async def flush(self) -> None:
        """Send what was written, or reset the connection and raise BrokenResourceError if nobody reads it.

        After a cancellation the rest is sent by the next call.
        """
        async with self._sending:
            try:
                with self._unread():
                    while self._unsent:
                        del self._unsent[: await self._send_some(bytes(self._unsent[:SLICE_BYTES]))]
            except (OSError, trio.ClosedResourceError) as error:
                self.is_broken = True
                raise trio.BrokenResourceError("the connection is broken") from error

    async def _send_some(self, part: bytes) -> int:
        """Bytes of `part` that were sent, at least one. Slow as the peer may be, only a standstill counts."""
        unread = self._num_unread()
        while True:
            with trio.move_on_after(self._send_timeout_s):
                return await self._socket.send(part)
            before, unread = unread, self._num_unread()
            if unread >= before:
                break
        self.reset()
        raise trio.BrokenResourceError("the peer does not read")

    def _num_unread(self) -> int:
        """Bytes sent that the peer's machine has not taken yet. The kernel lets us send again only when much
        of them has gone, for which a slow reader may need longer than the timeout."""
        if self._socket.fileno() < 0:
            raise trio.ClosedResourceError
        if sys.platform != "linux":
            return 0
        return int.from_bytes(fcntl.ioctl(self._socket.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)

    async def wait_left(self) -> None:
        """Return when both directions are over: the peer has closed, and does not only send nothing more.

        The kernel knows once it has sent the peer something and was told that nobody is there. No event tells
        that apart from the end of the stream, which is long known; so this asks now and then.
        """
        if self.is_broken:  # closed here, for a standstill
            await trio.lowlevel.checkpoint()
            return
        poll = select.poll()
        poll.register(self._socket.fileno(), 0)
        pause_s = _POLL_S
        while not (self.is_broken or poll.poll(0)):
            await trio.sleep(pause_s)
            pause_s = min(2 * pause_s, _MAX_POLL_S)
        self.is_broken = True

    async def finish(self, *, silence_s: float, total_s: float) -> None:
        """Close so that the peer can read our last words.

        A socket closed with unread input is reset, and the reset overtakes what was sent. So what still comes
        is read and dropped until the peer closes, says nothing for `silence_s`, or `total_s` are over.
        """
        room = _DISCARD_BYTES
        try:
            await self.flush()
            self._socket.shutdown(socket.SHUT_WR)
            with trio.move_on_after(total_s):
                while room > 0 and not self.has_ended:
                    with trio.fail_after(silence_s):
                        room -= len(await self.receive())
        except (trio.BrokenResourceError, trio.TooSlowError, OSError):
            pass  # it has left, or has had its time
        finally:
            self.close()

    def reset(self) -> None:
        """Close at once; what is unsent, also in the kernel, is dropped."""
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
        self.close()

    def close(self) -> None:
        """Close. What waits in the kernel is still sent."""
        self.is_broken = True
        self._socket.close()
