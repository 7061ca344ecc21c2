"""Random conversations: whatever comes in whatever order, the laws of responses and items hold."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sensorium.protocols.errors import BadRequestError, InternalError, MediaError
from sensorium.realtime.dialogue.effects import HasReadAhead, ReadAhead
from sensorium.realtime.events import ClientReturned
from support.camera_dialogs import Watch
from support.conversation_dialogs import shown, text_item

NAMES = st.sampled_from(["a", "b", "c", "d"])
TOO_LONG = BadRequestError("too long", code="context_length_exceeded")


class DialogueMachine(RuleBasedStateMachine):
    """A client, a model and a microphone that do what they like."""

    def __init__(self) -> None:
        super().__init__()
        video = {"max_fps": 2.0, "retention_s": 4.0, "retention_tokens": 50, "max_waiting": 4}
        bounds = {"max_items": 6, "max_responses": 3, "max_media_bytes": 40, "calls_tools": True}
        self.talk = Watch(is_slow=True, bounds=bounds, **video)
        self.talk.reads_ahead = False

    @precondition(lambda self: self.is_open())
    @rule(calls=st.booleans())
    def configure(self, calls: bool) -> None:
        self.talk.configure(tools=[{"type": "function", "name": "look"}] if calls else None)

    @precondition(lambda self: self.is_open())
    @rule(name=NAMES, call_id=NAMES, gives=st.booleans())
    def create_call(self, name: str, call_id: str, gives: bool) -> None:
        item: dict[str, object] = {"id": name, "call_id": call_id}
        if gives:
            item |= {"type": "function_call_output", "output": "!"}
        else:
            item |= {"type": "function_call", "name": "look", "arguments": "{}"}
        self.talk.client({"type": "conversation.item.create", "item": item})

    def is_open(self) -> bool:
        return self.talk.closed is None

    @precondition(is_open)
    @rule(name=NAMES, after=st.none() | NAMES | st.just("root"), is_shown=st.booleans())
    def create(self, name: str, after: str | None, is_shown: bool) -> None:
        item = shown("?", id=name) if is_shown else text_item(name, id=name)
        fields = {} if after is None else {"previous_item_id": after}
        self.talk.client({"type": "conversation.item.create", "item": item, **fields})

    @precondition(is_open)
    @rule(name=NAMES, kind=st.sampled_from(["delete", "retrieve"]))
    def touch(self, name: str, kind: str) -> None:
        self.talk.client({"type": f"conversation.item.{kind}", "item_id": name})

    @precondition(is_open)
    @rule(index=st.integers(0, 5))
    def delete(self, index: int) -> None:
        """Any item, clips and answers among them."""
        if items := self.talk.items:
            self.talk.client({"type": "conversation.item.delete", "item_id": items[index % len(items)].id})

    @precondition(is_open)
    @rule(end=st.integers(0, 9), index=st.integers(0, 5))
    def truncate(self, end: int, index: int) -> None:
        assert self.talk.session.dialogue is not None
        items = [item.id for item in self.talk.session.dialogue.items]
        if items:
            frame = {"type": "conversation.item.truncate", "item_id": items[index % len(items)]}
            self.talk.client({**frame, "content_index": 0, "audio_end_ms": 0, "text_end": end})

    @precondition(is_open)
    @rule(
        is_out_of_band=st.booleans(),
        gives=st.sampled_from(["nothing", "text", "picture", "reference", "video"]),
    )
    def respond(self, is_out_of_band: bool, gives: str) -> None:
        response: dict[str, object] = {"conversation": "none"} if is_out_of_band else {}
        match gives:
            case "text":
                response["input"] = [text_item("!")]
            case "picture":
                response["input"] = [shown("!")]
            case "reference":
                response["input"] = [{"type": "item_reference", "id": "a"}]
            case "video":
                clips = [item.id for item in self.talk.items if item.clip is not None]
                response["input"] = [{"type": "item_reference", "id": name} for name in clips] + [shown("!")]
            case _:
                pass
        self.talk.client({"type": "response.create", "response": response})

    @precondition(is_open)
    @rule(is_named=st.booleans())
    def cancel(self, is_named: bool) -> None:
        names = list(self.talk.questions) or ["none"]
        self.talk.client({"type": "response.cancel", **({"response_id": names[0]} if is_named else {})})

    @precondition(lambda self: self.is_open() and self.talk.opening)
    @rule(is_damaged=st.booleans())
    def open_picture(self, is_damaged: bool) -> None:
        name = next(iter(self.talk.opening))
        self.talk.opened(name, MediaError("damaged") if is_damaged else None)

    @precondition(lambda self: self.is_open() and self.talk.questions)
    @rule(how=st.sampled_from(["begin", "grow", "grow", "call", "end", "cut", "fail", "too long"]), to=NAMES)
    def answer(self, how: str, to: str) -> None:
        assert self.talk.session.dialogue is not None
        name = next(iter(self.talk.questions))
        has_begun = self.talk.session.dialogue.responses[name].has_begun
        match how:
            case "fail":
                self.talk.break_off(InternalError("broken"), name)
            case "too long" if not has_begun:
                self.talk.break_off(TOO_LONG, name)
            case _ if not has_begun:
                self.talk.begin(name)
            case "call" if self.talk.questions[name].settings.tools.use.tools:
                self.talk.call("look", '{"at"', ": 1}", call_id=to, response_id=name)
            case "end" | "cut":
                self.talk.end(name, is_cut=how == "cut")
            case _:
                self.talk.grow("word ", name)

    @precondition(is_open)
    @rule(shade=st.integers(0, 255), after_ms=st.sampled_from([100, 500, 3000]))
    def film(self, shade: int, after_ms: int) -> None:
        self.talk.show(shade, after_ms=after_ms)

    @precondition(is_open)
    @rule(width=st.sampled_from([64, 64, 64, 128]), breaks=st.sampled_from([False, False, True]))
    def look(self, width: int, breaks: bool) -> None:
        self.talk.catch_up((width, 48), breaks=breaks)

    @precondition(is_open)
    @rule(shade=st.sampled_from([0, 200]), most=st.integers(0, 2))
    def look_slowly(self, shade: int, most: int) -> None:
        """Another frame comes while the ones before are still looked at."""
        self.talk.show(shade)
        self.talk.catch_up(most=most)

    @precondition(is_open)
    @rule(is_late=st.booleans())
    def read_ahead(self, is_late: bool) -> None:
        """What will stay was read, by the newest plan or by one that is over."""
        reads = [effect for effect in self.talk.effects if isinstance(effect, ReadAhead)]
        if reads:
            self.talk.receive(HasReadAhead(reads[0 if is_late else -1].plan))

    @precondition(is_open)
    @rule(number=st.integers(2, 9))
    def film_on(self, number: int) -> None:
        """Frames one after the other, looked at as they come."""
        for index in range(number):
            self.talk.show(40 + 60 * (index % 2))
            self.talk.catch_up()

    @precondition(is_open)
    @rule()
    def come_back(self) -> None:
        """The client was lost, and has gone on with another socket."""
        self.talk.receive(ClientReturned())

    @precondition(is_open)
    @rule(kind=st.sampled_from(["commit", "clear"]))
    def cut(self, kind: str) -> None:
        self.talk.client({"type": f"input_image_buffer.{kind}"})

    @precondition(is_open)
    @rule(speaks=st.booleans(), transcript=st.sampled_from([None, "", "one two"]))
    def listen(self, speaks: bool, transcript: str | None) -> None:
        (self.talk.speak if speaks else self.talk.silence)(700, transcript)

    @precondition(lambda self: self.is_open() and self.talk.pending)
    @rule()
    def transcribe(self) -> None:
        self.talk.answer("one two", item_id=next(iter(self.talk.pending)))

    @rule(seconds=st.sampled_from([1.0, 400.0]))
    def wait(self, seconds: float) -> None:
        self.talk.wait(seconds)

    @precondition(is_open)
    @rule(frame=st.sampled_from(["{}", "nonsense", json.dumps({"type": "response.create", "response": 1})]))
    def garbage(self, frame: str) -> None:
        self.talk.client(frame)

    @invariant()
    def laws(self) -> None:
        self.talk.check_responses()
        self.talk.check_pairs()
        if self.talk.closed is not None:
            assert not self.talk.questions

    def teardown(self) -> None:
        """Everything that waits is answered: then nothing is in progress."""
        talk = self.talk
        for _ in range(50):
            talk.catch_up()
            if talk.closed is not None:
                break
            if talk.opening:
                talk.opened(next(iter(talk.opening)))
            elif talk.pending:
                talk.answer("", item_id=next(iter(talk.pending)))
            elif talk.questions:
                talk.break_off(InternalError("broken"), next(iter(talk.questions)))
            elif talk.session.conversation.open is not None:
                talk.silence(1000)
            else:
                break
        assert talk.session.dialogue is not None
        assert talk.session.dialogue.is_idle
        created = [event["response"]["id"] for event in talk.of("response.created")]
        assert sorted(created) == sorted(event["response"]["id"] for event in talk.of("response.done"))


TestDialogueMachine = DialogueMachine.TestCase
TestDialogueMachine.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
