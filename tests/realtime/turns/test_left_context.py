"""Turns may be heard behind earlier ones: as far back as the client wants, and never what it cleared."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.realtime.codec import decode_client_event
from sensorium.protocols.realtime.events import InvalidEvent
from sensorium.realtime.turns.left_context import LeftContext
from support.dialogs import Dialog

FIELD = "session.audio.input.transcription.left_context_ms"


def listening(left_context_ms: int | None, *, detection: bool = True) -> Dialog:
    dialog = Dialog(detection=detection)
    dialog.update({"transcription": {"left_context_ms": left_context_ms}})
    dialog.read()
    return dialog


def turn(dialog: Dialog, text: str, *, pause_ms: float = 1000) -> tuple[int, tuple[int, ...]]:
    """Where a turn begins, in samples, and what it may be heard behind."""
    dialog.speak(1000, text)
    dialog.silence(pause_ms, text)
    pending = list(dialog.pending.values()) or list(dialog.answered.values())
    return pending[-1].start_sample, pending[-1].before


def commit_turns(dialog: Dialog, count: int) -> None:
    """Turns of a second that the client ends."""
    for number in range(count):
        dialog.speak(1000, f"turn {number}")
        dialog.commit()
        dialog.silence(32, f"turn {number}")


def test_turns_are_heard_alone_unless_it_is_asked_for() -> None:
    dialog = Dialog()
    assert [turn(dialog, "one")[1], turn(dialog, "two")[1]] == [(), ()]
    assert "left_context_ms" not in dialog.sent[0]["session"]["audio"]["input"]["transcription"]


def test_a_turn_is_heard_behind_those_that_begin_in_reach() -> None:
    dialog = listening(5_000)
    starts: list[int] = []
    for number in range(6):
        start, before = turn(dialog, f"turn {number}")
        assert before == tuple(each for each in starts if each >= start - 80_000)
        assert len(before) == min(number, 2)
        starts.append(start)


def test_it_is_kept_for_as_long_as_it_may_be_heard() -> None:
    dialog = listening(5_000)
    first, _ = turn(dialog, "one", pause_ms=2_000)
    assert dialog.forgotten <= first
    dialog.silence(6_000, "")
    assert first < dialog.num_samples - 80_000 < dialog.forgotten
    assert turn(dialog, "two")[1] == ()


def test_what_was_cleared_is_not_heard_any_more() -> None:
    dialog = listening(24_000)
    turn(dialog, "one")
    dialog.clear()
    dialog.silence(200, "")
    start, before = turn(dialog, "two")
    assert before == ()
    assert turn(dialog, "three")[1] == (start,)


def test_commits_of_a_client_are_turns_too() -> None:
    dialog = listening(24_000, detection=False)
    commit_turns(dialog, 3)
    assert [each.before for each in dialog.answered.values()] == [(), (0,), (0, 16_000)]


def test_commits_of_nothing_are_not_counted() -> None:
    dialog = listening(24_000, detection=False)
    dialog.speak(1000, "one")
    for _ in range(100):
        dialog.commit()
    commit_turns(dialog, 2)
    before = list(dialog.answered.values())[-1].before
    assert before == (0, 16_000)


def test_a_commit_in_silence_is_no_turn() -> None:
    """Its sound is there only while earlier turns wait for their answers."""
    dialog = listening(24_000)
    start, _ = turn(dialog, "one")
    dialog.commit()
    dialog.silence(2_000, "")
    dialog.commit()
    dialog.silence(500, "")
    assert turn(dialog, "two")[1] == (start,)


def test_a_turn_that_has_begun_keeps_what_it_is_heard_behind() -> None:
    dialog = listening(24_000)
    first, _ = turn(dialog, "one")
    dialog.speak(1000, "two")
    dialog.update({"transcription": {"left_context_ms": None}})
    dialog.speak(1000, "two too")
    dialog.silence(1000, "two too")
    assert list(dialog.answered.values())[-1].before == (first,)
    assert turn(dialog, "three")[1] == ()


def test_of_several_turns_a_later_one_may_reach_further_back() -> None:
    dialog = listening(24_000, detection=False)
    commit_turns(dialog, 12)
    dialog.update({"transcription": {"left_context_ms": 2_000}})
    dialog.speak(1000)
    dialog.commit()
    dialog.update({"transcription": {"left_context_ms": 24_000}})
    dialog.speak(1000)
    dialog.commit()
    dialog.speak(1000)
    unanswered = list(dialog.pending.values())[-3:]
    assert [len(each.before) for each in unanswered] == [1, 13, 14]
    assert dialog.forgotten == 0


def test_audio_that_is_gone_when_it_is_asked_for_is_not_heard() -> None:
    dialog = Dialog()
    turn(dialog, "one")
    turn(dialog, "two", pause_ms=3_000)
    dialog.update({"transcription": {"left_context_ms": 24_000}})
    assert turn(dialog, "three")[1] == ()


@pytest.mark.parametrize("value", [-1, 24_001, "1000", 1000.5, True])
def test_a_context_that_cannot_be(value: object) -> None:
    patch = {"audio": {"input": {"transcription": {"left_context_ms": value}}}}
    event = decode_client_event(json.dumps({"type": "session.update", "session": patch}))
    assert isinstance(event, InvalidEvent)
    assert (event.code, event.param) == ("invalid_value", FIELD)


def test_models_that_hear_each_turn_alone_refuse_it() -> None:
    dialog = listening(24_000)
    dialog.update({"transcription": {"model": "other"}})
    (error,) = dialog.of("error")
    assert (error["error"]["code"], error["error"]["param"]) == ("unsupported_parameter", FIELD)
    dialog.update({"transcription": {"model": "other", "left_context_ms": 0}})
    assert dialog.read()[-1]["type"] == "session.updated"
    assert "left_context_ms" not in dialog.sent[-1]["session"]["audio"]["input"]["transcription"]


@given(
    reach=st.integers(0, 50),
    steps=st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["turn", "keep", "clear"])), max_size=40),
)
def test_starts_are_in_reach_kept_and_ascending(reach: int, steps: list[tuple[int, str]]) -> None:
    context, now, kept, cleared = LeftContext(), 0, 0, 0
    context.configure(reach)
    for length, step in steps:
        before = context.before(now)
        assert list(before) == sorted(set(before))
        assert all(max(now - reach, kept, cleared) <= each < now for each in before)
        now += length
        match step:
            case "turn" if length:
                context.began(now - length)
            case "clear":
                context.clear()
                cleared = now
            case _:
                assert context.forget(now - 30) == (now - 30 > kept)
                kept = max(kept, now - 30)
                assert context.kept_from == kept
