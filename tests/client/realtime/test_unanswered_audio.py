"""What is sent to another session: all audio without an answer, and none that has one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.client.realtime.unanswered_audio import UnansweredAudio
from sensorium.protocols.realtime.codec import encode_event
from sensorium.protocols.realtime.events import (
    InputAudioBufferAppend,
    InputAudioBufferClear,
    InputAudioBufferCommit,
)

BYTES_PER_S = 2000.0
"""One sample of two bytes a millisecond."""
COMMIT, CLEAR = encode_event(InputAudioBufferCommit()), encode_event(InputAudioBufferClear())


def memory(*, finds_turns: bool, max_bytes: int = 1 << 20) -> UnansweredAudio:
    return UnansweredAudio(BYTES_PER_S, 2, finds_turns=finds_turns, max_bytes=max_bytes)


def audio(begin_ms: int, end_ms: int) -> bytes:
    """Each sample is the time it stands for."""
    return b"".join(ms.to_bytes(2) for ms in range(begin_ms, end_ms))


def joined(frames: list[bytes | str]) -> bytes:
    return b"".join(each for each in frames if isinstance(each, bytes))


def feed(kept: UnansweredAudio, begin_ms: int, end_ms: int, step_ms: int = 20) -> None:
    for at in range(begin_ms, end_ms, step_ms):
        kept.sent(audio(at, min(at + step_ms, end_ms)))


@given(st.integers(1, 700), st.integers(0, 19))
def test_a_turn_that_has_no_answer_is_sent_again_from_its_beginning(step_ms: int, more_ms: int) -> None:
    kept = memory(finds_turns=True)
    feed(kept, 0, 20_000 + more_ms, step_ms)
    kept.started("a", 1_000)
    kept.stopped("a", 6_000)
    kept.committed("a")
    kept.started("b", 6_300)
    kept.answered("a")
    assert kept.can_replay()
    assert joined(kept.begin_again()) == audio(6_000, 20_000 + more_ms)
    assert kept.base_ms == 6_000
    kept.started("c", 100)  # as the next session counts
    kept.stopped("c", 5_000)
    kept.committed("c")
    kept.answered("c")
    assert joined(kept.begin_again()) == audio(14_500 + more_ms, 20_000 + more_ms)


def test_turns_that_are_answered_out_of_order_are_not_lost() -> None:
    kept = memory(finds_turns=True)
    feed(kept, 0, 10_000)
    for number, name in enumerate("abc"):
        kept.started(name, 1000 * number)
        kept.stopped(name, 1000 * number + 900)
        kept.committed(name)
    kept.answered("b")
    assert joined(kept.begin_again()) == audio(0, 10_000)


def test_of_silence_only_the_newest_is_sent() -> None:
    kept = memory(finds_turns=True, max_bytes=100_000)
    feed(kept, 0, 65_000)
    assert kept.num_bytes <= 100_000
    assert kept.can_replay()
    assert joined(kept.begin_again()) == audio(59_500, 65_000)


def test_a_turn_that_is_not_kept_any_more_cannot_be_sent() -> None:
    for finds_turns in (True, False):
        kept = memory(finds_turns=finds_turns, max_bytes=10_000)
        kept.sent(audio(0, 20))
        kept.started("a", 0)
        feed(kept, 20, 20_000)
        assert not kept.can_replay()


def test_commits_stay_between_their_turns() -> None:
    kept = memory(finds_turns=False)
    for number in range(3):
        feed(kept, 100 * number, 100 * number + 100)
        kept.sent(COMMIT)
    kept.sent(audio(300, 350))
    kept.sent(CLEAR)
    kept.sent(audio(350, 400))
    kept.committed("a")
    kept.committed("b")
    kept.answered("a")
    assert kept.can_replay()
    found = kept.begin_again()
    assert joined(found) == audio(100, 400)
    controls = [(joined(found[:i]), each) for i, each in enumerate(found) if isinstance(each, str)]
    assert controls == [
        (audio(100, 200), COMMIT),
        (audio(100, 300), COMMIT),
        (audio(100, 350), CLEAR),
    ]
    kept.committed("b2")
    kept.answered("b2")
    assert joined(kept.begin_again()) == audio(200, 400)


def test_an_empty_commit_makes_no_turn() -> None:
    kept = memory(finds_turns=False)
    kept.sent(COMMIT)
    kept.found_nothing()
    kept.sent(audio(0, 100))
    kept.sent(COMMIT)
    kept.committed("a")
    kept.answered("a")
    assert kept.begin_again() == []


def test_audio_in_json_is_kept_as_audio() -> None:
    kept = memory(finds_turns=True)
    kept.sent(encode_event(InputAudioBufferAppend(audio=audio(0, 50))))
    kept.started("a", 0)
    assert joined(kept.begin_again()) == audio(0, 50)


@pytest.mark.parametrize("finds_turns", [True, False])
@given(data=st.data())
def test_nothing_without_an_answer_is_left_out(finds_turns: bool, data: st.DataObject) -> None:
    """In whatever order things come, what is sent begins with the first turn without an answer or before."""
    kept = memory(finds_turns=finds_turns)
    end = 0
    turns: list[Any] = []
    answered: set[int] = set()
    for _ in range(data.draw(st.integers(1, 12))):
        length = data.draw(st.integers(1, 400))
        kept.sent(audio(end, end + length))
        name = str(len(turns))
        if not finds_turns:
            kept.sent(COMMIT)
        if data.draw(st.booleans()) or not finds_turns:
            turns.append((name, end, end + length))
            if finds_turns:
                kept.started(name, end)
                kept.stopped(name, end + length)
            kept.committed(name)
        end += length
        for done, _, _ in turns:
            if done not in answered and data.draw(st.booleans()):
                answered.add(done)
                kept.answered(done)
    open_from = min((begin for name, begin, _ in turns if name not in answered), default=end)
    found = joined(kept.begin_again())
    assert audio(0, end).endswith(found)
    assert end - len(found) // 2 <= open_from
    if not finds_turns:
        assert end - len(found) // 2 == open_from
