"""The SDK's sessions that answer, against the server's own machine: whose answer is cancelled, and when
one is over.
"""

from __future__ import annotations

import json

import msgspec
from sensorium.client.realtime.answer import AnswerLog, AnswerState
from sensorium.client.realtime.conversation_machine import DialogueCore, new_answer
from sensorium.protocols.errors import MediaError
from support.conversation_dialogs import Talk, text_item


class Pair:
    """A client's machine and a server's; frames go when they are told to."""

    def __init__(self) -> None:
        self.core, self.talk = DialogueCore(), Talk(dialogue={"calls_tools": True})
        self.num_read = 0
        self.send(*self.core.opening())

    def send(self, *frames: str | bytes) -> None:
        """The client's frames arrive, and what is said to them."""
        for frame in frames:
            assert isinstance(frame, str)
            self.talk.client(frame)
        self.read()

    def read(self) -> None:
        """What was said arrives."""
        for event in self.talk.sent[self.num_read :]:
            self.core.receive(json.dumps(event))
        self.num_read = len(self.talk.sent)

    def refuse_picture(self, log: AnswerLog) -> None:
        """The question's picture cannot be opened."""
        self.talk.opened(log.item_id, MediaError("damaged", param=f"{log.item_id}.content[0]"))
        self.read()

    @property
    def running(self) -> list[str]:
        """Responses that the server makes."""
        assert self.talk.session.dialogue is not None
        return list(self.talk.session.dialogue.responses)


def test_an_answer_whose_picture_is_refused_before_it_began_is_cancelled_by_its_own_name() -> None:
    pair = Pair()
    log = new_answer()
    (create, respond) = pair.core.ask(log, "What is it?", [b"no picture"])
    pair.send(create)
    pair.refuse_picture(log)
    assert log.error is not None
    assert not log.has_more(0), "the server will begin it all the same"
    pair.send(*pair.core.interrupt(log))
    pair.talk.add(text_item("Hello"))
    pair.send(respond)
    assert log.has_more(0)
    assert pair.running == [log.response_id]
    pair.send(*pair.core.interrupt(log))
    assert (pair.running, log.status) == ([], "cancelled")
    again = new_answer()
    frames = pair.core.ask(again, "And now?")
    pair.send(*frames)
    assert pair.running == [again.response_id]
    assert pair.core.num_unfinished == 1


def test_the_answer_of_somebody_else_goes_on() -> None:
    pair = Pair()
    pair.talk.add(text_item("Hello"))
    others = pair.talk.respond()
    pair.read()
    log = new_answer()
    (create, respond) = pair.core.ask(log, "What is it?", [b"no picture"])
    pair.send(create)
    pair.refuse_picture(log)
    assert not log.has_more(0)
    pair.send(respond)
    assert log.has_more(0)
    assert log.error is not None
    assert log.error.code == "invalid_media", "the first reason counts"
    assert pair.core.interrupt(log) == []
    assert pair.running == [others]


def test_an_answer_is_over_once_the_wish_for_it_is_refused() -> None:
    """Not with the refusal of its question, which comes before."""
    pair = Pair()
    log = new_answer()
    frames = pair.core.ask(log, "?", temperature=9.0)
    errors = [
        {"event_id": msgspec.json.decode(frame)["event_id"], "code": code, "message": code}
        for frame, code in zip(frames, ("invalid_item", "invalid_value"), strict=True)
    ]
    for error in errors:
        assert not log.has_more(0), "its answer may still begin"
        pair.core.receive(json.dumps({"type": "error", "error": {"type": "e", **error}}))
    assert log.has_more(0)
    assert pair.core.interrupt() == []
    assert pair.core.num_unfinished == 0


def test_a_call_that_an_interruption_cut_off_is_not_to_be_made() -> None:
    pair = Pair()
    log = new_answer()
    pair.send(*pair.core.ask(log, "?", tools=[{"type": "function", "name": "look"}]))
    pair.talk.begin()
    pair.talk.call("look", "{}", call_id="whole")
    pair.talk.call("look", '{"at": "do', call_id="cut")
    pair.talk.speak(800)
    pair.read()
    assert log.status == "cancelled"
    assert [call.call_id for call in AnswerState(log).calls] == ["whole"]
