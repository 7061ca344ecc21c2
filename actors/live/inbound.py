"""A client's frames on their way to its session: decoded, cut into pieces, each taken whole or not at all.

`actors/live/session.py` reads the other end. Frames may come from another line than the last one; the session
says from which (`lock`).
"""

from __future__ import annotations

import math
from collections import deque
from contextlib import suppress
from typing import Final

import msgspec
import trio
from msgspec import UNSET, UnsetType

from ...media.vision.live_frames import is_picture
from ...protocols.realtime.codec import ClientDecoder
from ...protocols.realtime.events import ClientEvent, InputAudioBufferAppend, InvalidEvent
from ...protocols.realtime.lifecycle import SessionResume
from ...protocols.realtime.video import InputImageBufferAppend
from ...protocols.realtime.vllm_events import FlatControl
from ...protocols.shared.lenient_json import is_event
from ...realtime.events import SessionEvent
from ..runtime.compute_pool import compute
from .audio import PIECE_BYTES, AudioBatch, AudioPiece, Input, pieces

_INBOX_CAPACITY: Final = 64
"""Events between a line and the machine, which takes them as they come."""
_INLINE_CHARS: Final = 64 * 1024
"""Text frames up to this size are decoded on the loop: of audio in no time, of hundreds of items in 3 ms."""


class Intake:
    """The way in. One frame at a time: hold `lock`."""

    def __init__(self, *, answers: bool = False) -> None:
        """`answers`: the session is of type `realtime`."""
        self._inbox, self.inputs = trio.open_memory_channel[Input](_INBOX_CAPACITY)
        self._put_back: Input | None = None
        """What came behind the last batch."""
        self._urgent: deque[SessionEvent] = deque()
        """What found no room and does not wait for any."""
        self._decoder = ClientDecoder(answers=answers)
        self._answers = answers
        self._announced: InputImageBufferAppend | None = None
        """A frame of live video that comes as the next binary frame."""
        self.lock = trio.Lock()
        self.num_events = 0
        """Client events that were taken in."""
        self.num_audio_bytes = 0
        """Bytes of audio in them."""

    @property
    def num_waiting(self) -> int:
        """Inputs that the session has not come to."""
        waiting = self.inputs.statistics().current_buffer_used
        return waiting + len(self._urgent) + (self._put_back is not None)

    async def receive(self) -> AudioBatch | SessionEvent | FlatControl:
        """The next input. Audio that waits already comes together: a session that is behind hears it at once.

        Cancelling takes nothing. Raises as a channel does once the session has ended.
        """
        if self._urgent:
            return self._urgent.popleft()
        first, self._put_back = self._put_back, None
        if first is None:
            first = await self.inputs.receive()
        if not isinstance(first, AudioPiece):
            return first
        batch, num_bytes = [first], len(first.data)
        while self.inputs.statistics().current_buffer_used:
            following = self.inputs.receive_nowait()
            if not isinstance(following, AudioPiece) or num_bytes + len(following.data) > PIECE_BYTES:
                self._put_back = following
                break
            batch.append(following)
            num_bytes += len(following.data)
        return AudioBatch(batch)

    async def take(self, frame: str | bytes) -> SessionResume | None:
        """Take in one frame; a client's first event may be the wish to go on with another session: that one.

        Cancelling takes the frame whole or not at all. Raises as a channel does once the session has ended.
        """
        if isinstance(frame, str) or is_event(frame):
            if (resumption := await self._take_event(frame)) is not None:
                return resumption
        elif self._announced is not None:
            announced, self._announced = self._announced, None
            await self.put(msgspec.structs.replace(announced, image=frame))
        elif self._answers and is_picture(frame):
            problem = "the binary frame is a picture, not sound: announce it by `input_image_buffer.append`"
            await self.put(InvalidEvent("frame_not_announced", problem))
        else:
            await self._put_audio(frame, None)
        self.num_events += 1
        return None

    async def _take_event(self, frame: str | bytes) -> SessionResume | None:
        event = await self._decode(frame)
        match event:
            case SessionResume() if not self.num_events:
                return event
            case SessionResume():
                problem = "session.resume must be the first event of a connection"
                await self.put(InvalidEvent("unexpected_event", problem, "type", event.event_id or None))
            case InputImageBufferAppend(image=UnsetType()):
                before, self._announced = self._announced, event
                if before is not None:
                    problem = "the frame announced before has not come: another one was announced"
                    missing = before.event_id or None
                    await self.put(InvalidEvent("missing_required_parameter", problem, "image", missing))
            case InputAudioBufferAppend():
                event_id = None if event.event_id is UNSET else event.event_id
                await self._put_audio(event.audio, event_id)
            case _:
                await self.put(event)
        return None

    async def put(self, event: Input) -> None:
        """Hand it to the session. Waits only where there is no room, and then to the end."""
        try:
            self._inbox.send_nowait(event)
        except trio.WouldBlock:
            with trio.CancelScope(shield=True):  # short, but where what comes in a container is decoded
                await self._inbox.send(event)

    async def put_if_open(self, event: SessionEvent) -> None:
        """`put` what became of something, if the session still wants to know: it may be ending."""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await self.put(event)

    def put_at_once(self, event: SessionEvent) -> None:
        """Hand it to the session, before all that waits if there is no room behind it."""
        try:
            self._inbox.send_nowait(event)
        except trio.WouldBlock:
            self._urgent.append(event)

    async def _put_audio(self, audio: bytes, event_id: str | None) -> None:
        for piece in pieces(audio, event_id=event_id):
            await self.put(piece)
        self.num_audio_bytes += len(audio)

    async def _decode(self, frame: str | bytes) -> ClientEvent | FlatControl | InvalidEvent:
        """Read one text frame, in a thread if it is large: 20 MB of base64 take 20 ms."""
        if len(frame) <= _INLINE_CHARS:
            return self._decoder.decode(frame)
        return await compute(self._decoder.decode, frame, max_wait_s=math.inf)
