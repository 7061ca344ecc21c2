"""Scripted conversations with a session that answers."""

from __future__ import annotations

import pytest
from sensorium.protocols.chat.content import MediaPart
from sensorium.protocols.errors import BadRequestError, InternalError, MediaError
from sensorium.realtime.events import DrainStarted
from support.conversation_dialogs import PICTURE, Talk, shown, text_item

TOO_LONG = BadRequestError("too long", code="context_length_exceeded")


def test_a_session_greets_with_what_it_is() -> None:
    talk = Talk()
    (created,) = talk.sent  # Open WebUI hangs up if the answer to its update is not the very next event
    assert created["type"] == "session.created"
    assert (created["session"]["type"], created["session"]["model"]) == ("realtime", "seer")
    transcription = created["session"]["audio"]["input"]["transcription"]
    assert transcription == {"model": "small", "language": None, "prompt": None}, (
        "Pipecat reads no other fields"
    )


def test_who_asks_for_spoken_answers_gets_text_and_the_rest_of_the_update() -> None:
    pending = {"output_modalities": ["audio"], "instructions": "Be brief."}
    talk = Talk()
    talk.client({"type": "session.update", "session": {"type": "realtime", **pending}})
    updated = talk.sent[-1]["session"]
    assert (updated["output_modalities"], updated["instructions"]) == (["text"], "Be brief.")
    talk.client({"type": "response.create", "response": pending})
    talk.reply("Yes.")
    assert talk.sent[-1]["response"]["output_modalities"] == ["text"]


def test_a_question_and_its_answer_in_order() -> None:
    talk = Talk()
    question = talk.add(text_item("How many?"))
    talk.client({"type": "response.create"})
    assert talk.prompt() == [("user", "How many?")]
    talk.reply("Three", " cats.", num_tokens=5)
    assert talk.names() == [
        "response.created",
        "rate_limits.updated",
        "response.output_item.added",
        "added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "done",
        "response.output_item.done",
        "response.done",
    ]
    done = talk.sent[-1]["response"]
    assert (done["status"], done["usage"]["input_token_details"]["text_tokens"]) == ("completed", 5)
    answer = done["output"][0]
    assert answer["content"] == [{"type": "output_text", "text": "Three cats."}]
    (added,) = [event for event in talk.of("added") if event["item"]["id"] == answer["id"]]
    assert added["previous_item_id"] == question
    talk.check_responses()


def test_the_conversation_goes_on_with_instructions_and_places() -> None:
    talk = Talk()
    talk.configure(instructions="Be brief.")
    last = talk.add(text_item("last"))
    talk.add(text_item("first", "system"), previous_item_id="root")
    talk.add(text_item("before"), previous_item_id=talk.of("added")[-1]["item"]["id"])
    talk.client({"type": "conversation.item.delete", "item_id": last})
    talk.respond(instructions="Shout.")
    assert talk.prompt() == [("system", "Shout."), ("system", "first"), ("user", "before")]
    talk.reply("OK")
    talk.respond()
    assert talk.prompt()[0] == ("system", "Be brief.")
    assert talk.prompt()[-1] == ("assistant", "OK")


def test_a_picture_is_waited_for_and_a_damaged_one_is_forgotten() -> None:
    talk = Talk()
    talk.client({"type": "conversation.item.create", "item": shown("What is it?", id="seen")})
    talk.client({"type": "conversation.item.create", "item": shown("And this?", id="broken")})
    talk.respond()
    assert not talk.questions
    talk.opened("seen")
    talk.opened("broken", MediaError("damaged", param="broken.content[0]"))
    assert talk.error() == {
        "type": "invalid_request_error",
        "code": "invalid_media",
        "message": "damaged",
        "param": "broken.content[0]",
    }
    assert talk.of("conversation.item.deleted")[-1]["item_id"] == "broken"
    assert talk.prompt() == [("user", "[picture]What is it?")]
    part = (talk.current_request().conversation.messages[0].content or ())[0]
    assert (getattr(part, "data", b""), getattr(part, "param", "")) == (b"a picture", "seen.content[0]")


