"""A client of sessions that answer, over real sockets, and the same questions over HTTP."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from support.raw_socket import Event, RawSession, raw_session, resumed_session
from support.server import Server

GREEDY: Event = {"temperature": 0, "max_output_tokens": 12}


def text(words: str, role: str = "user", **fields: object) -> Event:
    """An item of one text."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": words}], **fields}


def picture(data: bytes, words: str = "", **fields: object) -> Event:
    """A user's item of a picture, and a text behind it."""
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    content: list[Event] = [{"type": "input_image", "image_url": url}]
    if words:
        content.append({"type": "input_text", "text": words})
    return {"type": "message", "role": "user", "content": content, **fields}


def as_messages(items: list[Event], instructions: str = "") -> list[Event]:
    """What a chat completion is sent for the same items."""
    messages: list[Event] = []
    if instructions:
        messages.append({"role": "system", "content": [{"type": "text", "text": instructions}]})
    for item in items:
        parts: list[Event] = []
        for part in item["content"]:
            match part["type"]:
                case "input_image":
                    parts.append({"type": "image_url", "image_url": {"url": part["image_url"]}})
                case "input_audio":
                    parts.append({"type": "text", "text": part["transcript"]})
                case _:
                    parts.append({"type": "text", "text": part["text"]})
        if not parts:
            continue  # nothing of it is left
        if item["role"] == "assistant":
            messages.append({"role": "assistant", "content": "".join(part["text"] for part in parts)})
        else:
            messages.append({"role": item["role"], "content": parts})
    return messages


def chat(server: Server, model: str, messages: list[Event], **fields: object) -> Event:
    """A chat completion: its answer's text, and its usage."""
    body = {"model": model, "messages": messages, "temperature": 0, "max_tokens": 12, **fields}
    answer = httpx.post(f"{server.api}/chat/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    found: Event = answer.json()
    return {"text": found["choices"][0]["message"]["content"], "usage": found["usage"]}


class LiveTalk:
    """One session that answers."""

    def __init__(self, session: RawSession) -> None:
        self.session = session

    def configure(self, **fields: object) -> Event:
        """Update the session."""
        self.session.send({"type": "session.update", "session": {"type": "realtime", **fields}})
        return self.session.until("session.updated")

    def add(self, item: Event, **fields: object) -> str:
        """Create an item; its id."""
        self.session.send({"type": "conversation.item.create", "item": item, **fields})
        found: str = self.session.until("conversation.item.done")["item"]["id"]
        return found

    def create(self, **response: object) -> str:
        """Begin a response; its id."""
        self.session.send({"type": "response.create", "response": response})
        found: str = self.session.until("response.created")["response"]["id"]
        return found

    def respond(self, **response: object) -> Event:
        """A whole response, as it ends; its deltas were its text."""
        self.create(**response)
        return self.finish()

    def finish(self) -> Event:
        """The response in progress, as it ends."""
        done: Event = self.session.until("response.done")["response"]
        if done["output"]:
            shown = "".join(
                event["delta"]
                for event in self.session.seen("response.output_text.delta")
                if event["response_id"] == done["id"]
            )
            assert shown == words_of(done)
        return done

    def error(self) -> Event:
        """The next error."""
        while (event := self.session.receive())["type"] != "error":
            pass
        found: Event = event["error"]
        return found


def words_of(response: Event) -> str:
    """The text of a response that is over."""
    return "".join(part["text"] for item in response["output"] for part in item["content"])


@contextmanager
def live_talk(server: Server, model: str = "vision", **settings: Any) -> Iterator[LiveTalk]:  # noqa: ANN401
    """An open session of `model`, greedy unless `settings` say otherwise."""
    with raw_session(f"{server.realtime}?model={model}") as session:
        talk = LiveTalk(session)
        talk.configure(**(GREEDY | settings))
        yield talk


@contextmanager
def resumed_talk(server: Server, lost: LiveTalk) -> Iterator[LiveTalk]:
    """The session of `lost` on a new socket, knowing what was said before."""
    with resumed_session(server.realtime, lost.session) as session:
        start = next(i for i, event in enumerate(session.events) if event["type"] == "session.resumed")
        session.events[: start + 1] = lost.session.events
        yield LiveTalk(session)
