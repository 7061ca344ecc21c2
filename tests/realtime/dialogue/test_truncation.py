"""Scripted long talks: what goes for want of room, when, and that a question finds the rest computed."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import pytest
from sensorium.protocols.errors import BadRequestError
from sensorium.realtime.dialogue.effects import HasReadAhead, ReadAhead, Respond
from support.camera_dialogs import TOKENS, Watch
from support.conversation_dialogs import text_item

CONTEXT = 400
BOUND = CONTEXT - CONTEXT // 4
"""What an answer leaves of it."""
MARKS = 16
"""Characters that a message or a pair is beside its words, in this model and in the estimate."""
WORDS = "x" * (25 - MARKS)
"""A message of 25 tokens: a question and its answer are 50."""


class LongTalk(Watch):
    """Its model counts a token for each character (of "%", three), and refuses prompts that leave too little
    room."""

    def __init__(self, *, bounds: dict[str, object] | None = None, **video: Any) -> None:  # noqa: ANN401
        super().__init__(bounds={"max_context": CONTEXT, **(bounds or {})}, **video)
        self.reads_ahead = False
        self.known: list[list[str]] = []
        """Prompts that were read."""
        self.num_new: list[int] = []
        """Messages of each question that were not."""
        self.num_tokens = 0
        """Of the newest prompt."""
        self.num_refused = 0

    def turn(self, words: str = WORDS) -> None:
        """A question and its answer, if there is one."""
        self.add(text_item(words))
        self.respond_again()

    def respond_again(self) -> None:
        """An answer to all there is, if there is one."""
        self.respond()
        while self.questions:
            pending = self.current_request()
            messages, clips = written(pending), [pair for clip in pending.clips for pair in clip.pairs]
            self.num_tokens = sum(len(each) + 2 * each.count("%") + MARKS for each in messages)
            self.num_tokens += len(clips) * (MARKS + TOKENS)
            if self.num_tokens >= CONTEXT or (pending.max_tokens or CONTEXT) < self.num_tokens:
                self.num_refused += 1
                self.break_off(BadRequestError("too long", code="context_length_exceeded"))
                continue
            self.num_new.append(len(messages) - max((common(one, messages) for one in self.known), default=0))
            self.known.append([*messages, WORDS])
            self.reply(WORDS, num_tokens=self.num_tokens)

    @property
    def ahead(self) -> list[ReadAhead]:
        """What was to be read of what will stay."""
        return [effect for effect in self.effects if isinstance(effect, ReadAhead)]

    def idle(self) -> None:
        """Nobody asks: what will stay is read."""
        if self.ahead:
            self.known.append(written(self.ahead[-1]))
            self.receive(HasReadAhead(self.ahead[-1].plan))

    @property
    def dropped(self) -> list[str]:
        """Items, as the client was told."""
        return [name for event in self.of("conversation.truncated") for name in event["item_ids"]]


def written(pending: Respond | ReadAhead) -> list[str]:
    """The messages of a prompt; clips are empty."""
    contents = [message.content for message in pending.conversation.messages]
    return [
        content if isinstance(content, str) else "".join(getattr(part, "text", "") for part in content or ())
        for content in contents
    ]


def common(one: list[str], other: list[str]) -> int:
    """Messages that both begin with."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def test_near_the_bound_the_oldest_go_once_the_rest_was_read_without_them() -> None:
    talk = LongTalk()
    for index in range(6):
        # Six turns are the bound; seven eighths of it are passed by the sixth.
        assert not talk.ahead
        talk.turn(f"{index}{WORDS[1:]}")
    items = [item.id for item in talk.items]
    assert talk.num_tokens + 25 == BOUND
    assert written(talk.ahead[-1]) == [f"3{WORDS[1:]}", WORDS, f"4{WORDS[1:]}", WORDS, f"5{WORDS[1:]}", WORDS]
    assert not talk.dropped
    talk.receive(HasReadAhead(talk.ahead[-1].plan - 1))
    assert not talk.dropped, "by a plan that is over"
    talk.idle()
    assert talk.dropped == items[:6]
    talk.turn()
    assert (talk.num_new[-1], talk.num_refused) == (1, 0)
    talk.check_responses()


def test_what_is_not_read_in_time_goes_when_there_is_no_room() -> None:
    talk = LongTalk()
    for index in range(7):
        talk.turn(f"{index}{WORDS[1:]}")
    assert len(talk.dropped) == 6
    assert talk.num_new[-1] == 3 * 2 + 1, "all that is left was read anew"
    assert len(talk.items) == 8
    talk.idle()
    assert len(talk.dropped) == 6, "by a plan that is over"


def test_hours_of_questions() -> None:
    """Prompts stay between half of the bound and all of it, and each question costs its own message."""
    talk = LongTalk()
    sizes = []
    for index in range(400):
        talk.turn(f"{index:03}{WORDS[3:]}")
        talk.idle()
        sizes.append(talk.num_tokens)
    assert talk.num_refused == 0
    assert max(sizes) <= BOUND
    assert min(sizes[6:]) >= BOUND // 2
    assert max(talk.num_new) == 1
    assert len(talk.dropped) == len(set(talk.dropped)) >= 800 - len(talk.items)