def test_pictures_are_not_sent_back() -> None:
    talk = Talk()
    item = talk.add(shown("?"))
    talk.client({"type": "conversation.item.retrieve", "item_id": item})
    (retrieved,) = talk.read()
    assert retrieved["item"]["content"][0] == {"type": "input_image", "detail": "auto"}


@pytest.mark.parametrize("detail", ["auto", "low", "high"])
def test_a_picture_is_looked_at_in_its_detail(detail: str) -> None:
    talk = Talk()
    pending = shown("?")
    pending["content"][0]["detail"] = detail
    item = talk.add(pending)
    talk.client({"type": "conversation.item.retrieve", "item_id": item})
    (retrieved,) = talk.read()
    assert retrieved["item"]["content"][0] == {"type": "input_image", "detail": detail}
    talk.respond()
    assert talk.prompt() == [("user", "[picture]?")]
    part = (talk.current_request().conversation.messages[0].content or ())[0]
    assert isinstance(part, MediaPart)
    assert part.is_low == (detail == "low")


def test_out_of_band_responses_leave_no_trace() -> None:
    talk = Talk()
    talk.add(text_item("hello"))
    inside = talk.respond()
    out_of_band = talk.respond(
        conversation="none", input=[text_item("Classify.")], metadata={"topic": "a"}, max_output_tokens=5
    )
    assert talk.prompt(out_of_band) == [("user", "Classify.")]
    assert talk.questions[out_of_band].is_out_of_band
    talk.reply("spam", response_id=out_of_band)
    done = talk.sent[-1]["response"]
    assert (done["conversation_id"], done["metadata"]) == (None, {"topic": "a"})
    assert (done["max_output_tokens"], len(talk.of("added"))) == (5, 1)
    talk.reply("hi", response_id=inside)
    talk.respond()
    assert talk.prompt() == [("user", "hello"), ("assistant", "hi")]
    talk.check_responses()


def test_input_may_refer_to_items() -> None:
    talk = Talk()
    first, _ = talk.add(text_item("one")), talk.add(text_item("two"))
    talk.respond(input=[{"type": "item_reference", "id": first}, text_item("three")])
    assert talk.prompt() == [("user", "one"), ("user", "three")]


def test_a_cancelled_answer_keeps_what_was_said() -> None:
    talk = Talk()
    talk.add(text_item("Tell me a story."))
    response = talk.respond()
    talk.begin()
    talk.grow("Once upon")
    talk.client({"type": "response.cancel"})
    assert talk.stopped == [response]
    done = talk.sent[-1]["response"]
    assert (done["status"], done["status_details"]["reason"]) == ("cancelled", "client_cancelled")
    assert done["output"][0]["status"] == "incomplete"
    talk.respond()
    assert talk.prompt()[-1] == ("assistant", "Once upon")
    talk.check_responses()


@pytest.mark.parametrize(
    ("is_cut", "status"), [(True, ("incomplete", "max_output_tokens")), (False, ("completed", None))]
)
def test_ends(is_cut: bool, status: tuple[str, str | None]) -> None:
    talk = Talk()
    talk.add(text_item("?"))
    talk.respond()
    talk.begin()
    talk.end(is_cut=is_cut)
    done = talk.sent[-1]["response"]
    details = done.get("status_details") or {}
    assert (done["status"], details.get("reason")) == status


def test_a_failure_says_why_and_the_session_goes_on() -> None:
    talk = Talk()
    talk.add(text_item("?"))
    talk.respond()
    talk.break_off(InternalError("broken"))
    done = talk.sent[-1]["response"]
    assert done["status_details"]["error"] == {
        "type": "server_error",
        "code": "internal_error",
        "message": "broken",
    }
    talk.respond()
    talk.reply("now")
    talk.check_responses()


