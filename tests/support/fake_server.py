"""A small stand-in for a server: just enough Realtime and REST for the client's own tests, on real sockets.

`FakeDialog` is the Realtime side as a pure function of frames, so that the client's machine can be tested
against it without sockets. It "hears" one word per 500 ms of audio. With server VAD every second is a turn of
its own; without, a commit ends the turn. `serve_realtime` and `serve_rest` put it on 127.0.0.1 in a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
from sensorium.client import Completed, Event
from sensorium.protocols.realtime.codec import decode_client_event, encode_event
from sensorium.protocols.realtime.events import (
    ConversationItemInputAudioTranscriptionCompleted,
    ConversationItemInputAudioTranscriptionDelta,
    Error,
    ErrorDetail,
    InputAudioBufferAppend,
    InputAudioBufferClear,
    InputAudioBufferCleared,
    InputAudioBufferCommit,
    InputAudioBufferCommitted,
    InputAudioBufferSpeechStarted,
    InputAudioBufferSpeechStopped,
    InvalidEvent,
    ServerEvent,
    SessionCreated,
    SessionUpdate,
    SessionUpdated,
)
from sensorium.protocols.realtime.session import SessionView
from sensorium.protocols.transcription.view import TokenUsage
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.sync.server import ServerConnection, serve

REFUSAL = '{"error": {"message": "no such key", "type": "t", "param": null, "code": "invalid_api_key"}}'
WORD_MS = 500
TURN_WORDS = 2
WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")

SESSION: dict[str, Any] = {
    "id": "sess_fake",
    "expires_at": 0,
    "audio": {
        "input": {
            "format": {"type": "audio/pcm", "rate": 24_000},
            "transcription": {"model": "fake"},
            "turn_detection": None,
        }
    },
    "limits": {
        "max_append_bytes": 1_000_000,
        "max_backlog_ms": 30_000,
        "max_turn_s": 60.0,
        "max_session_s": 3600.0,
        "idle_s": 60.0,
    },
    "capabilities": ["binary_audio"],
}


class DialogClosedError(Exception):
    """The dialog ends the connection with this code and reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


