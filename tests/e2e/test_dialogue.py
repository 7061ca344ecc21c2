"""Sessions that answer, over real sockets: as chat completions answer over the same items."""

from __future__ import annotations

import pytest
from support.histories import check_history
from support.live_answers import (
    as_messages,
    chat,
    live_talk,
    picture,
    text,
    words_of,
)
from support.raw_socket import Event
from support.server import Server, wait_until
from support.vision_files import png
from websockets.sync.client import connect

pytestmark = pytest.mark.slow


def test_a_talk_about_text_equals_chat_completions(text_server: Server) -> None:
    items = [text("Hello there"), text("and again")]
    with live_talk(text_server, "text", instructions="Be kind.") as talk:
        for item in items:
            talk.add(item)
        done = talk.respond()
    assert done["status"] in ("completed", "incomplete")
    expected = chat(text_server, "text", as_messages(items, "Be kind."))
    assert words_of(done) == expected["text"]
    assert done["usage"]["input_tokens"] == expected["usage"]["prompt_tokens"]
    assert done["usage"]["output_tokens"] == expected["usage"]["completion_tokens"]


IMAGE_TOKENS = 20
"""Of a picture of 48 x 40 pixels."""


def test_ten_turns_over_ten_pictures_compute_only_what_is_new(text_server: Server) -> None:
    engine, media = text_server.service.models["vision"].engine, text_server.service.media
    items: list[Event] = []
    answered: list[tuple[list[Event], str]] = []
    num_read = 0
    with live_talk(text_server, max_output_tokens=4) as talk:
        for turn in range(10):
            jobs, before = media.statistics().num_jobs, engine.statistics()
            items.append(picture(png(40, 48, 100 + turn), f"What is picture {turn}?"))
            talk.add(items[-1])
            done = talk.respond()
            answered.append((list(items), words_of(done)))
            usage, details = done["usage"], done["usage"]["input_token_details"]
            assert details["image_tokens"] == IMAGE_TOKENS * (turn + 1)
            # What the turn before had read is there, to the token.
            assert details["cached_tokens"] >= num_read
            num_read = usage["input_tokens"]
            assert details["cached_tokens_details"]["image_tokens"] == IMAGE_TOKENS * turn
            after = engine.statistics()
            assert after.num_windows_encoded - before.num_windows_encoded == 1
            num_new = num_read - details["cached_tokens"]
            assert after.num_prefill_tokens - before.num_prefill_tokens <= num_new
            # Measured by its header, and opened.
            assert media.statistics().num_jobs - jobs == 2
            items.append(text(words_of(done), "assistant"))
        jobs, before = media.statistics().num_jobs, engine.statistics()
        talk.add(text("And once more?"))
        done = talk.respond()
        assert media.statistics().num_jobs == jobs
        assert engine.statistics().num_windows_encoded == before.num_windows_encoded
        assert (
            done["usage"]["input_token_details"]["cached_tokens_details"]["image_tokens"] == 10 * IMAGE_TOKENS
        )
    jobs = media.statistics().num_jobs
    for conversation, answer in answered:
        assert answer == chat(text_server, "vision", as_messages(conversation), max_tokens=4)["text"]
    with live_talk(text_server, max_output_tokens=4) as another:
        for item in items:
            another.add(item)
        another.respond()
    assert media.statistics().num_jobs == jobs, "a session's files are opened for chats and sessions, too"


def test_a_bad_picture_is_refused_and_the_talk_goes_on(text_server: Server) -> None:
    with live_talk(text_server) as talk:
        talk.add(picture(b"no picture at all", "What is it?", id="broken"))
        found = talk.error()
        assert (found["code"], found["param"]) == ("invalid_media", "broken.content[0]")
        assert talk.session.until("conversation.item.deleted")["item_id"] == "broken"
        talk.add(text("Hello"))
        assert words_of(talk.respond()) == chat(text_server, "vision", as_messages([text("Hello")]))["text"]


def test_who_asks_for_many_large_items_at_once_gets_them_one_after_the_other(text_server: Server) -> None:
    """More than may wait for a reader (4 MiB), of which none would be read before all were asked for."""
    with live_talk(text_server) as talk:
        talk.add(text("What is it? " * 25_000, id="large"))
        for _ in range(40):
            talk.session.send({"type": "conversation.item.retrieve", "item_id": "large"})
        found = [talk.session.until("conversation.item.retrieved") for _ in range(40)]
        assert sum(len(str(event["item"])) for event in found) > 2.5 * 2**22
        talk.session.send({"type": "conversation.item.delete", "item_id": "large"})
        talk.add(text("Hello"))
        assert words_of(talk.respond())


