"""A scripted conversation with a session that answers: questions, pictures and turns in, answers when told.

`Talk` is a `Dialog` (`support/dialogs.py`) whose session also answers: `Respond` effects wait in `questions`,
`OpenMedia` in `opening`, until the script answers them. What is sent is checked on the way: every event
parses as OpenAI's type of its name, and a response's events come in their order.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
from sensorium.protocols.engine.messages import ItemId
from sensorium.protocols.errors import SensoriumError
from sensorium.protocols.realtime.codec import decode_client_event
from sensorium.protocols.realtime.events import InputAudioBufferAppend
from sensorium.protocols.realtime.lifecycle import SessionResume
from sensorium.protocols.realtime.responses import InputDetails, OutputDetails, ResponseUsage
from sensorium.realtime.dialogue.config import DialogueConfig
from sensorium.realtime.dialogue.effects import (
    AnswerBegan,
    AnswerCounted,
    AnswerEnded,
    AnswerFailed,
    AnswerGrew,
    CallBegan,
    CallGrew,
    ForgetMedia,
    MediaOpened,
    MediaRefused,
    OpenMedia,
    Respond,
    StopResponding,
)
from sensorium.realtime.effects import Effect
from support.dialogs import Dialog
from support.raw_socket import check_shape

Event = dict[str, Any]
PICTURE = "data:image/png;base64," + base64.b64encode(b"a picture").decode()
BEGINNING = ["response.output_item.added", "response.content_part.added"]
CALL_END = ["response.function_call_arguments.done", "response.output_item.done"]
END = ["response.output_text.done", "response.content_part.done", "response.output_item.done"]


def usage(num_input: int, num_output: int) -> ResponseUsage:
    """Of so many tokens of text."""
    return ResponseUsage(
        total_tokens=num_input + num_output,
        input_tokens=num_input,
        output_tokens=num_output,
        input_token_details=InputDetails(text_tokens=num_input),
        output_token_details=OutputDetails(text_tokens=num_output),
    )


def text_item(text: str, role: str = "user", **fields: object) -> Event:
    """An item of one text."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}], **fields}


def shown(text: str, url: str = PICTURE, **fields: object) -> Event:
    """A user's item of a picture and a text."""
    content = [{"type": "input_image", "image_url": url}, {"type": "input_text", "text": text}]
    return {"type": "message", "role": "user", "content": content, **fields}