def test_a_conversation_that_is_too_long_loses_its_oldest_half() -> None:
    talk = Talk()
    items = [talk.add(text_item(str(number))) for number in range(8)]
    response = talk.respond()
    talk.break_off(TOO_LONG)
    assert talk.sent[-1]["type"] == "conversation.truncated"
    assert talk.sent[-1]["item_ids"] == items[:4]
    assert (talk.current_request().response_id, talk.prompt()[0]) == (response, ("user", "4"))
    talk.configure(truncation="disabled")
    talk.break_off(TOO_LONG)
    assert talk.sent[-1]["response"]["status_details"]["error"]["code"] == "context_length_exceeded"


def test_truncating_an_answer() -> None:
    talk = Talk()
    pending = talk.add(text_item("?"))
    talk.respond()
    talk.reply("Three cats and a dog.")
    answer = talk.sent[-1]["response"]["output"][0]["id"]
    truncate = {"type": "conversation.item.truncate", "item_id": answer, "content_index": 0}
    talk.read()
    talk.client({**truncate, "audio_end_ms": 700})
    assert talk.error()["param"] == "audio_end_ms"
    talk.client({**truncate, "audio_end_ms": 700, "text_end": 99})
    assert talk.error()["param"] == "text_end"
    talk.client({**truncate, "item_id": pending, "audio_end_ms": 0})
    assert talk.error()["code"] == "item_not_truncatable"
    talk.client({**truncate, "audio_end_ms": 700, "text_end": 10})
    assert talk.sent[-1]["text_end"] == 10
    talk.respond()
    assert talk.prompt()[-1] == ("assistant", "Three cats")
    talk.client({"type": "response.cancel"})
    talk.client({**truncate, "audio_end_ms": 0})
    talk.respond()
    assert talk.prompt() == [("user", "?")]


@pytest.mark.parametrize(
    ("frame", "code", "param"),
    [
        ({"type": "conversation.item.delete", "item_id": "x"}, "item_not_found", "item_id"),
        ({"type": "conversation.item.retrieve", "item_id": "x"}, "item_not_found", "item_id"),
        (
            {"type": "conversation.item.truncate", "item_id": "x", "content_index": 0, "audio_end_ms": 0},
            "item_not_found",
            "item_id",
        ),
        (
            {"type": "conversation.item.create", "item": text_item("?"), "previous_item_id": "x"},
            "item_not_found",
            "previous_item_id",
        ),
        (
            {"type": "conversation.item.create", "item": text_item("?", id="here")},
            "item_already_exists",
            "item.id",
        ),
        (
            {"type": "conversation.item.create", "item": {"type": "mcp_call", "role": "user"}},
            "unsupported_item",
            "item.type",
        ),
        (
            {"type": "conversation.item.create", "item": shown("?", "http://a/b.png")},
            "unsupported_url",
            "item.content[0].image_url",
        ),
        (
            {"type": "conversation.item.create", "item": shown("?", "data:image/png;base64,A")},
            "invalid_value",
            "item.content[0].image_url",
        ),
        (
            {
                "type": "conversation.item.create",
                "item": {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_audio", "audio": "AAAA"}],
                },
            },
            "unsupported_media",
            "item.content[0]",
        ),
        ({"type": "response.cancel"}, "response_cancel_not_active", "response_id"),
        ({"type": "response.cancel", "response_id": "x"}, "response_cancel_not_active", "response_id"),
        (
            {"type": "response.create", "response": {"tools": [{"type": "function"}]}},
            "unsupported_parameter",
            "response.tools",
        ),
        (
            {"type": "response.create", "response": {"conversation": "another"}},
            "invalid_value",
            "response.conversation",
        ),
        (
            {"type": "session.update", "session": {"type": "realtime", "model": "other"}},
            "model_fixed",
            "session.model",
        ),
        (
            {"type": "session.update", "session": {"type": "transcription"}},
            "unsupported_session_type",
            "session.type",
        ),
        (
            {"type": "session.update", "session": {"type": "realtime", "instruction": ""}},
            "unknown_parameter",
            "session.instruction",
        ),
    ],
)
def test_a_bad_wish_is_refused_by_name_and_changes_nothing(
    frame: dict[str, object], code: str, param: str
) -> None:
    talk = Talk()
    talk.add(text_item("hello", id="here"))
    talk.client({**frame, "event_id": "mine"})
    found = talk.error()
    assert (found["code"], found["param"], found["event_id"]) == (code, param, "mine")
    talk.respond()
    assert talk.prompt() == [("user", "hello")]


