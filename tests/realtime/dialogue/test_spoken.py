"""Scripted conversations by voice: turns become items, are answered, and interrupt."""

from __future__ import annotations

import msgspec
import pytest
from sensorium.protocols.errors import UnavailableError
from support.conversation_dialogs import Talk, shown, text_item, usage


def speak(talk: Talk, words: str = "how many") -> None:
    """A whole turn, with its transcript."""
    talk.speak(800, words)
    talk.silence(700, words)


def test_a_turn_is_answered_when_its_transcript_is_there() -> None:
    talk = Talk()
    talk.speak(800)
    talk.silence(700)
    assert talk.of("committed")
    assert not talk.of("response.created")
    talk.answer("how many")
    assert talk.prompt() == [("user", "how many")]
    talk.reply("three")
    item = talk.of("committed")[0]["item_id"]
    talk.client({"type": "conversation.item.retrieve", "item_id": item})
    assert talk.sent[-1]["item"]["content"] == [{"type": "input_audio", "transcript": "how many"}]
    talk.check_responses()


def test_speech_without_words_is_no_question() -> None:
    talk = Talk()
    speak(talk, "")
    assert talk.of("completed")
    assert not talk.of("response.created")


def test_create_response_and_interrupt_response_can_be_switched_off() -> None:
    talk = Talk()
    talk.update({"turn_detection": {"type": "server_vad", "create_response": False}})
    speak(talk)
    assert not talk.of("response.created")
    switched = {"type": "server_vad", "create_response": None, "interrupt_response": False}
    talk.update({"turn_detection": switched})
    response = talk.respond()
    talk.begin()
    speak(talk, "and now")
    assert not talk.stopped
    talk.end(response)
    assert talk.prompt()[-1] == ("user", "and now")


def test_a_client_that_commits_asks_itself() -> None:
    talk = Talk(detection=False)
    talk.speak(800, "how many")
    talk.commit()
    talk.respond()
    assert not talk.questions
    talk.answer("how many")
    assert talk.prompt() == [("user", "how many")]


def test_barge_in_ends_the_answer_and_tells_what_had_been_said() -> None:
    talk = Talk()
    speak(talk)
    talk.begin()
    talk.grow("There are three")
    talk.read()
    talk.speak(200, "wait")
    names = talk.names()
    assert names[0] == "speech_started"
    assert names[-1] == "response.done" or "response.done" in names
    done = talk.of("response.done")[-1]["response"]
    assert (done["status"], done["status_details"]["reason"]) == ("cancelled", "turn_detected")
    assert done["output"][0]["content"][0]["text"] == "There are three"
    assert len(talk.stopped) == 1
    talk.speak(400, "wait")
    talk.silence(700, "wait")
    assert [who for who, _ in talk.prompt()] == ["user", "assistant", "user"]


def test_an_answer_that_is_cut_off_tells_what_was_read_and_written() -> None:
    talk = Talk()
    speak(talk)
    talk.begin(num_tokens=40)
    talk.count(40, 1)
    talk.grow("There")
    talk.count(40, 3)
    talk.grow(" are three")
    talk.speak(200, "wait")
    talk.silence(700, "wait")
    talk.begin(num_tokens=50)
    talk.break_off(UnavailableError("gone"))
    talk.read()
    talk.respond()
    talk.break_off(UnavailableError("gone"))
    cut, broken, unread = [event["response"] for event in talk.of("response.done")]
    assert (cut["status"], cut["usage"]) == ("cancelled", msgspec.to_builtins(usage(40, 3)))
    assert (broken["status"], broken["usage"]) == ("failed", msgspec.to_builtins(usage(50, 0)))
    assert (unread["status"], unread["usage"]) == ("failed", None)


def test_a_turn_comes_behind_the_items_before_it() -> None:
    talk = Talk()
    item = talk.add(text_item("look"))
    speak(talk)
    assert talk.of("committed")[0]["previous_item_id"] == item


def test_the_id_of_a_turn_is_taken_from_its_beginning_to_its_words() -> None:
    talk = Talk()
    talk.speak(800)
    turn = talk.of("speech_started")[0]["item_id"]
    create = {"type": "conversation.item.create", "item": text_item("mine", id=turn)}
    talk.client(create)
    assert talk.error()["code"] == "item_already_exists"
    talk.silence(700)
    talk.client({"type": "conversation.item.delete", "item_id": turn})
    talk.client(create)
    assert talk.error()["code"] == "item_already_exists"
    talk.answer("how many")
    assert talk.add(text_item("mine", id=turn)) == turn
    assert not talk.of("response.created"), "of a turn that was deleted"


