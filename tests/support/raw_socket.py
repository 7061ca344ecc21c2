"""A realtime client that hides nothing: frames as they are, every event checked against OpenAI's types."""

from __future__ import annotations

import base64
import copy
import io
import json
import socket
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args

import numpy as np
import soxr
from openai.types.realtime import RealtimeServerEvent
from pydantic import BaseModel
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

Event = dict[str, Any]

EXTENSIONS = {
    "conversation.truncated",
    "input_audio_buffer.backpressure",
    "input_audio_buffer.flushed",
    "input_audio_buffer.utterance_ended",
    "input_image_buffer.cleared",
    "input_image_buffer.committed",
    "input_image_buffer.dropped",
    "input_image_buffer.evicted",
    "session.expiring",
    "session.resumed",
}
_MODELS: dict[str, type[BaseModel]] = {
    get_args(model.model_fields["type"].annotation)[0]: model
    for model in get_args(get_args(RealtimeServerEvent)[0])
    if issubclass(model, BaseModel)
}


def check_shape(event: Event) -> None:
    """Fail unless the event parses as the `openai` package's type of its name."""
    if event["type"] in EXTENSIONS:
        return
    if "session" in event:
        event = copy.deepcopy(event)
        # Their type knows one rate for PCM; ours are an announced extension.
        audio_format = event["session"]["audio"]["input"]["format"]
        audio_format.pop("rate", None)
        audio_format.pop("channels", None)
        if audio_format["type"] not in ("audio/pcm", "audio/pcmu", "audio/pcma"):  # a container
            audio_format["type"] = "audio/pcm"
        if (event["session"]["audio"]["input"].get("turn_detection") or {}).get("type") == "captions":
            event["session"]["audio"]["input"]["turn_detection"] = None
    _MODELS[event["type"]].model_validate(event)


class RawSession:
    """One socket. `events` keeps everything received."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.events: list[Event] = []

    def send(self, event: Event) -> None:
        """Send one event as JSON."""
        self.socket.send(json.dumps(event))

    def send_text(self, frame: str) -> None:
        """Send whatever it is."""
        self.socket.send(frame)

    def append(self, audio: bytes) -> None:
        """Append audio as base64."""
        self.send({"type": "input_audio_buffer.append", "audio": base64.b64encode(audio).decode()})

    def append_binary(self, audio: bytes) -> None:
        """Append audio as a binary frame."""
        self.socket.send(audio)

    def commit(self) -> None:
        """End the turn."""
        self.send({"type": "input_audio_buffer.commit"})

    def configure(
        self,
        *,
        rate: int = 16_000,
        container: str | None = None,
        turn_detection: Event | None = None,
        channels: int = 1,
        **transcription: object,
    ) -> Event:
        """Update the session; gives `session.updated`. Several `channels` are heard apart."""
        audio_format: Event = (
            {"type": "audio/pcm", "rate": rate} if container is None else {"type": container}
        )
        audio: Event = {"format": audio_format, "turn_detection": turn_detection}
        if channels > 1:
            audio_format["channels"], audio["multichannel"] = channels, True
        if transcription:
            audio["transcription"] = transcription
        self.send({"type": "session.update", "session": {"type": "transcription", "audio": {"input": audio}}})
        return self.until("session.updated")

    def receive(self, timeout_s: float = 60.0) -> Event:
        """The next event."""
        event: Event = json.loads(self.socket.recv(timeout_s))
        check_shape(event)
        self.events.append(event)
        return event

    def until(self, kind: str, timeout_s: float = 60.0) -> Event:
        """Receive up to the first event of that type (or its last part); an error event fails the test."""
        while True:
            event = self.receive(timeout_s)
            if event["type"] == kind or event["type"].endswith("." + kind):
                return event
            assert event["type"] != "error", event

    def until_closed(self, timeout_s: float = 60.0) -> tuple[int, str]:
        """Receive everything up to the close; its code and reason."""
        try:
            while True:
                self.receive(timeout_s)
        except ConnectionClosed as closed:
            if closed.rcvd is None:
                raise AssertionError("the connection was cut") from closed
            return closed.rcvd.code, closed.rcvd.reason

    def cut(self) -> None:
        """Break the connection without a closing handshake."""
        self.socket.socket.shutdown(socket.SHUT_RDWR)

    def resume_event(self, after_seq: int | None = None) -> Event:
        """The `session.resume` of this session; `after_seq` None: after what was received."""
        created = self.events[0]["session"]
        if after_seq is None:
            after_seq = max(event["server_event_seq"] for event in self.events)
        return {
            "type": "session.resume",
            "session_id": created["id"],
            "token": created["resume_token"],
            "after_seq": after_seq,
        }

    def deltas(self, item_id: str) -> str:
        """Everything released for an item so far."""
        return "".join(
            event["delta"]
            for event in self.events
            if event["type"].endswith("transcription.delta") and event["item_id"] == item_id
        )

    def seen(self, kind: str) -> list[Event]:
        """Received events whose type ends so."""
        return [event for event in self.events if event["type"].endswith(kind)]


@contextmanager
def raw_session(url: str, **options: Any) -> Iterator[RawSession]:  # noqa: ANN401 (handed on)
    """An open session, `session.created` already received."""
    with connect(url, max_size=None, compression=None, **options) as socket:
        session = RawSession(socket)
        assert session.receive()["type"] == "session.created"
        yield session


@contextmanager
def resumed_session(url: str, lost: RawSession, **options: Any) -> Iterator[RawSession]:  # noqa: ANN401
    """The session of `lost` on a new socket, `session.resumed` already received."""
    with connect(url, max_size=None, compression=None, **options) as connection:
        session = RawSession(connection)
        session.send(lost.resume_event())
        session.until("session.resumed")
        yield session


def pcm(data: bytes) -> bytes:
    """The samples of a 16 kHz mono WAV file."""
    with wave.open(io.BytesIO(data)) as file:
        if (file.getframerate(), file.getnchannels(), file.getsampwidth()) != (16_000, 1, 2):
            raise ValueError("not a 16 kHz mono PCM16 file")
        return bytes(file.readframes(file.getnframes()))


def resampled(pcm16: bytes, source_rate: int, target_rate: int) -> bytes:
    """The same sound at another rate."""
    samples = np.frombuffer(pcm16, "<i2").astype(np.float32) / 32768
    output = soxr.resample(samples, source_rate, target_rate)
    return bytes((np.clip(output, -1, 1) * 32767).astype("<i2").tobytes())


def silence(seconds: float, rate: int = 16_000) -> bytes:
    """Digital silence as PCM16."""
    return bytes(2 * round(seconds * rate))
