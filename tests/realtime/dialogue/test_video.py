"""Scripted live video: which frames are kept, what a question sees, what is forgotten."""

from __future__ import annotations

import pytest
from sensorium.protocols.errors import MediaError
from sensorium.realtime.dialogue.effects import (
    EncodePair,
    ForgetFrames,
    ForgetPairs,
    FrameRefused,
    HasReadAhead,
    ReadAhead,
    Warm,
)
from sensorium.realtime.dialogue.retention import MAX_QUESTIONS
from sensorium.realtime.events import DrainStarted
from support.camera_dialogs import TOKENS, Watch
from support.conversation_dialogs import Talk, text_item


def test_a_session_announces_its_rate() -> None:
    session = Watch().sent[0]["session"]
    assert (session["limits"]["max_fps"], session["video"]["retention_s"]) == (2.0, 20.0)
    assert "input_image_buffer" in session["capabilities"]
    blind = Talk().sent[0]["session"]
    assert "video" not in blind
    assert "input_image_buffer" not in blind["capabilities"]


def test_frames_become_pairs_and_a_question_sees_them() -> None:
    watch = Watch()
    for shade in (10, 50, 90, 130, 170):
        watch.show(shade)
    pairs = [effect for effect in watch.effects if isinstance(effect, EncodePair)]
    assert [pair.data for pair in pairs] == [(b"\x0a", b"\x32"), (b"\x5a", b"\x82")]
    watch.add(text_item("What changed?"))
    watch.catch_up()
    watch.respond()
    # The fifth frame has no partner, and is there all the same.
    assert watch.seen() == [(250, 1250, 2000)]
    assert watch.prompt() == [("user", "[picture]"), ("user", "What changed?")]
    watch.reply("It grew lighter.")
    watch.show(10)
    watch.show(50)
    watch.respond()
    assert [len(times) for times in watch.seen()] == [3, 1]
    assert [who for who, _ in watch.prompt()] == ["user", "user", "assistant", "user"]


def test_a_question_waits_for_frames_before_it() -> None:
    watch = Watch(is_slow=True)
    watch.show(10)
    watch.show(90)
    watch.client({"type": "conversation.item.create", "item": text_item("What is it?")})
    watch.client({"type": "response.create"})
    assert not watch.questions
    watch.catch_up()
    assert watch.prompt() == [("user", "[picture]"), ("user", "What is it?")]
    added = [event["item"]["role"] for event in watch.of("added")]
    assert added == ["user", "user"]
    watch.check_responses()


def test_what_is_seen_is_read_while_nobody_asks() -> None:
    watch = Watch()
    watch.show(10)
    watch.show(90)
    (warm,) = watch.of_kind(Warm)
    assert isinstance(warm, Warm)
    assert [len(clip.pairs) for clip in warm.clips] == [1]
    watch.add(text_item("?"))
    watch.respond()
    watch.begin()
    watch.show(10)
    watch.show(90)
    assert len(watch.of_kind(Warm)) == 1
    watch.end()
    assert len(watch.of_kind(Warm)) == 2


def test_near_duplicates_are_dropped_and_said_so() -> None:
    watch = Watch(min_change=0.1)
    for shade in (10, 12, 90, 91, 30):
        watch.show(shade)
    dropped = watch.of("input_image_buffer.dropped")
    assert [event["timestamp_ms"] for event in dropped] == [1000, 2000]
    assert len(watch.of_kind(EncodePair)) == 1
    watch.configure(video={"min_change": 0})
    watch.show(30)
    assert len(watch.of_kind(EncodePair)) == 2


@pytest.mark.parametrize(
    ("fields", "after_ms", "code"),
    [
        ({}, 100, "frame_rate_exceeded"),
        ({"timestamp_ms": 500}, 500, "frame_out_of_order"),
        ({"timestamp_ms": 3}, 500, "frame_out_of_order"),
        ({"timestamp_ms": 60_000}, 500, "frame_from_the_future"),
        ({"image": "%%"}, 500, "invalid_value"),
    ],
)
def test_bad_frames_are_refused_and_the_next_is_taken(
    fields: dict[str, object], after_ms: int, code: str
) -> None:
    watch = Watch()
    watch.show(10)
    watch.show(90, after_ms=after_ms, event_id="mine", **fields)
    found = watch.error()
    assert (found["code"], found["event_id"]) == (code, "mine")
    watch.show(90)
    assert len(watch.of_kind(EncodePair)) == 1


def test_a_data_uri_is_told_to_be_none() -> None:
    watch = Watch()
    watch.show(10, image="data:image/jpeg;base64,AAAA")
    assert "without `data:`" in watch.error()["message"]


def test_damaged_frames_and_frames_of_another_size() -> None:
    watch = Watch(is_slow=True)
    watch.show(10, event_id="first")
    watch.receive(FrameRefused(0, MediaError("damaged", param="image")))
    assert watch.error()["event_id"] == "first"
    watch.num_handled = len(watch.effects)
    watch.show(10)
    watch.show(90)
    watch.catch_up()
    watch.show(30, event_id="larger")
    watch.catch_up((128, 96))
    assert watch.error()["code"] == "frame_size_changed"
    watch.client({"type": "input_image_buffer.commit"})
    assert watch.of("input_image_buffer.committed")[-1]["num_frames"] == 2
    watch.show(30)
    watch.show(60)
    watch.catch_up((128, 96))
    assert len(watch.of_kind(EncodePair)) == 2


