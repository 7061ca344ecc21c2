"""A client's frames on their way to its session: decoded, cut into pieces, each taken whole or not at all.

`actors/live/session.py` reads the other end. Frames may come from another line than the last one; the session
says from which (`lock`).
"""

from __future__ import annotations

from typing import Final

import trio
from msgspec import UNSET

from ...protocols.codec import ClientDecoder
from ...protocols.flat import FlatControl
from ...protocols.realtime import ClientEvent, InputAudioBufferAppend, InvalidEvent
from ...protocols.realtime_lifecycle import SessionResume
from .audio import Input, pieces

_INBOX_CAPACITY: Final = 64
"""Events between a line and the machine, which takes them as they come."""
_INLINE_CHARS: Final = 512 * 1024
"""Text frames up to this size are decoded on the loop, in less than a millisecond."""


class Intake:
    """The way in. One frame at a time: hold `lock`."""

    def __init__(self) -> None:
        self._inbox, self.inputs = trio.open_memory_channel[Input](_INBOX_CAPACITY)
        self._decoder = ClientDecoder()
        self.lock = trio.Lock()
        self.num_events = 0
        """Client events that were taken in."""
        self.num_audio_bytes = 0
        """Bytes of audio in them."""

    @property
    def num_waiting(self) -> int:
        """Inputs that the session has not come to."""
        return self.inputs.statistics().current_buffer_used

    async def take(self, frame: str | bytes) -> SessionResume | None:
        """Take in one frame; a client's first event may be the wish to go on with another session: that one.

        Cancelling takes the frame whole or not at all. Raises as a channel does once the session has ended.
        """
        if isinstance(frame, bytes):
            await self._put_audio(frame, None)
        else:
            event = await self._decode(frame)
            match event:
                case SessionResume() if not self.num_events:
                    return event
                case SessionResume():
                    problem = "session.resume must be the first event of a connection"
                    await self.put(InvalidEvent("unexpected_event", problem, "type"))
                case InputAudioBufferAppend():
                    event_id = None if event.event_id is UNSET else event.event_id
                    await self._put_audio(event.audio, event_id)
                case _:
                    await self.put(event)
        self.num_events += 1
        return None

    async def put(self, event: Input) -> None:
        """Hand it to the session. Waits only where there is no room, and then to the end."""
        try:
            self._inbox.send_nowait(event)
        except trio.WouldBlock:
            with trio.CancelScope(shield=True):  # short: the session waits for no engine
                await self._inbox.send(event)

    async def _put_audio(self, audio: bytes, event_id: str | None) -> None:
        for piece in pieces(audio, event_id=event_id):
            await self.put(piece)
        self.num_audio_bytes += len(audio)

    async def _decode(self, frame: str) -> ClientEvent | FlatControl | InvalidEvent:
        """Read one text frame, in a thread if it is large: 20 MB of base64 take 20 ms."""
        if len(frame) <= _INLINE_CHARS:
            return self._decoder.decode(frame)
        return await trio.to_thread.run_sync(self._decoder.decode, frame)
