"""Messages over any stream of bytes: small ones first, large ones turn about, nobody's reader kept waiting.

Knows calls by number only. What is small is sent in order and does not wait: there is at most some of it for
each call, and calls are bounded by who makes them. What is large waits for room and is sent a frame at a
time. Read `actors/engine_process/framing.py` for the bytes, `client.py` and `server.py` beside it for what is
said.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import trio

from ..runtime.threads import in_thread
from .framing import Buffer, EncodedMessage, FrameError, FrameReader, large_frames, small_frame

_RECEIVE_BYTES: Final = 256 * 1024
_TAKEN_BYTES: Final = 8 * 1024
"""Of messages taken in one go, a millisecond of work at the most; then everybody else has a turn."""
_MAX_LARGE_BYTES: Final = 64 * 1024 * 1024
"""Of large messages under way; the last of them may go beyond."""
_MAX_SMALL_BYTES: Final = 1024 * 1024
"""Of small ones; beyond, `settled` waits."""
_SMALL_AT_ONCE: Final = 64
"""Small frames in one piece for the stream."""
_INLINE_BYTES: Final = 1024 * 1024
"""A message of more is put together in a thread; joining that much takes no lock along."""


class LinkLostError(Exception):
    """The stream has ended, or makes no sense any more."""


@dataclass(slots=True)
class _UnderWay:
    """What a call has to send behind the first part of something large."""

    frames: deque[Iterator[tuple[Buffer, ...]]] = field(default_factory=deque)
    num_bytes: int = 0


class Link:
    """One end of a stream between two processes. `run_sending` and `run_receiving` must run."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._small: deque[bytes] = deque()
        self._small_bytes = 0
        self._large: OrderedDict[int, _UnderWay] = OrderedDict()
        self._large_bytes = 0
        self._is_lost = False
        self._has_work = trio.lowlevel.ParkingLot()
        self._has_room = trio.lowlevel.ParkingLot()

    def send_nowait(self, call: int, head: bytes) -> None:
        """Send a message that is a head only, behind what its call has under way. Does not wait.

        Does nothing once the link is lost; `run_receiving` says so.
        """
        if self._is_lost:
            return
        frame = small_frame(call, head)
        if frame is None:
            self._add(call, large_frames(call, head, ()), len(head))
        elif call in self._large:
            self._add(call, iter(((frame,),)), len(frame))
        else:
            self._small.append(frame)
            self._small_bytes += len(frame)
        self._has_work.unpark_all()

    async def send(self, call: int, head: bytes, buffers: Sequence[Buffer]) -> None:
        """Send a message with buffers, once there is room for it; returns before it is gone.

        Nobody may change the buffers any more. Raises LinkLostError, and FrameError for what is too large;
        cancelled while it waits, nothing goes.
        """
        while self._large_bytes >= _MAX_LARGE_BYTES and not self._is_lost:
            await self._has_room.park()
        if self._is_lost:
            raise LinkLostError("the other process is gone")
        self._add(call, large_frames(call, head, buffers), len(head) + sum(map(len, buffers)))
        self._has_work.unpark_all()

    async def settled(self, call: int | None = None) -> None:
        """Wait as long as much that is small has not gone, or something large of `call`, which its small
        messages wait for: for who makes more and more of them."""
        while (self._small_bytes >= _MAX_SMALL_BYTES or call in self._large) and not self._is_lost:
            await self._has_room.park()

    def abandon(self, call: int) -> bool:
        """Send no more of what a call has under way, if it has. Then it must tell something: until it does,
        the other side keeps what it has got."""
        under_way = self._large.pop(call, None)
        if under_way is None:
            return False
        self._large_bytes -= under_way.num_bytes
        self._has_room.unpark_all()
        return True

    async def run_sending(self) -> None:
        """Send until cancelled, or until the link is lost: `run_receiving` says so."""
        try:
            while True:
                while self._small or self._large:
                    for each in self._next_small() if self._small else self._next_large():
                        await self._stream.send_all(each)
                    self._has_room.unpark_all()
                await self._has_work.park()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the reader sees the end behind what there still is to read
        finally:
            self._is_lost = True
            self._has_room.unpark_all()

    async def run_receiving(self, take: Callable[[int, list[bytes]], Awaitable[None]]) -> None:
        """Give `take` number, head and buffers of every message, one after the other.

        Raises LinkLostError when there will be no more.
        """
        reader, num_bytes, copying = FrameReader(), 0, trio.CapacityLimiter(1)
        try:
            while data := await self._stream.receive_some(_RECEIVE_BYTES):
                for encoded in reader.feed(bytes(data)):
                    await take(encoded.call, await _joined(encoded, copying))
                    num_bytes += encoded.num_bytes
                    if num_bytes >= _TAKEN_BYTES:
                        num_bytes = 0
                        await trio.lowlevel.checkpoint()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except FrameError as error:
            raise LinkLostError(f"malformed message from the other process: {error}") from error
        finally:
            self._is_lost = True
            self._has_room.unpark_all()
        raise LinkLostError("the other process is gone")

    def _add(self, call: int, frames: Iterator[tuple[Buffer, ...]], num_bytes: int) -> None:
        under_way = self._large.setdefault(call, _UnderWay())
        under_way.frames.append(frames)
        under_way.num_bytes += num_bytes
        self._large_bytes += num_bytes

    def _next_small(self) -> tuple[Buffer, ...]:
        found = [self._small.popleft() for _ in range(min(_SMALL_AT_ONCE, len(self._small)))]
        self._small_bytes -= sum(map(len, found))
        return (b"".join(found),)

    def _next_large(self) -> tuple[Buffer, ...]:
        """A frame of the call that has waited longest."""
        call, under_way = self._large.popitem(last=False)
        for frame in under_way.frames[0]:
            sent = min(len(frame[-1]), under_way.num_bytes)
            under_way.num_bytes -= sent
            self._large_bytes -= sent
            self._large[call] = under_way
            return frame
        under_way.frames.popleft()
        if under_way.frames:
            self._large[call] = under_way
        else:
            self._large_bytes -= under_way.num_bytes
        return ()


async def _joined(encoded: EncodedMessage, copying: trio.CapacityLimiter) -> list[bytes]:
    if encoded.num_bytes <= _INLINE_BYTES:
        return encoded.joined()
    return await in_thread(encoded.joined, limiter=copying, max_wait_s=math.inf)
