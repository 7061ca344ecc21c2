"""One telephone call: drives `realtime/calls/call.py`, with a transcription session for each track.

A track's session is one like any other (`actors/live/session.py`, kept by `actors/live/registry.py`); its
client is the call, over a line whose socket lies in memory. So every bound of a session holds for a track,
and a track counts as a session. What the call tells goes to its own socket, to whoever listens to the calls
of the same caller (`Audience`), and to an address that the call names (`callbacks.py`). **Bounded**: frames
that a session has no room for hold up the provider's socket; a reader that is slow, here or there, is cut
off and nobody else.

What a call is to have (`Terms`) is known once it begins, since its `start` may say some of it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

import trio

from ...protocols.calls.frames import decode_call_frame, encode_call_event
from ...protocols.errors import ClientError, SensoriumError
from ...protocols.realtime.codec import OtherServerEvent, decode_server_event
from ...protocols.shared.audio_format import AudioFormat
from ...protocols.shared.lenient_json import is_event
from ...realtime.calls.call import DRAINING, CallMachine
from ...realtime.calls.effects import (
    AppendTrackAudio,
    Begin,
    CallEffect,
    EndTrack,
    Hang,
    OpenTrack,
    SendEvent,
)
from ..callers import ANONYMOUS, Caller
from ..live.connection import Line, Socket
from ..live.outbox import Outbox, SlowReaderError
from .callbacks import Callback

logger = logging.getLogger(__name__)

_FLUSH = '{"type": "input_audio_buffer.flush"}'
_WAITING_FRAMES = 64
"""Of a track, between the call's socket and its session: 1.3 s of the usual 20 ms."""

OpenCallTrack = Callable[[Socket, AudioFormat], Line]
"""A line on that socket whose session is ready to begin. Raises SensoriumError where there is no room."""


OpenCallback = Callable[[Callable[[str, str], None]], Callback]
"""Posts a call's events somewhere; it is given what to do with a problem of that, by code and message."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What a call has. `is_quiet`: nothing is told on its own socket, whose provider may not expect it."""

    caller: Caller
    open_track: OpenCallTrack
    is_quiet: bool = False
    open_callback: OpenCallback | None = None


Agree = Callable[[Mapping[str, str]], Terms]
"""By the parameters that `start` has. Raises SensoriumError for a call that may not be."""


class Audience:
    """Who listens to the calls of a caller, beside the calls' own sockets."""

    def __init__(self) -> None:
        self._outboxes: dict[Caller, set[Outbox]] = {}

    def join(self, caller: Caller, outbox: Outbox) -> None:
        """Hear every event of the caller's calls from now on."""
        self._outboxes.setdefault(caller, set()).add(outbox)

    def leave(self, caller: Caller, outbox: Outbox) -> None:
        """Hear no more."""
        listening = self._outboxes.get(caller, set())
        listening.discard(outbox)
        if not listening:
            self._outboxes.pop(caller, None)

    def num_listening(self, caller: Caller) -> int:
        """Supervisors of a caller."""
        return len(self._outboxes.get(caller, ()))

    def broadcast(self, caller: Caller, frame: str) -> None:
        """Tell all of them; who does not read is cut off."""
        for outbox in tuple(self._outboxes.get(caller, ())):
            try:
                outbox.put(frame)
            except SlowReaderError as error:
                outbox.close(1008, str(error), drop=True)
                self.leave(caller, outbox)


class TrackSocket:
    """The client's end of a track's session, in memory. See `Socket`."""

    closed_cleanly = True
    """Nobody comes back for a track."""
    went_away = False

    def __init__(self, name: str, call: CallActor) -> None:
        self.name = name
        self._call = call
        self.frames, self._incoming = trio.open_memory_channel[str | bytes](_WAITING_FRAMES)

    async def receive(self) -> str | bytes | None:
        """The next frame; None when the call is over."""
        try:
            return await self._incoming.receive()
        except trio.EndOfChannel:
            return None

    async def send(self, frame: str) -> None:
        """What the session says."""
        event = decode_server_event(frame)
        if not isinstance(event, OtherServerEvent):
            await self._call.perform(
                self._call.machine.session_event(self.name, event, now=trio.current_time())
            )
        await trio.lowlevel.checkpoint()

    def stop_reading(self) -> None:
        """Nobody reads here any more: who waits to send goes on."""
        self._incoming.close()

    async def close(self, code: int, reason: str) -> None:
        """The session has ended by itself."""
        why = reason if reason == DRAINING else "session_ended"
        await self._call.track_gone(self.name, why, f"the track's session ended: {reason} ({code})")


