"""Latencies of turns, and what was heard of what was said, from scripted events."""

from __future__ import annotations

from pathlib import Path

import pytest
from sensorium.client import (
    AudioError,
    Committed,
    Completed,
    Delta,
    Event,
    Failed,
    SpeechStarted,
    SpeechStopped,
)
from sensorium.client.bench.statistics import WordErrors
from sensorium.client.bench.turns import SpokenTurn, TurnLog, read_spoken_turns
from sensorium.protocols.realtime.events import ErrorDetail
from sensorium.protocols.transcription.view import TokenUsage

USAGE = TokenUsage(input_tokens=0, output_tokens=0, total_tokens=0)


def final(item_id: str, text: str) -> Completed:
    """A completed event."""
    return Completed(item_id=item_id, transcript=text, usage=USAGE)


def log_of(*timed: tuple[float, Event], start: float = 100.0, padding_ms: int = 300) -> TurnLog:
    """A log that saw these events; times are seconds after the audio's start."""
    log = TurnLog(audio_start_at=start, prefix_padding_ms=padding_ms)
    for now, event in timed:
        log.observe(event, start + now)
    return log


ONE = (
    (1.1, SpeechStarted(audio_start_ms=700, item_id="a")),
    (1.4, Delta(item_id="a", delta="")),
    (1.5, Delta(item_id="a", delta="good")),
    (1.9, Delta(item_id="a", delta=" day")),
    (2.6, SpeechStopped(audio_end_ms=2300, item_id="a")),
    (2.6, Committed(item_id="a")),
    (2.7, final("a", "good day sir")),
)
SPOKEN = SpokenTurn("Good day, Sir!", start_ms=1000, end_ms=2100)


def test_a_bounded_log_keeps_the_newest_turns_and_counts_all() -> None:
    log = TurnLog(max_turns=3)
    for number in range(10):
        item_id = f"item_{number}"
        log.observe(SpeechStarted(audio_start_ms=0, item_id=item_id), 0.0)
        log.observe(Failed(item_id=item_id, error=ErrorDetail(message="no")), 1.0)
    assert list(log.turns) == ["item_7", "item_8", "item_9"]
    assert (log.num_turns, log.num_failed) == (10, 10)


def test_latencies_of_a_server_turn() -> None:
    log = log_of(*ONE)
    turn = log.turns["a"]
    assert turn.num_deltas == 2  # the empty one shows nothing
    assert not turn.corrected
    assert turn.final_s == pytest.approx(0.1)
    assert log.first_partial_s(turn) == pytest.approx(0.5)  # from 700 ms + 300 ms padding
    assert log.first_partial_s(turn, SPOKEN) == pytest.approx(0.5)
    assert log.after_last_word_s(turn, SPOKEN) == pytest.approx(0.6)


def test_a_manual_commit_counts_from_its_sending() -> None:
    log = TurnLog(audio_start_at=0.0)
    log.commit_sent(2.0, 0, 2000)
    log.observe(Committed(item_id="a"), 2.1)
    log.observe(final("a", "x"), 2.5)
    turn = log.turns["a"]
    assert turn.final_s == pytest.approx(0.5)
    assert (turn.audio_start_ms, turn.audio_end_ms) == (0, 2000)


def test_the_servers_positions_win_over_our_estimate() -> None:
    log = TurnLog()
    log.commit_sent(2.0, 0, 2000)
    log.observe(Committed(item_id="a", audio_start_ms=150, audio_end_ms=1900), 2.1)
    assert (log.turns["a"].audio_start_ms, log.turns["a"].audio_end_ms) == (150, 1900)
    assert log.turns["a"].ended_at == 2.0


def test_a_retraction_is_a_correction_and_outer_space_is_not() -> None:
    log = log_of((0, Delta(item_id="a", delta=" good day")), (1, final("a", "good night")))
    assert log.turns["a"].corrected
    log = log_of((0, Delta(item_id="a", delta=" good")), (1, final("a", "good night")))
    assert not log.turns["a"].corrected


def test_failures_keep_their_message() -> None:
    log = log_of((0, Failed(item_id="a", error=ErrorDetail(message="too loud"))))
    assert log.turns["a"].error == "too loud"
    assert log.turns["a"].final_s is None


def test_what_is_heard_of_a_turn_is_every_item_that_covers_a_real_part_of_it() -> None:
    log = log_of(
        (1, SpeechStarted(audio_start_ms=700, item_id="a")),
        (1, SpeechStopped(audio_end_ms=1500, item_id="a")),
        (1, final("a", "good")),
        (2, SpeechStarted(audio_start_ms=1400, item_id="b")),
        (2, SpeechStopped(audio_end_ms=2200, item_id="b")),
        (2, final("b", "day")),
        (3, SpeechStarted(audio_start_ms=2050, item_id="c")),
        (3, SpeechStopped(audio_end_ms=4000, item_id="c")),
        (3, final("c", "bye")),
    )
    assert [turn.item_id for turn in log.turns_of(SPOKEN)] == ["a", "b"]
    assert log.turns_of(SpokenTurn("?", 5000, 6000)) == []


def test_words_are_compared_over_the_whole_session() -> None:
    log = log_of((0, final("a", "good")), (1, final("b", "day sir bye")))
    assert log.word_errors([SPOKEN, SpokenTurn("Bye now.", 2500, 3000)]) == WordErrors(1, 5)


def test_the_description_beside_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    path.write_text('{"file":"talk.wav","turns":[{"text":"hi","language":"en","start_ms":1,"end_ms":2}]}')
    assert read_spoken_turns(path) == [SpokenTurn("hi", 1, 2, "en")]
    path.write_text('{"turns":[{"text":1}]}')
    with pytest.raises(AudioError, match=r"talk\.json does not describe turns"):
        read_spoken_turns(path)
    with pytest.raises(AudioError, match="cannot read"):
        read_spoken_turns(tmp_path / "none.json")
