"""A camera whose frames are looked at late, among items that come and go: what is forgotten is not used.

`test_dialogue_machine.py` has all that a session may be told; here it is little, so that its orders are many.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sensorium.protocols.errors import InternalError
from support.camera_dialogs import Watch
from support.conversation_dialogs import text_item


class VideoMachine(RuleBasedStateMachine):
    """Frames, pairs, questions, and what a client may do to what is seen."""

    def __init__(self) -> None:
        super().__init__()
        video = {"max_fps": 2.0, "retention_s": 3.0, "retention_tokens": 50, "max_waiting": 6}
        self.talk = Watch(is_slow=True, bounds={"max_items": 6}, **video)

    @rule(shade=st.sampled_from([0, 2, 200]), after_ms=st.sampled_from([500, 500, 500, 3000]))
    def film(self, shade: int, after_ms: int) -> None:
        self.talk.show(shade, after_ms=after_ms)

    @rule(
        most=st.integers(1, 3),
        width=st.sampled_from([64, 64, 32]),
        breaks=st.sampled_from([False, False, True]),
    )
    def look(self, most: int, width: int, breaks: bool) -> None:
        self.talk.catch_up((width, 48), breaks=breaks, most=most)

    @rule()
    def add_text(self) -> None:
        self.talk.client({"type": "conversation.item.create", "item": text_item("?")})

    @rule(kind=st.sampled_from(["commit", "clear"]))
    def cut(self, kind: str) -> None:
        self.talk.client({"type": f"input_image_buffer.{kind}"})

    @precondition(lambda self: self.talk.items)
    @rule(index=st.integers(0, 5))
    def delete(self, index: int) -> None:
        items = self.talk.items
        self.talk.client({"type": "conversation.item.delete", "item_id": items[index % len(items)].id})

    @rule(refers=st.booleans())
    def respond(self, refers: bool) -> None:
        response: dict[str, object] = {}
        if refers:
            names = [item.id for item in self.talk.items]
            given = [{"type": "item_reference", "id": name} for name in names]
            response = {"conversation": "none", "input": [*given, text_item("!")]}
        self.talk.client({"type": "response.create", "response": response})

    @precondition(lambda self: self.talk.questions)
    @rule(ends=st.booleans())
    def answer(self, ends: bool) -> None:
        name = next(iter(self.talk.questions))
        if ends:
            self.talk.begin(name)
            self.talk.end(name)
        else:
            self.talk.break_off(InternalError("broken"), name)

    @invariant()
    def laws(self) -> None:
        self.talk.check_responses()
        self.talk.check_pairs()

    def teardown(self) -> None:
        """Once everything was looked at, nothing waits."""
        self.talk.catch_up()
        while self.talk.questions:
            self.talk.break_off(InternalError("broken"), next(iter(self.talk.questions)))
            self.talk.catch_up()
        assert not any(item.waits for item in self.talk.items)
        assert self.talk.session.dialogue is not None
        assert self.talk.session.dialogue.is_idle


TestVideoMachine = VideoMachine.TestCase
TestVideoMachine.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