def test_cancelled_answers_are_over_at_once(text_server: Server) -> None:
    engine = text_server.service.models["text"].engine
    with live_talk(text_server, "text", max_output_tokens="inf") as talk:
        talk.add(text("Tell me a long story"))
        response = talk.create(temperature=1.5, seed=1)
        talk.session.until("response.output_text.delta")
        talk.session.send({"type": "response.cancel", "response_id": response})
        done = talk.finish()
        assert (done["status"], done["status_details"]["reason"]) == ("cancelled", "client_cancelled")
        wait_until(lambda: engine.statistics().num_running == 0, timeout_s=2.0)
        assert words_of(done)
        num_output = done["usage"]["output_tokens"]
        conversation = {"input": [text("Tell me a long story")], "conversation": "none"}
        talk.create(temperature=1.5, seed=1, max_output_tokens=num_output, **conversation)
        again = talk.finish()
        assert words_of(again).startswith(words_of(done))
        assert again["usage"]["output_tokens"] == num_output
        assert again["usage"]["input_tokens"] == done["usage"]["input_tokens"] > 0
        talk.session.send({"type": "response.cancel"})
        assert talk.error()["code"] == "response_cancel_not_active"


def test_responses_beside_the_conversation_run_together(text_server: Server) -> None:
    with live_talk(text_server, "text") as talk:
        talk.add(text("Hello"))
        talk.create()
        for number in range(2):
            talk.create(conversation="none", input=[text(f"number {number}")], metadata={"n": str(number)})
        done = [event for event in talk.session.events if event["type"] == "response.done"]
        while len(done) < 3:
            done.append(talk.session.until("response.done"))
        for event in done:
            response = event["response"]
            name = (response["metadata"] or {}).get("n")
            conversation = text("Hello") if name is None else text(f"number {name}")
            assert words_of(response) == chat(text_server, "text", as_messages([conversation]))["text"]


def test_too_long_a_talk_forgets_its_beginning(text_server: Server) -> None:
    context = text_server.service.models["text"].engine.info.max_context
    long = " ".join(["word"] * (context // 12))
    with live_talk(text_server, "text") as talk:
        items = [text(f"{number} {long}") for number in range(8)]
        ids = [talk.add(item) for item in items]
        done = talk.respond()
        gone = [name for event in talk.session.seen("conversation.truncated") for name in event["item_ids"]]
        assert gone
        assert gone == ids[: len(gone)]
        expected = chat(text_server, "text", as_messages(items[len(gone) :]))
        assert words_of(done) == expected["text"]


def test_a_question_right_behind_what_was_dropped_costs_its_own_tokens(text_server: Server) -> None:
    """Near the bound, what stays is read without the oldest before they go."""
    most = 400
    limit = {"type": "retention_ratio", "retention_ratio": 0.5, "token_limits": {"post_instructions": most}}
    with live_talk(text_server, "text", truncation=limit, max_output_tokens=1) as talk:
        items: list[Event] = []
        while not talk.session.seen("conversation.truncated"):
            items.append(text("?", id=f"question-{len(items) // 2}"))
            talk.add(items[-1])
            done = talk.respond()
            items.append(text(words_of(done), "assistant"))
            is_near = done["usage"]["input_tokens"] > 0.9 * most
            if is_near and not talk.session.seen("conversation.truncated"):
                talk.session.until("conversation.truncated")
        (event,) = talk.session.seen("conversation.truncated")
        gone = event["item_ids"]
        assert gone[0] == "question-0"
        assert len(items) / 3 < len(gone) < len(items) * 2 / 3
        last = text("And now?")
        talk.add(last)
        done = talk.respond(max_output_tokens=12)
        details = done["usage"]["input_token_details"]
        assert done["usage"]["input_tokens"] - details["cached_tokens"] <= 40
        stayed = as_messages([*items[len(gone) :], last])
        assert words_of(done) == chat(text_server, "text", stayed)["text"]


def test_models_that_do_not_listen_or_answer_say_so(text_server: Server, server: Server) -> None:
    with live_talk(text_server, "text") as talk:
        # Qwen3-ASR is served beside it, so the session listens.
        assert talk.session.events[0]["session"]["audio"]["input"]["transcription"]["model"] == "audio"
    with connect(f"{server.realtime}?intent=realtime") as socket:
        assert '"unsupported_task"' in str(socket.recv(60))


@pytest.mark.parametrize("seed", range(6))
def test_random_histories_equal_chat_completions(text_server: Server, seed: int) -> None:
    check_history(text_server, seed)