def test_a_turn_comes_behind_an_item_that_stays_however_full_the_conversation_is() -> None:
    talk = Talk(dialogue={"max_items": 4})
    talk.update({"turn_detection": {"type": "server_vad", "create_response": False}})
    for _ in range(4):
        talk.client({"type": "conversation.item.create", "item": shown("?")})
    for _ in range(2):
        talk.speak(800)
        talk.silence(700)
    for event in talk.of("committed"):
        talk.answer("how many", item_id=event["item_id"])
    speak(talk)
    announced: list[str] = []
    for event in talk.sent:
        match event["type"]:
            case "conversation.item.added":
                assert not announced or event["previous_item_id"] in announced
                announced.append(event["item"]["id"])
            case "conversation.truncated":
                announced = [item_id for item_id in announced if item_id not in event["item_ids"]]
    assert talk.session.dialogue is not None
    assert announced == [item.id for item in talk.session.dialogue.items]


def test_what_waits_for_its_words_does_not_make_room() -> None:
    talk = Talk(dialogue={"max_items": 3})
    talk.speak(800)
    talk.silence(700)
    older = talk.add(text_item("look"))
    talk.add(text_item("there"))
    talk.speak(800)
    talk.silence(700)
    assert [event["item_ids"] for event in talk.of("conversation.truncated")] == [[older]]


def test_a_turn_that_was_never_ended_takes_no_id() -> None:
    talk = Talk()
    talk.speak(800)
    turn = talk.of("speech_started")[0]["item_id"]
    talk.client({"type": "input_audio_buffer.clear"})
    assert talk.add(text_item("mine", id=turn)) == turn


def test_a_deleted_turn_has_no_older_one_answered_again() -> None:
    talk = Talk()
    speak(talk)
    talk.reply("three")
    talk.speak(800)
    talk.silence(700)
    talk.client({"type": "conversation.item.delete", "item_id": talk.of("committed")[-1]["item_id"]})
    talk.answer("and now")
    assert len(talk.of("response.created")) == 1


def test_who_asks_for_the_answer_gets_one() -> None:
    talk = Talk()
    talk.speak(800)
    talk.silence(700)
    response = talk.respond()
    talk.answer("how many")
    talk.reply("three", response_id=response)
    assert not talk.questions
    assert len(talk.of("response.done")) == 1


def test_a_noise_behind_a_question_does_not_end_it() -> None:
    talk = Talk()
    talk.update({"turn_detection": {"type": "server_vad", "interrupt_response": False}})
    speak(talk)
    talk.begin()
    speak(talk, "and now")
    speak(talk, "")
    talk.end()
    assert talk.prompt()[-1] == ("user", "and now")


@pytest.mark.parametrize("how_far", ["asked", "begun", "asked for by the client"])
def test_a_noise_before_the_first_word_does_not_end_a_question(how_far: str) -> None:
    talk = Talk()
    if how_far == "asked for by the client":
        talk.speak(800, "how many")
        talk.silence(600)
        talk.respond()
        talk.silence(100, "how many")
    else:
        speak(talk)
    if how_far == "begun":
        talk.begin()
    speak(talk, "")
    assert [event["response"]["status"] for event in talk.of("response.done")] == ["cancelled"]
    assert talk.prompt() == [("user", "how many")]
    talk.reply("three")
    speak(talk, "")
    assert len(talk.of("response.created")) == 2
    talk.check_responses()


@pytest.mark.parametrize("text_item", ["a word", "a call"])
def test_a_noise_in_an_answer_ends_it(text_item: str) -> None:
    talk = Talk(dialogue={"calls_tools": True})
    talk.configure(tools=[{"type": "function", "name": "look"}])
    speak(talk)
    talk.begin()
    if text_item == "a word":
        talk.grow("There")
    else:
        talk.call("look", "{}")
    speak(talk, "")
    assert not talk.questions


def test_a_question_is_answered_whatever_begins_while_its_words_are_awaited() -> None:
    for is_cleared in (False, True):
        talk = Talk()
        talk.speak(800)
        talk.silence(700)
        talk.speak(300)
        talk.answer("how many", item_id=talk.of("committed")[0]["item_id"])
        assert not talk.questions, "somebody speaks"
        if is_cleared:
            talk.client({"type": "input_audio_buffer.clear"})
        else:
            talk.silence(700)
            talk.answer("")
        assert talk.prompt() == [("user", "how many")]


def test_a_commit_where_nobody_speaks_leaves_the_turn_before_it_to_be_answered() -> None:
    talk = Talk()
    talk.speak(800)
    talk.silence(700)
    talk.commit()
    assert len(talk.of("committed")) == 2
    talk.answer("how many")
    assert talk.prompt() == [("user", "how many")]
    talk.reply("three")
    talk.silence(700)
    talk.commit()
    assert not talk.questions


def test_a_client_that_commits_behind_a_turn_asks_for_both() -> None:
    for detection in ({"type": "server_vad"}, None):
        talk = Talk()
        talk.speak(800)
        talk.silence(700)
        talk.speak(800)
        talk.update({"turn_detection": detection})
        talk.answer("how many", item_id=talk.of("committed")[0]["item_id"])
        talk.commit()
        response = talk.respond()
        talk.answer("are there")
        assert talk.prompt(response) == [("user", "how many"), ("user", "are there")]
