"""One live session: a socket's reader and writer around the pure session machine, and its transcriptions.

One task per job. The reader decodes frames and hands them over in order; the driver runs the machine and
performs its effects at once; each `Transcribe` is a task of its own (the machine keeps it to one per item);
the writer sends. Nothing here waits for the engine except those transcription tasks, so pings and appends
are handled whatever it does. When the socket goes, everything is cancelled and given back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final, Protocol
from uuid import uuid4

import trio
from msgspec import UNSET

from ..media.voice_activity import VoiceActivityModel
from ..protocols.audio import INTERNAL_RATE
from ..protocols.codec import decode_client_event, encode_event
from ..protocols.errors import InternalError, SensoriumError
from ..protocols.messages import ItemId
from ..protocols.realtime import Error, ErrorDetail, InputAudioBufferAppend, ServerEvent
from ..protocols.transcript import TranscriptionOptions
from ..realtime.config import SessionConfig
from ..realtime.effects import (
    Close,
    ConfigureAudio,
    ConfigureTranscription,
    Effect,
    ForgetBefore,
    ForgetItem,
    ResetVoiceActivity,
    Send,
    Transcribe,
)
from ..realtime.events import DrainStarted, HypothesisFailed, HypothesisReady, SessionEvent
from ..realtime.session import Session
from .actor import drive
from .live_transcriber import LiveTranscriber
from .nursery import open_work
from .outbox import Outbox, SlowReaderError
from .session_audio import AudioPiece, ListeningMachine, pieces
from .session_meter import SessionMeter
from .windows import WindowDecoder

logger = logging.getLogger(__name__)

_INBOX_CAPACITY: Final = 64
"""Events between reader and machine; the reader then waits, and TCP makes the client wait."""
CLOSE_WAIT_S: Final = 2.0
"""How long the client may take to answer our close, so that it reads what we said before."""


class Socket(Protocol):
    """What a session needs of a WebSocket."""

    async def receive(self) -> str | bytes | None:
        """The next message; None when the client has gone."""
        ...

    async def send(self, frame: str) -> None:
        """Send a text frame."""
        ...

    async def close(self, code: int, reason: str) -> None:
        """Start the closing handshake."""
        ...


class SessionActor:
    """Serves one client until it leaves, a limit ends the session, or something breaks.

    `run` never raises for anything the client, the machine or a transcription does. Cancelling it drops
    the session.
    """

    def __init__(
        self,
        socket: Socket,
        config: SessionConfig,
        decoders: Mapping[str, WindowDecoder],
        activity: VoiceActivityModel,
        outbox: Outbox,
        meter: SessionMeter,
    ) -> None:
        self._socket = socket
        self._decoders = decoders
        self._meter = meter
        self._outbox = outbox
        self._machine = ListeningMachine(Session(config, _new_id), activity)
        self._model = config.model
        self._options = TranscriptionOptions()
        self._turns: dict[ItemId, LiveTranscriber] = {}
        self._running: dict[ItemId, trio.CancelScope] = {}
        self._work: trio.Nursery | None = None
        self._inbox, self._events = trio.open_memory_channel[AudioPiece | SessionEvent](_INBOX_CAPACITY)
        self._client_left = False
        self._last_seq = 0
        self._num_metered = 0
        self._is_draining = False

    @property
    def id(self) -> str:
        """Public id of the session."""
        return self._machine.session.id

    async def run(self) -> None:
        """Serve the session to its end."""
        async with trio.open_nursery() as connection:
            written = trio.Event()
            connection.start_soon(self._write, written)
            try:
                await self._converse()
            except SlowReaderError as error:
                logger.info("session %s: %s; closed", self.id, error)
                self._outbox.close(1008, "the client reads too slowly", drop=True)
            except Exception:
                logger.exception("session %s failed; it was closed, the others go on", self.id)
                self._fail()
            finally:
                self._turns.clear()
                self._events.close()
            if not self._client_left:
                self._outbox.close(1000, "")
                # Unread input would keep the transport from moving, and our last words from arriving.
                connection.start_soon(drop_input, self._socket, connection.cancel_scope)
                await written.wait()
                await trio.sleep(CLOSE_WAIT_S)
            connection.cancel_scope.cancel()

    async def drain(self) -> None:
        """Finish what was said, then close; the client is told."""
        if not self._is_draining:
            self._is_draining = True
            await self._tell(DrainStarted())

    async def _write(self, written: trio.Event) -> None:
        await self._outbox.run(self._socket.send, self._socket.close)
        written.set()

    async def _converse(self) -> None:
        now = trio.current_time()
        for effect in self._machine.session.open(now=now, created=int(time.time())):
            await self._perform(effect)
        async with open_work() as work:
            self._work = work
            work.start_soon(self._read)
            work.start_soon(self._outbox.watch)
            await drive(self._machine, self._next_event, self._perform)
            work.cancel_scope.cancel()

    async def _next_event(self) -> AudioPiece | SessionEvent:
        num_heard = self._machine.num_samples_received
        self._meter.heard((num_heard - self._num_metered) / INTERNAL_RATE)
        self._num_metered = num_heard
        if self._machine.session.closed:
            raise trio.EndOfChannel
        return await self._events.receive()

    async def _read(self) -> None:
        """Socket → events, until the client leaves."""
        while True:
            frame = await self._socket.receive()
            if frame is None:
                self._client_left = True
                assert self._work is not None
                self._work.cancel_scope.cancel()
                return
            if isinstance(frame, bytes):
                await self._put_audio(frame, None)
                continue
            event = decode_client_event(frame)
            if isinstance(event, InputAudioBufferAppend):
                await self._put_audio(event.audio, None if event.event_id is UNSET else event.event_id)
            else:
                await self._inbox.send(event)

    async def _put_audio(self, audio: bytes, event_id: str | None) -> None:
        for piece in pieces(audio, event_id=event_id):
            await self._inbox.send(piece)

    async def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(event):
                self._send(event)
            case Transcribe():
                self._start_transcription(effect)
            case ForgetBefore(sample):
                self._machine.store.forget_before(sample)
            case ForgetItem(item_id):
                self._forget(item_id)
            case ConfigureAudio(audio_format):
                for follow_up in self._machine.configure(audio_format, now=trio.current_time()):
                    await self._perform(follow_up)
            case ConfigureTranscription(model, options):
                self._model, self._options = model, options
            case ResetVoiceActivity():
                self._machine.reset_voice_activity()
            case Close(code, reason):
                self._outbox.close(code, reason)

    def _send(self, event: ServerEvent) -> None:
        self._last_seq = event.server_event_seq
        self._meter.sent(event, now=trio.current_time())
        self._outbox.put(encode_event(event))

    def _start_transcription(self, effect: Transcribe) -> None:
        if effect.item_id not in self._turns:
            self._turns[effect.item_id] = LiveTranscriber(
                self._decoders[self._model],
                self._machine.store.copy,
                self._options,
                start=effect.start_sample,
            )
        assert self._work is not None
        self._work.start_soon(self._transcribe, effect, self._turns[effect.item_id])

    async def _transcribe(self, effect: Transcribe, turn: LiveTranscriber) -> None:
        outcome: HypothesisReady | HypothesisFailed
        where = (effect.item_id, effect.start_sample, effect.end_sample, effect.final)
        with trio.CancelScope() as scope:
            self._running[effect.item_id] = scope
            try:
                transcript = await turn.hypothesis(effect.end_sample, final=effect.final)
                outcome = HypothesisReady(*where, transcript)
            except SensoriumError as error:
                outcome = HypothesisFailed(*where, error)
            except Exception:
                logger.exception("session %s: a transcription failed", self.id)
                outcome = HypothesisFailed(*where, InternalError("the transcription failed"))
            finally:
                if self._running.get(effect.item_id) is scope:
                    del self._running[effect.item_id]
        if not scope.cancelled_caught:
            await self._tell(outcome)

    def _forget(self, item_id: ItemId) -> None:
        self._turns.pop(item_id, None)
        scope = self._running.pop(item_id, None)
        if scope is not None:
            scope.cancel()

    async def _tell(self, event: SessionEvent) -> None:
        try:
            await self._inbox.send(event)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # the session is ending; nobody waits for this any more

    def _fail(self) -> None:
        """The session's own code broke: say so, then close."""
        error = Error(
            event_id=_new_id("event"),
            server_event_seq=self._last_seq + 1,
            error=ErrorDetail(
                type=InternalError.type, code=InternalError.default_code, message="the session failed"
            ),
        )
        try:
            self._outbox.put(encode_event(error))
        except SlowReaderError:
            self._outbox.close(1011, "the session failed", drop=True)
        self._outbox.close(1011, "the session failed")


async def drop_input(socket: Socket, scope: trio.CancelScope) -> None:
    """Read and drop messages until the client has gone, then cancel `scope`."""
    while await socket.receive() is not None:
        pass
    scope.cancel()


def refusal(code: str, message: str, *, kind: str = "invalid_request_error", param: str | None = None) -> str:
    """The one error event of a session that does not begin."""
    detail = ErrorDetail(type=kind, code=code, message=message, param=param)
    return encode_event(Error(event_id=_new_id("event"), server_event_seq=1, error=detail))


def _new_id(prefix: str) -> str:
    return f"{prefix}_{uuid4().hex[:24]}"