def test_too_many_frames_at_once() -> None:
    watch = Watch(is_slow=True, max_waiting=2)
    for shade in (10, 50, 90):
        watch.show(shade)
    assert watch.error()["code"] == "input_image_buffer_overflow"


def test_commits_while_frames_are_looked_at_make_one_item() -> None:
    watch = Watch(is_slow=True)
    watch.show(10)
    for _ in range(3):
        watch.client({"type": "input_image_buffer.commit"})
    answers = watch.of("input_image_buffer.committed")
    assert [bool(event["item_id"]) for event in answers] == [True, False, False]
    watch.catch_up()
    (added,) = [event for event in watch.of("added") if event["item"]["role"] == "user"]
    assert added["item"]["id"] == answers[0]["item_id"]


def test_clips_give_way_where_there_are_too_many_items() -> None:
    watch = Watch(bounds={"max_items": 4})
    for index in range(12):
        watch.show(10 + 60 * (index % 2))
        watch.client({"type": "input_image_buffer.commit"})
    assert watch.session.dialogue is not None
    assert len(watch.session.dialogue.items) <= 4
    gone = [name for event in watch.of("conversation.truncated") for name in event["item_ids"]]
    assert len(gone) >= 8


def test_clear_forgets_what_is_in_no_complete_item() -> None:
    watch = Watch()
    for shade in (10, 50, 90):
        watch.show(shade)
    watch.client({"type": "input_image_buffer.clear"})
    assert watch.sent[-1]["type"] == "input_image_buffer.cleared"
    assert ForgetFrames((2,)) in watch.effects
    assert len(watch.of_kind(ForgetPairs)) == 1
    watch.client({"type": "input_image_buffer.commit"})
    assert watch.sent[-1]["item_id"] is None
    watch.add(text_item("?"))
    watch.respond()
    assert watch.prompt() == [("user", "?")]


def test_what_is_old_goes_by_the_half_and_what_was_asked_about_stays() -> None:
    watch = Watch(retention_s=8.0)
    for index in range(8):
        watch.show(10 + 60 * (index % 2))
    watch.add(text_item("What was that?"))
    for index in range(24):
        watch.show(10 + 60 * (index % 2))
    gone = watch.gone()
    assert gone == sorted(gone)
    # Four pairs came before the question; it was about the last two of them.
    assert gone[:4] == [500, 1000, 1500, 2000]
    assert not {2500, 3000, 3500, 4000} & set(gone)
    watch.respond()
    first, second = watch.seen()
    assert len(first) == 2
    assert 4 <= len(second) <= 8


