"""A provider of telephone calls: what it sends of one to `/v1/calls`, and what it is told."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

Event = dict[str, Any]
FRAME = 160
"""20 ms."""


def call(url: str, query: str = "") -> ClientConnection:
    return connect(f"{url.replace('/realtime', '/calls')}{query}", open_timeout=60)


def send(socket: ClientConnection, event: str, **fields: object) -> None:
    socket.send(json.dumps({"event": event, "streamSid": "MZ1", **fields}))


def begin(socket: ClientConnection, *tracks: str, **parameters: str) -> None:
    send(socket, "connected", protocol="Call", version="1.0.0")
    media_format = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
    start: Event = {"callSid": "CA1", "tracks": list(tracks), "mediaFormat": media_format}
    start["customParameters"] = parameters
    send(socket, "start", sequenceNumber="1", start=start)


def media(socket: ClientConnection, audio: bytes, track: str, *, first: int = 1, paced: bool = False) -> None:
    began = time.monotonic()
    for number, at in enumerate(range(0, len(audio), FRAME), first):
        payload = base64.b64encode(audio[at : at + FRAME]).decode()
        send(socket, "media", media={"track": track, "chunk": str(number), "payload": payload})
        if paced:
            time.sleep(max(0.0, began + at / 16_000 - time.monotonic()))


def read_all(socket: ClientConnection) -> list[Event]:
    """Everything up to the close."""
    events: list[Event] = []
    try:
        while True:
            events.append(json.loads(socket.recv(30)))
    except ConnectionClosed as closed:
        code = closed.rcvd.code if closed.rcvd else None
    return [*events, {"event": "closed", "code": code}]


def of(events: list[Event], kind: str, track: str | None = None) -> list[Event]:
    return [event for event in events if event["event"] == kind and track in (None, event.get("track"))]


def texts(events: list[Event], track: str) -> list[str]:
    return [event["text"] for event in of(events, "transcript.completed", track)]