class Talk(Dialog):
    """One session that answers and its history."""

    def __init__(
        self,
        *,
        transcribes: bool = True,
        detection: bool = True,
        dialogue: Event | None = None,
        **changes: object,
    ) -> None:
        self.questions: dict[str, Respond] = {}
        self.opening: dict[str, OpenMedia] = {}
        self.stopped: list[str] = []
        self._shown: set[str] = set()
        config = msgspec.convert({"model": "seer", "kinds": ["image"]} | (dialogue or {}), DialogueConfig)
        deaf: dict[str, Any] = {} if transcribes else {"model": "", "models": ()}
        super().__init__(detection=detection, dialogue=config, **deaf, **changes)

    def perform(self, effects: list[Effect]) -> None:
        """Play the actor."""
        before = len(self.sent)
        for effect in effects:
            match effect:
                case Respond():
                    assert effect.response_id not in self.questions
                    self.questions[effect.response_id] = effect
                case StopResponding(response_id):
                    self.stopped.append(response_id)
                    self.questions.pop(response_id, None)
                case OpenMedia(_, item_id):
                    self.opening[item_id] = effect
                    self._shown.add(item_id)
                case ForgetMedia(item_id):
                    self._shown.remove(item_id)
                    self.opening.pop(item_id, None)
                case _:
                    pass
        super().perform(effects)
        for event in self.sent[before:]:
            check_shape(event)

    def client(self, frame: Event | str) -> None:
        """Send a wire frame (anything but an append)."""
        text = frame if isinstance(frame, str) else json.dumps(frame)
        event = decode_client_event(text, answers=True)
        assert not isinstance(event, InputAudioBufferAppend | SessionResume)
        self.receive(event)

    def configure(self, **session: object) -> None:
        """Send a session.update."""
        self.client({"type": "session.update", "session": {"type": "realtime", **session}})

    def update(self, audio_input: Event | None = None, **session: object) -> None:
        """Send a session.update about audio."""
        self.configure(**session, **({} if audio_input is None else {"audio": {"input": audio_input}}))

    def add(self, item: Event, **fields: object) -> str:
        """Create an item; its id. Its pictures are there at once."""
        self.client({"type": "conversation.item.create", "item": item, **fields})
        added = [event for event in self.read() if event["type"] == "conversation.item.added"][-1]
        item_id: str = added["item"]["id"]
        if item_id in self.opening:
            self.opened(item_id)
        return item_id

    def opened(self, item_id: str, error: SensoriumError | None = None) -> None:
        """Report what became of the item's files."""
        number = self.opening.pop(item_id).number
        if error is None:
            self.receive(MediaOpened(number, ItemId(item_id)))
        else:
            self.receive(MediaRefused(number, ItemId(item_id), error))

    def respond(self, **response: object) -> str:
        """Ask for an answer; the response's id."""
        self.client({"type": "response.create", "response": response})
        (created,) = [event for event in self.read() if event["type"] == "response.created"]
        response_id: str = created["response"]["id"]
        return response_id

    def current_request(self) -> Respond:
        """The only question that waits."""
        (question,) = self.questions.values()
        return question

    def prompt(self, response_id: str | None = None) -> list[tuple[str, str]]:
        """Who says what in the question; pictures are `[picture]`."""
        question = self.current_request() if response_id is None else self.questions[response_id]
        found = []
        for message in question.conversation.messages:
            content = message.content
            if not isinstance(content, str):
                content = "".join(getattr(part, "text", "[picture]") for part in content or ())
            found.append((str(message.role), content))
        return found

    def begin(self, response_id: str | None = None, *, num_tokens: int = 0) -> str:
        """The model reads."""
        found = response_id or self.current_request().response_id
        self.receive(AnswerBegan(found, usage(num_tokens, 0)))
        return found

    def count(self, num_input: int, num_output: int, response_id: str | None = None) -> None:
        """So many tokens were read and written."""
        self.receive(
            AnswerCounted(response_id or self.current_request().response_id, usage(num_input, num_output))
        )

    def grow(self, text: str, response_id: str | None = None) -> None:
        """More of the answer."""
        self.receive(AnswerGrew(response_id or self.current_request().response_id, text))

    def call(
        self, name: str, *arguments: str, call_id: str = "call_1", response_id: str | None = None
    ) -> None:
        """The answer calls a tool."""
        found = response_id or self.current_request().response_id
        self.receive(CallBegan(found, call_id, name))
        for piece in arguments:
            self.receive(CallGrew(found, piece))

    def end(self, response_id: str | None = None, *, is_cut: bool = False) -> None:
        """The answer is complete."""
        found = response_id or self.current_request().response_id
        del self.questions[found]
        self.receive(AnswerEnded(found, is_cut))

    def break_off(self, error: SensoriumError, response_id: str | None = None) -> None:
        """There is no (more of the) answer."""
        found = response_id or self.current_request().response_id
        del self.questions[found]
        self.receive(AnswerFailed(found, error))

    def reply(self, *texts: str, response_id: str | None = None, num_tokens: int = 0) -> None:
        """A whole answer, to a prompt of so many tokens."""
        found = self.begin(response_id, num_tokens=num_tokens)
        for text in texts:
            self.grow(text, found)
        self.end(found)

    def error(self) -> Event:
        """The only error since the last read."""
        (error,) = [event for event in self.read() if event["type"] == "error"]
        detail: Event = error["error"]
        return detail

    def check_responses(self) -> None:
        """Every response's events are in order, and those of all items follow each other."""
        responses: dict[str, list[Event]] = {}
        for event in self.sent:
            if event["type"].startswith("response."):
                key = event.get("response_id") or event["response"]["id"]
                responses.setdefault(key, []).append(event)
        for events in responses.values():
            names = [event["type"] for event in events]
            assert names[0] == "response.created"
            if names[-1] != "response.done":
                assert self.session.dialogue is not None
                assert events[0]["response"]["id"] in self.session.dialogue.responses
                continue
            outputs = events[-1]["response"]["output"]
            check_outputs(events[1:-1], outputs)


def check_outputs(events: list[Event], outputs: list[Event]) -> None:
    """The events between the beginning and the end of a response are those of its outputs, one by one."""
    for index, output in enumerate(outputs):
        is_call = output["type"] == "function_call"
        kind = "function_call_arguments" if is_call else "output_text"
        size = next(i for i, event in enumerate(events) if event["type"] == "response.output_item.done") + 1
        mine, events = events[:size], events[size:]
        assert all(event.get("output_index", 0) == index for event in mine)
        deltas = [event["delta"] for event in mine if event["type"] == f"response.{kind}.delta"]
        end = CALL_END if is_call else END
        beginning = BEGINNING[:1] if is_call else BEGINNING
        assert [event["type"] for event in mine] == [
            *beginning,
            *[f"response.{kind}.delta"] * len(deltas),
            *end,
        ]
        text = "".join(deltas)
        if is_call:
            assert mine[-2]["arguments"] == output["arguments"] == text
            assert mine[-2]["call_id"] == output["call_id"]
        else:
            assert [part["text"] for part in output["content"]] == ([text] if text else [])
            assert mine[-3]["text"] == text
    assert not events