def test_one_answer_at_a_time_in_the_conversation_and_few_beside_it() -> None:
    talk = Talk(dialogue={"max_responses": 2})
    talk.add(text_item("hello"))
    talk.respond(conversation="none")
    talk.client({"type": "response.create", "response": {"conversation": "none"}})
    assert talk.error()["code"] == "too_many_responses"
    talk.respond()
    talk.client({"type": "response.create"})
    assert talk.error()["code"] == "conversation_already_has_active_response"


def test_an_empty_conversation_has_no_answer() -> None:
    talk = Talk()
    talk.respond()
    assert talk.sent[-1]["response"]["status_details"]["error"]["code"] == "conversation_empty"


def test_the_bounds_of_a_conversation() -> None:
    talk = Talk(dialogue={"max_items": 3, "max_media_bytes": 10, "max_chars": 100, "max_item_chars": 110})
    talk.add(shown("?"))
    talk.client({"type": "conversation.item.create", "item": shown("?")})
    assert talk.error()["code"] == "conversation_full"
    talk.client({"type": "conversation.item.create", "item": text_item("x" * 100)})
    assert talk.error()["code"] == "conversation_full"
    talk.client({"type": "conversation.item.create", "item": text_item("x" * 111)})
    error = talk.error()
    assert (error["code"], error["param"]) == ("too_large", "item.content")
    talk.add(text_item("2"))
    talk.add(text_item("3"))
    talk.client({"type": "conversation.item.create", "item": text_item("4")})
    assert talk.error()["code"] == "conversation_full"
    talk.respond()
    talk.reply("the answer has room")
    assert len(talk.of("conversation.truncated")) == 1


def test_a_session_that_does_not_listen_says_so() -> None:
    talk = Talk(transcribes=False)
    assert talk.sent[0]["session"]["audio"]["input"]["transcription"] is None
    effects = talk.session.admit(100)
    assert effects is not None
    talk.perform(effects)
    assert talk.error()["code"] == "audio_not_served"
    talk.update({"transcription": {"model": "small"}})
    refused = talk.error()
    assert refused["code"] == "model_not_found"
    assert refused["message"].endswith("served here: none that transcribes")
    talk.add(text_item("hello"))
    talk.respond()
    talk.reply("hi")


def test_a_drain_finishes_the_answer_and_begins_no_other() -> None:
    talk = Talk()
    talk.add(shown("?", PICTURE))
    talk.respond()
    talk.begin()
    talk.receive(DrainStarted())
    talk.read()
    talk.client({"type": "response.create", "response": {"conversation": "none"}})
    assert talk.error()["code"] == "server_draining"
    talk.grow("a cat")
    talk.end()
    assert talk.close_code() == 1012
    assert talk.of("response.done")[-1]["response"]["status"] == "completed"


def test_the_end_of_the_session_ends_the_answers() -> None:
    talk = Talk(idle_s=5.0)
    talk.add(text_item("?"))
    talk.respond()
    talk.begin()
    talk.wait(3)
    talk.wait(3)
    assert talk.close_code() == 1008
    assert talk.of("response.done")[-1]["response"]["status"] == "failed"
    assert talk.stopped
    talk.check_responses()