@dataclass
class FakeDialog:
    """One session. `close_at_ms` ends it mid-audio; `extra` frames are sent with the first word."""

    close_at_ms: int | None = None
    extra: tuple[str, ...] = ()
    silent: bool = False
    """Never answer anything after the greeting."""
    greeting: str | None = None
    received: list[object] = field(default_factory=list)
    _bytes_per_ms: int = 48
    _server_vad: bool = False
    _num_bytes: int = 0
    _num_words: int = 0
    _num_turns: int = 0
    _uncommitted_bytes: int = 0
    _turn_words: list[str] = field(default_factory=list)

    def start(self) -> list[str]:
        """Frames sent on connecting."""
        session = msgspec.convert(SESSION, SessionView)
        return [self.greeting or encode_event(SessionCreated(session=session))]

    def receive(self, frame: str | bytes) -> list[str]:
        """Frames sent in answer. Raises DialogClosedError."""
        if isinstance(frame, bytes):
            event: object = InputAudioBufferAppend(frame)
        else:
            event = decode_client_event(frame)
        self.received.append(event)
        if self.silent:
            return []
        match event:
            case InputAudioBufferAppend():
                return self._receive_audio(event.audio)
            case SessionUpdate():
                return [encode_event(answer) for answer in self._update(event)]
            case InputAudioBufferCommit():
                return [encode_event(answer) for answer in self._commit()]
            case InputAudioBufferClear():
                self._uncommitted_bytes = 0
                return [encode_event(InputAudioBufferCleared())]
            case InvalidEvent():
                problem = ErrorDetail(code=event.code, message=event.message, param=event.param)
                return [encode_event(Error(error=problem))]
            case _:
                raise AssertionError(event)

    def _update(self, event: SessionUpdate) -> list[ServerEvent]:
        body = msgspec.to_builtins(event.session)
        audio = body["audio"]["input"]
        self._server_vad = audio["turn_detection"] is not None
        self._bytes_per_ms = audio["format"].get("rate", 8_000) * 2 // 1000
        if audio["transcription"].get("model") == "missing":
            problem = ErrorDetail(
                code="model_not_found",
                message="there is no model 'missing' here",
                param="session.audio.input.transcription.model",
            )
            return [Error(error=problem)]
        return [SessionUpdated(session=msgspec.convert(SESSION, SessionView))]

    @property
    def _item_id(self) -> str:
        return f"item_{self._num_turns}"

    def _receive_audio(self, audio: bytes) -> list[str]:
        frames: list[str] = []
        self._num_bytes += len(audio)
        self._uncommitted_bytes += len(audio)
        received_ms = self._num_bytes // self._bytes_per_ms
        if self.close_at_ms is not None and received_ms >= self.close_at_ms:
            raise DialogClosedError(1011, "the fake broke")
        while received_ms >= (self._num_words + 1) * WORD_MS:
            if not self._num_words:
                frames.extend(self.extra)
            frames.extend(encode_event(event) for event in self._word())
        return frames

    def _word(self) -> list[ServerEvent]:
        events: list[ServerEvent] = []
        word = WORDS[self._num_words % len(WORDS)]
        if self._server_vad and not self._turn_words:
            start_ms = self._num_words * WORD_MS
            events.append(InputAudioBufferSpeechStarted(audio_start_ms=start_ms, item_id=self._item_id))
        delta = f" {word}" if self._turn_words else word
        events.append(ConversationItemInputAudioTranscriptionDelta(item_id=self._item_id, delta=delta))
        self._turn_words.append(word)
        self._num_words += 1
        if self._server_vad and len(self._turn_words) == TURN_WORDS:
            end_ms = self._num_words * WORD_MS
            events.append(InputAudioBufferSpeechStopped(audio_end_ms=end_ms, item_id=self._item_id))
            events.extend(self._end_turn())
        return events

    def _commit(self) -> list[ServerEvent]:
        if self._uncommitted_bytes < 100 * self._bytes_per_ms:
            problem = ErrorDetail(code="input_audio_buffer_commit_empty", message="the buffer is too small")
            return [Error(error=problem)]
        return self._end_turn()

    def _end_turn(self) -> list[ServerEvent]:
        item_id, text = self._item_id, " ".join(self._turn_words)
        self._num_turns += 1
        self._uncommitted_bytes = 0
        self._turn_words = []
        usage = TokenUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return [
            InputAudioBufferCommitted(item_id=item_id),
            ConversationItemInputAudioTranscriptionCompleted(item_id=item_id, transcript=text, usage=usage),
        ]


@contextmanager
def serve_realtime(
    make_dialog: Callable[[], FakeDialog] = FakeDialog,
    *,
    status: Callable[[], int | None] = lambda: None,
) -> Iterator[str]:
    """The base URL of a Realtime server in a thread; `status` may refuse a handshake with what it gives."""

    def handle(connection: ServerConnection) -> None:
        dialog = make_dialog()
        try:
            for frame in dialog.start():
                connection.send(frame)
            for message in connection:
                for frame in dialog.receive(message):
                    connection.send(frame)
        except DialogClosedError as close:
            connection.close(close.code, close.reason)
        except ConnectionClosed:
            pass

    def refuse(connection: ServerConnection, request: Request) -> Response | None:
        refused = status()
        if refused is None:
            return None
        response = connection.respond(refused, REFUSAL)
        response.headers["X-Request-Id"] = "req_fake"
        return response

    with serve(handle, "127.0.0.1", 0, process_request=refuse, compression=None) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        finally:
            server.shutdown()
            thread.join()


@dataclass(frozen=True)
class Answer:
    """What the REST fake answers on one path."""

    body: bytes
    status: int = 200
    content_type: str = "application/json"


@dataclass(frozen=True)
class Received:
    """What the REST fake was asked."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@contextmanager
def serve_rest(answers: dict[str, Answer]) -> Iterator[tuple[str, list[Received]]]:
    """(base URL, requests so far) of an HTTP server in a thread that gives fixed answers by path."""
    requests: list[Received] = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            requests.append(Received(self.command, self.path, headers, body))
            answer = answers.get(self.path, Answer(b"not here", 404, "text/plain"))
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        do_GET = do_POST = _answer  # noqa: N815 (http.server looks for these names)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def finals(events: list[Event]) -> list[str]:
    """Final texts among the events."""
    return [event.transcript for event in events if isinstance(event, Completed)]
