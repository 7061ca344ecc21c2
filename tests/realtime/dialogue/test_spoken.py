"""Scripted conversations by voice: turns become items, are answered, and interrupt."""

from __future__ import annotations

from support.talks import Talk, said


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


def test_a_turn_comes_behind_the_items_before_it() -> None:
    talk = Talk()
    item = talk.add(said("look"))
    speak(talk)
    assert talk.of("committed")[0]["previous_item_id"] == item