class CallActor:
    """Serves one call to its end."""

    def __init__(
        self,
        socket: Socket,
        outbox: Outbox,
        agree: Agree,
        serve: Callable[[Line], Awaitable[None]],
        audience: Audience,
        caller: Caller | None,
        *,
        is_quiet: bool = False,
        open_callback: OpenCallback | None = None,
    ) -> None:
        """`caller`, `is_quiet` and `open_callback` are known before `start`; None: who calls is not yet.

        Raises SensoriumError where there is no room for the callback.
        """
        self.machine = CallMachine(
            f"call_{uuid4().hex[:24]}", now=trio.current_time(), is_known=caller is not None
        )
        self.caller = caller or ANONYMOUS
        self._socket = socket
        self._outbox = outbox
        self._agree = agree
        self._open_track: OpenCallTrack | None = None
        self._serve = serve
        self._audience = audience
        self._is_quiet = is_quiet
        self._callback = None if open_callback is None else open_callback(self._problem)
        self._tracks: dict[str, TrackSocket] = {}
        self._work: trio.Nursery | None = None
        self._stirred = trio.lowlevel.ParkingLot()
        """The machine's deadline may have moved."""

    async def run(self) -> None:
        """Serve until the call is over and everything is told. Cancelling drops it."""
        try:
            async with trio.open_nursery() as self._work:
                self._work.start_soon(self._watch_time)
                self._work.start_soon(self._watch_reader)
                self._work.start_soon(self._read)
                await self._outbox.run(self._socket.send, self._socket.close)
                self._work.cancel_scope.cancel()
        finally:
            if self._callback is not None:
                self._callback.finish()

    def drain(self) -> None:
        """The server stops: the call ends when its sessions have finished what was said."""
        for effect in self.machine.drain(now=trio.current_time()):
            assert isinstance(effect, SendEvent | Hang), "a call without tracks has nothing to wait for"
            self._perform(effect)
        self._stirred.unpark_all()

    async def track_gone(self, name: str, code: str, message: str) -> None:
        """A track's session is no more."""
        await self.perform(self.machine.gone(name, code, message, now=trio.current_time()))

    async def perform(self, effects: Iterable[CallEffect]) -> None:
        """Carry out what the machine wants."""
        for effect in effects:
            match effect:
                case Begin(parameters):
                    await self.perform(self._begin(parameters))
                case SendEvent() | Hang():
                    self._perform(effect)
                case OpenTrack(track, audio_format):
                    await self._open(track, audio_format)
                case AppendTrackAudio(track, audio):
                    await self._send(track, audio)
                case EndTrack(track):
                    await self._send(track, _FLUSH)
        self._stirred.unpark_all()

    async def _read(self) -> None:
        """The provider's frames, until it leaves."""
        while (frame := await self._socket.receive()) is not None:
            now = trio.current_time()
            try:
                read = decode_call_frame(frame) if isinstance(frame, str) or is_event(frame) else frame
            except ClientError as error:
                await self.perform(self.machine.receive(error, now=now))
            else:
                await self.perform(self.machine.receive(read, now=now))
        await self.perform(self.machine.end("disconnected", now=trio.current_time()))

    async def _watch_time(self) -> None:
        while True:
            with trio.move_on_at(self.machine.deadline):
                await self._stirred.park()
                continue
            await self.perform(self.machine.on_deadline(now=trio.current_time()))

    async def _watch_reader(self) -> None:
        try:
            await self._outbox.watch()
        except SlowReaderError as error:
            self._give_up(error)

    def _begin(self, parameters: Mapping[str, str]) -> Sequence[CallEffect]:
        try:
            terms = self._agree(parameters)
            if terms.open_callback is not None and self._callback is None:
                self._callback = terms.open_callback(self._problem)
        except SensoriumError as error:
            return self.machine.refuse(error)
        self.caller, self._open_track, self._is_quiet = terms.caller, terms.open_track, terms.is_quiet
        return self.machine.agreed()

    async def _open(self, track: str, audio_format: AudioFormat) -> None:
        assert self._work is not None
        assert self._open_track is not None
        socket = TrackSocket(track, self)
        try:
            line = self._open_track(socket, audio_format)
        except SensoriumError as error:
            await self.track_gone(track, error.code, error.message)
            return
        self._tracks[track] = socket
        self._work.start_soon(self._keep, line, socket)

    async def _keep(self, line: Line, socket: TrackSocket) -> None:
        track = socket.name
        try:
            await self._serve(line)
        finally:
            socket.stop_reading()
        await self.track_gone(track, "session_ended", "the track's session ended")

    async def _send(self, track: str, frame: str | bytes) -> None:
        socket = self._tracks.get(track)
        if socket is None:
            return
        try:
            await socket.frames.send(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return

    def _perform(self, effect: SendEvent | Hang) -> None:
        match effect:
            case SendEvent(event):
                self._send_event(encode_call_event(event))
            case Hang(code, reason):
                for socket in self._tracks.values():
                    socket.frames.close()
                self._outbox.close(code, reason)

    def _send_event(self, frame: str) -> None:
        self._audience.broadcast(self.caller, frame)
        if not self._is_quiet:
            try:
                self._outbox.put(frame)
            except SlowReaderError as error:
                self._give_up(error)
        if self._callback is not None:  # which may have something to tell, too
            self._callback.put(frame)

    def _problem(self, code: str, message: str) -> None:
        for effect in self.machine.problem(code, message):
            assert isinstance(effect, SendEvent)
            self._perform(effect)

    def _give_up(self, error: SlowReaderError) -> None:
        logger.info("a call's socket is not read: %s; closed", error)
        self._outbox.close(1008, str(error), drop=True)