def test_what_is_leaving_is_there_until_the_rest_was_read_without_it() -> None:
    watch = Watch(retention_s=8.0)
    watch.reads_ahead = False
    while not watch.of_kind(ReadAhead):
        watch.show(10 + 60 * (watch.time_ms // 500 % 2))
    # The first pair is older than seven of the eight seconds; those of the last four stay.
    assert watch.time_ms == 9000
    ahead = watch.of_kind(ReadAhead)[-1]
    assert isinstance(ahead, ReadAhead)
    assert [len(clip.pairs) for clip in ahead.clips] == [5]
    assert watch.gone() == []
    watch.respond()
    (before,) = watch.seen()
    watch.reply("Nothing.")
    watch.receive(HasReadAhead(ahead.plan))
    assert watch.gone() == [500, 1000, 1500, 2000, 2500, 3000, 3500, 4000]
    watch.respond()
    assert watch.seen() == [before[-5:]]
    watch.receive(HasReadAhead(ahead.plan))
    assert len(watch.gone()) == 8, "once"


def test_what_is_not_read_in_time_goes_all_the_same() -> None:
    watch = Watch(retention_s=8.0)
    watch.reads_ahead = False
    for _ in range(40):
        watch.show(10 + 60 * (watch.time_ms // 500 % 2))
        ends = [pair.timestamps_ms[-1] for item in watch.items if item.clip for pair in item.clip.pairs]
        assert min(ends, default=watch.time_ms) >= watch.time_ms - 8500
    assert len(watch.gone()) >= 16


def test_a_question_about_what_is_leaving_keeps_it() -> None:
    watch = Watch(retention_tokens=2 * TOKENS, retention_s=1000.0)
    watch.reads_ahead = False
    for index in range(4):
        watch.show(10 + 60 * (index % 2))
    (ahead,) = watch.of_kind(ReadAhead)
    assert isinstance(ahead, ReadAhead)
    watch.add(text_item("What was that?"))
    watch.receive(HasReadAhead(ahead.plan))
    assert watch.gone() == [], "it was about both"
    watch.respond()
    assert [len(times) for times in watch.seen()] == [2]


def test_what_the_newest_questions_were_about_stays() -> None:
    watch = Watch(retention_s=4.0)
    for index in range(MAX_QUESTIONS * 2):
        for _ in range(4):
            watch.show(10 + 60 * (watch.time_ms // 500 % 2))
        watch.add(text_item(f"{index}?"))
        assert sum(len(item.clip.pairs) for item in watch.items if item.clip) <= 2 * MAX_QUESTIONS + 4
    watch.respond()
    assert MAX_QUESTIONS / 2 <= len(watch.seen()) <= MAX_QUESTIONS
    assert watch.seen()[-1][-1] == watch.time_ms - 250 - 500, "the newest are there"


def test_tokens_bound_what_is_remembered() -> None:
    watch = Watch(retention_tokens=4 * TOKENS, retention_s=1000.0)
    for index in range(40):
        watch.show(10 + 60 * (index % 2))
    assert watch.of("input_image_buffer.evicted")[0]["reason"] == "retention_tokens"
    watch.add(text_item("?"))
    watch.respond()
    assert 2 <= len(watch.seen()[0]) <= 4


def test_bytes_bound_what_is_remembered() -> None:
    watch = Watch(bounds={"max_media_bytes": 8})
    for index in range(20):
        watch.show(10 + 60 * (index % 2))
    assert watch.of("input_image_buffer.evicted")[0]["reason"] == "max_media_bytes"
    assert watch.session.dialogue is not None
    assert watch.session.dialogue.items.num_media_bytes <= 8


def test_retention_smaller_than_one_pair_keeps_the_newest() -> None:
    watch = Watch(retention_tokens=1)
    for index in range(8):
        watch.show(10 + 60 * (index % 2))
    found = watch.error()
    assert (found["code"], found["param"]) == ("retention_too_small", "session.video.retention_tokens")
    watch.add(text_item("?"))
    watch.respond()
    assert watch.seen() == [(3500 + 250 - 500,)]


def test_deleting_a_clip() -> None:
    watch = Watch()
    watch.show(10)
    watch.show(90)
    item = watch.of("added")[-1]["item"]["id"]
    watch.client({"type": "conversation.item.delete", "item_id": item})
    assert watch.error()["code"] == "item_in_progress"
    watch.client({"type": "input_image_buffer.commit"})
    watch.client({"type": "conversation.item.delete", "item_id": item})
    assert len(watch.of_kind(ForgetPairs)) == 1


def test_models_without_eyes_refuse_frames() -> None:
    talk = Talk()
    talk.client({"type": "input_image_buffer.append", "image": "AA=="})
    assert talk.error()["code"] == "unsupported_media"


def test_clearing_a_clip_that_is_asked_about() -> None:
    watch = Watch(is_slow=True)
    watch.show(10)
    watch.show(200)
    watch.catch_up(most=2)
    reference = {"type": "item_reference", "id": watch.items[0].id}
    watch.respond(input=[reference, text_item("what is it?")])
    watch.client({"type": "input_image_buffer.clear"})
    assert watch.prompt() == [("user", "what is it?")]


def test_what_is_refused_completes_no_clip() -> None:
    watch = Watch()
    watch.add(text_item("hello", id="a"))
    watch.show(10)
    watch.show(200)
    watch.client({"type": "conversation.item.create", "item": text_item("again", id="a")})
    assert watch.error()["code"] == "item_already_exists"
    assert watch.items[-1].status == "in_progress"
    watch.client({"type": "conversation.item.delete", "item_id": watch.items[-1].id})
    assert "image buffer" in watch.error()["message"]
    watch.receive(DrainStarted())
    watch.client({"type": "response.create"})
    assert watch.error()["code"] == "server_draining"
    assert watch.items[-1].status == "in_progress"


def test_a_turn_comes_behind_what_was_seen_before_it() -> None:
    watch = Watch()
    watch.show(10)
    watch.speak(700, "what is it")
    watch.silence(800, "what is it")
    clip, turn = watch.items[:2]
    assert clip.clip is not None
    assert watch.of("committed")[0]["previous_item_id"] == clip.id
    assert [event["previous_item_id"] for event in watch.of("done")][:2] == [None, clip.id]
    assert turn.id == watch.of("committed")[0]["item_id"]


def test_a_commit_counts_what_is_still_looked_at() -> None:
    watch = Watch(is_slow=True)
    watch.show(10)
    watch.show(200)
    watch.client({"type": "input_image_buffer.commit"})
    watch.show(30)
    watch.client({"type": "input_image_buffer.commit"})
    assert [event["num_frames"] for event in watch.of("input_image_buffer.committed")] == [2, 1]
    watch.catch_up(most=2)
    watch.catch_up(breaks=True, most=1)
    watch.catch_up()
    committed, broken = (event["item_id"] for event in watch.of("input_image_buffer.committed"))
    assert {event["item"]["id"] for event in watch.of("added")} == {committed}
    assert [event["item_id"] for event in watch.of("conversation.item.deleted")] == [broken]


def test_half_of_the_context_is_for_questions_and_answers() -> None:
    watch = Watch(bounds={"max_context": 400})
    watch.configure(video={"retention_tokens": 100_000})
    assert watch.read()[-1]["session"]["video"]["retention_tokens"] == 200