@pytest.mark.parametrize("every", [1, 3])
def test_hours_of_video_and_questions(every: int) -> None:
    talk = LongTalk(retention_s=4.0)
    for index in range(300):
        for _ in range(4):
            talk.show(10 + 60 * (talk.time_ms // 500 % 2))
            talk.idle()
        if index % every == 0:
            talk.turn()
            talk.idle()
        assert talk.num_tokens <= BOUND
    assert talk.num_refused == 0
    assert max(talk.num_new) <= 2, "its own message and the clip before it"
    assert talk.dropped
    talk.check_pairs()


def test_a_share_and_a_bound_of_the_clients_own() -> None:
    talk = LongTalk()
    limits = {"post_instructions": 150}
    talk.configure(
        instructions="x" * 50,
        truncation={"type": "retention_ratio", "retention_ratio": 0.7, "token_limits": limits},
    )
    shown = talk.of("session.updated")[-1]["session"]["truncation"]
    assert shown == {"type": "retention_ratio", "retention_ratio": 0.7, "token_limits": limits}
    for _ in range(20):
        talk.turn()
        talk.idle()
        assert talk.num_tokens <= 150 + 50 + MARKS
    assert talk.num_refused == 0
    assert len(talk.items) in (4, 6), "0.7 of 150 are two turns"


def test_without_truncation_nothing_goes_and_the_question_fails() -> None:
    talk = LongTalk()
    talk.configure(truncation="disabled")
    for _ in range(9):
        talk.turn()
    assert not talk.ahead
    assert not talk.dropped
    error = talk.of("response.done")[-1]["response"]["status_details"]["error"]
    assert error["code"] == "context_length_exceeded"


def test_one_item_that_leaves_little_room_is_answered_and_one_that_leaves_none_is_not() -> None:
    talk = LongTalk()
    talk.turn("x" * (BOUND + 10))
    assert talk.of("response.done")[-1]["response"]["status"] == "completed"
    talk.turn("x" * CONTEXT)
    error = talk.of("response.done")[-1]["response"]["status_details"]["error"]
    assert error["code"] == "context_length_exceeded"
    talk.client({"type": "conversation.item.delete", "item_id": talk.items[-1].id})
    talk.turn()
    assert talk.of("response.done")[-1]["response"]["status"] == "completed"


@pytest.mark.parametrize(("words", "num_refused"), [("x" * 200, 0), ("%" * 67, 1)])
def test_a_long_item_drops_what_was_before_it(words: str, num_refused: int) -> None:
    """Also one that is longer than it looks."""
    talk = LongTalk()
    for _ in range(4):
        talk.turn()
    talk.turn(words)
    assert talk.num_refused == num_refused
    assert talk.dropped
    assert talk.of("response.done")[-1]["response"]["status"] == "completed"
    assert talk.num_tokens <= BOUND


@pytest.mark.parametrize("num_rounds", [1, 6])
@pytest.mark.parametrize("given", ["%" * 67, "x" * 200])
def test_what_calls_gave_goes_with_them_and_the_question(given: str, num_rounds: int) -> None:
    """Also where that alone is more than is kept."""
    talk = LongTalk(bounds={"calls_tools": True})
    talk.configure(tools=[{"type": "function", "name": "look"}])
    for _ in range(4):
        talk.turn()
    talk.add(text_item("Where?"))
    for index in range(num_rounds):
        talk.respond()
        talk.begin()
        for each in "ab":
            talk.call("look", "{}", call_id=f"{each}{index}")
        talk.end()
        talk.add({"type": "function_call_output", "call_id": f"a{index}", "output": "short"})
        talk.add({"type": "function_call_output", "call_id": f"b{index}", "output": given})
    talk.respond_again()
    assert talk.of("response.done")[-1]["response"]["status"] == "completed"
    assert talk.dropped
    assert talk.known[-1][:-1] == ["Where?", "", "short", given]


def test_to_keep_all_that_fits_is_to_drop_what_does_not() -> None:
    """A prompt proves longer than it was taken for, though as much is to be kept as may be."""
    talk = LongTalk()
    talk.configure(truncation={"type": "retention_ratio", "retention_ratio": 1.0})
    for _ in range(4):
        talk.turn("%" * 20)
    assert talk.dropped
    assert {event["response"]["status"] for event in talk.of("response.done")} == {"completed"}


def test_a_talk_of_many_items_does_not_fill_up() -> None:
    talk = LongTalk(bounds={"max_context": 100_000, "max_items": 12})
    for index in range(40):
        talk.show(10 + 60 * (index % 2))
        talk.show(20 + 60 * (index % 2))
        talk.turn()
        talk.idle()
    assert not talk.of("error")
    assert max(talk.num_new) <= 2


def test_a_client_says_less_than_nothing() -> None:
    talk = LongTalk()
    for limits in ({"post_instructions": 0}, {"post_instructionz": 1}, {"post_instructions": "1"}):
        talk.read()
        talk.configure(truncation={"type": "retention_ratio", "retention_ratio": 0.5, "token_limits": limits})
        assert "truncation.token_limits" in (talk.error()["param"] or "")
    talk.configure(truncation={"type": "retention_ratio", "retention_ratio": 1.5})
    assert talk.error()["param"] == "session.truncation.retention_ratio"
