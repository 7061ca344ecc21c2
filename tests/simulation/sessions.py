"""Simulated clients of live sessions: they speak or type, lose their connection and come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import trio
from simulation.connections import Connections, Cut, Message, Socket, leaving
from simulation.requests import RATE, NamedError, WrongAnswerError, sound, text
from simulation.scenario import Client

_CHUNK_S: Final = 0.2
_BACK_S: Final = 0.4
"""How long a client takes to come back."""
_TRIES: Final = 6
_POLL_S: Final = 0.05
_ROUNDS: Final = 2
_SILENT_S: Final = 1.0
"""Who sends nothing for so long in the midst of a turn is shown what there is of it, in doubt or not
(`TranscriptPolicy.conclude`), which the end of the turn may correct."""


class Session:
    """One session over all its connections, and the laws of its events."""

    def __init__(self, client: Client, connections: Connections) -> None:
        self._client = client
        self._connections = connections
        self._socket: Socket | None = None
        self._created: Message | None = None
        self._sent: list[Message | bytes] = []
        """All that was said, in order; what the server did not take in is said again."""
        self._last_seq = 0
        self._changed = trio.Event()
        self._over: NamedError | None = None
        self.committed: list[str] = []
        self.ends: dict[str, str] = {}
        """Of items, their transcripts."""
        self.failed: dict[str, NamedError] = {}
        """Of items and responses."""
        self._deltas: dict[str, str] = {}
        self.responses: list[str] = []
        self.num_updates = 0
        self.num_items = 0
        self._arrived_at = trio.current_time()
        self._silent_s = 0.0
        """The longest time in which nothing that was said arrived."""

    async def run(self) -> str:
        """Everything the client wants; what it was answered. Raises NamedError, WrongAnswerError."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._carry)
            nursery.start_soon(self._lose_connections)
            await self._until(lambda: self._created is not None)
            answered = await (self._talk() if self._client.kind == "talk" else self._speak())
            nursery.cancel_scope.cancel()
        if self._socket is not None:
            self._socket.leave(1000)
        return answered

    async def _speak(self) -> str:
        is_pushing = self._client.which % 3 == 2
        turns = None if self._client.which % 4 == 3 else {"type": "server_vad", "silence_duration_ms": 500}
        update = {"type": "session.update", "session": {"type": "transcription"}}
        update["session"] |= {  # type: ignore[operator]  # a dictionary
            "audio": {"input": {"format": {"type": "audio/pcm", "rate": RATE}, "turn_detection": turns}}
        }
        self._say(update)
        samples, step = sound(self._client.which), int(RATE * _CHUNK_S)
        for at in range(0, len(samples), step):
            await trio.sleep(0.01 if is_pushing else _CHUNK_S)
            self._say(samples[at : at + step].tobytes())
        if turns is None:
            self._say({"type": "input_audio_buffer.commit"})
        self._say(update)  # what comes behind its answer knows all the audio
        await self._until(lambda: self.num_updates >= 2)
        await self._until(lambda: set(self.committed) <= {*self.ends, *self.failed})
        if self.failed:
            raise next(iter(self.failed.values()))
        return " | ".join(self.ends[item] for item in self.committed)

    async def _talk(self) -> str:
        self._say(
            {
                "type": "session.update",
                "session": {"type": "realtime", "temperature": 0, "max_output_tokens": 16},
            }
        )
        await self._until(lambda: self.num_updates >= 1)
        for round_ in range(_ROUNDS):
            content = [{"type": "input_text", "text": text((self._client.which + round_) % 8)}]
            item = {"type": "message", "role": "user", "content": content}
            self._say({"type": "conversation.item.create", "item": item})
            self._say({"type": "response.create"})
            await self._until(lambda wanted=round_ + 1: len(self.responses) >= wanted)  # type: ignore[misc]
        if self.failed:
            raise next(iter(self.failed.values()))
        return " | ".join(self.responses)

    def _say(self, event: Message | bytes) -> None:
        self._sent.append(event)
        if self._socket is not None:
            try:
                self._socket.say(event)
            except Cut:
                self._socket = None
            else:
                self._note_arrival()

    def _note_arrival(self) -> None:
        now = trio.current_time()
        self._silent_s = max(self._silent_s, now - self._arrived_at)
        self._arrived_at = now

    async def _until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            if self._over is not None:
                raise self._over
            await self._changed.wait()
            self._changed = trio.Event()

    async def _lose_connections(self) -> None:
        began = trio.current_time()
        for at in self._client.cuts_s:
            await trio.sleep_until(began + at)
            if self._socket is not None:
                self._socket.leave()

    async def _carry(self) -> None:
        """Read, and come back after each loss, until the session is over."""
        tries = 0
        while self._over is None:
            try:
                await self._connect()
            except Cut:
                self._socket = None
                tries += 1
                if tries > _TRIES:
                    self._end(NamedError(0, "gave_up", "the server does not take the client back"))
                    return
                await trio.sleep(_BACK_S)

    async def _connect(self) -> None:
        intent = "realtime" if self._client.kind == "talk" else "transcription"
        path = f"/v1/realtime?intent={intent}&model={self._client.model}"
        headers = {"x-request-id": self._client.name}
        socket = Socket(path, headers=headers, address=self._client.address)
        self._connections.start(socket)
        with leaving(socket):
            if self._created is not None:
                await self._resume(socket)
            self._socket = socket if self._created is not None else None
            try:
                while True:
                    self._take(await socket.hear())
                    self._socket = self._socket or socket
            except Cut:
                if socket.refused:
                    self._end(NamedError(socket.refused, "refused", "the handshake was refused"))
                elif socket.closed is not None:
                    self._end(NamedError(0, f"closed {socket.closed[0]}", socket.closed[1]))
                raise

    async def _resume(self, socket: Socket) -> None:
        """Go on with the session on a new connection. Raises Cut."""
        assert self._created is not None
        session = self._created["session"]
        wish = {"type": "session.resume", "session_id": session["id"], "token": session["resume_token"]}
        socket.say({**wish, "after_seq": self._last_seq})
        while (event := await socket.hear())["type"] != "session.resumed":
            if event["type"] == "error":
                self._end(NamedError(0, event["error"]["code"], event["error"]["message"]))
                raise Cut
        if not self._last_seq <= event["last_seq"]:
            raise WrongAnswerError(f"resumed behind {event['last_seq']}, and {self._last_seq} had arrived")
        for frame in self._sent[event["received_events"] :]:
            socket.say(frame)
            self._note_arrival()

    def _end(self, error: NamedError) -> None:
        self._over = self._over or error
        self._changed.set()

    def _take(self, event: Message) -> None:
        """One event that counts. Raises WrongAnswerError for one that breaks a law."""
        if event["server_event_seq"] != self._last_seq + 1:
            raise WrongAnswerError(f"event {event['server_event_seq']} came behind {self._last_seq}")
        self._last_seq += 1
        match event["type"]:
            case "session.created":
                self._created = event
            case "session.updated":
                self.num_updates += 1
            case "error":
                error = event["error"]
                if not error.get("code") or not error.get("message"):
                    raise WrongAnswerError(f"an error without a name: {event}")
                self._end(NamedError(0, error["code"], error["message"]))
            case "input_audio_buffer.committed":
                self.committed.append(event["item_id"])
            case "response.done":
                self._take_response(event["response"])
            case str(kind) if ".input_audio_transcription." in kind:
                self._take_transcription(kind.rpartition(".")[2], event)
        self._changed.set()

    def _take_transcription(self, kind: str, event: dict[str, Any]) -> None:
        item = event["item_id"]
        if item in self.ends or item in self.failed:
            raise WrongAnswerError(f"{kind} of an item that has ended")
        if kind == "delta":
            self._deltas[item] = self._deltas.get(item, "") + event["delta"]
        elif kind == "completed":
            self.ends[item] = event["transcript"]
            is_corrected = not event["transcript"].startswith(self._deltas.get(item, ""))
            if is_corrected and self._silent_s < _SILENT_S:
                raise WrongAnswerError(f"{self._deltas[item]!r} was released of {event['transcript']!r}")
        elif kind == "failed":
            error = event["error"]
            self.failed[item] = NamedError(0, error.get("code") or error["type"], error["message"])

    def _take_response(self, response: dict[str, Any]) -> None:
        parts = [part["text"] for item in response["output"] for part in item["content"]]
        self.responses.append("".join(parts) + f" ({response['status']})")
        if response["status"] not in ("completed", "incomplete"):
            details = response["status_details"] or {}
            error = details.get("error") or {}
            name = error.get("code") or error.get("type") or details.get("reason") or "unnamed"
            if name == "unnamed":
                raise WrongAnswerError(f"a response failed without a reason: {response}")
            self.failed[response["id"]] = NamedError(0, name, str(error.get("message")))
