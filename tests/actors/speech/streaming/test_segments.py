"""A stream's tokens in segments: the same however they come, bounded, and nothing lost where it goes on."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from sensorium.actors.speech.streaming.segments import SegmentReader
from sensorium.protocols.engine.messages import RequestId, Transduced
from sensorium.protocols.transcription.streaming import Segmentation, StreamSegment
from sensorium.protocols.transcription.transcript import TranscriptionOptions
from support.numbered_words import DELAYS, ROW, TAG, NumberSpeech

ROWS_OF_SILENCE, MOST_ROWS = 10, 60
CUT = Segmentation(ROWS_OF_SILENCE * ROW, MOST_ROWS * ROW)
Placed = list[tuple[int, int]]
"""Tokens and their rows."""


def reader() -> SegmentReader:
    """Of a stream that begins."""
    made = SegmentReader(NumberSpeech().speech.family, TranscriptionOptions(word_timestamps=True), DELAYS[0])
    made.segmentation = CUT
    return made


def push(made: SegmentReader, placed: Sequence[tuple[int, int]], num_rows: int) -> None:
    """An answer, with all tokens of the rows that it is about."""
    token_ids, frames = zip(*placed, strict=True) if placed else ((), ())
    made.push(Transduced(RequestId("stream"), tuple(token_ids), tuple(frames), (), num_rows))


def tokens(seed: int, num_rows: int = 1_500) -> Placed:
    """Words of several rows, pauses of all lengths, and stretches without any."""
    rng, placed, row, number = random.Random(seed), Placed(), 0, 1
    while row < num_rows:
        placed.append((number, row))
        number += 1
        row += rng.choice((0, 1, 2, 3, 5, 9, 10, 11, 40)) if rng.random() < 0.8 else 2
    return placed


def said(segments: Sequence[StreamSegment]) -> list[tuple[int, int, str]]:
    """Those that are over."""
    return [(each.start, each.end, each.transcript.text) for each in segments if each.is_over]


@pytest.mark.parametrize("seed", range(8))
def test_segments_do_not_depend_on_how_tokens_come(seed: int) -> None:
    """Nor on when they are taken."""
    placed, rng = tokens(seed), random.Random(seed)
    whole = reader()
    push(whole, placed, 1_600)
    expected = said(list(whole.segments()))
    assert len(expected) > 10
    for chunk_rows in (1, 7, 50):
        pieces, found, row = reader(), list[tuple[int, int, str]](), 0
        while row < 1_600:
            before, row = row, row + chunk_rows
            push(pieces, [each for each in placed if before <= each[1] < row], row)
            if rng.random() < 0.5:
                found += said(list(pieces.segments()))
                pieces.begin_at(pieces.next_row)
        found += said(list(pieces.segments()))
        assert found == expected


@pytest.mark.parametrize("seed", range(8))
def test_laws_of_segments(seed: int) -> None:
    placed = tokens(seed)
    made = reader()
    push(made, placed, 1_600)
    segments = list(made.segments())
    numbers = [int(word) for each in segments for word in each.transcript.text.split()]
    assert numbers == [number for number, _ in placed]
    rows = dict(placed)
    for segment in segments:
        for word in segment.transcript.words:
            assert round(word.start * 16_000) + segment.start == rows[int(word.word)] * ROW
        assert segment.end - segment.start < (MOST_ROWS + 1 + ROWS_OF_SILENCE) * ROW
    ends = [each.end for each in segments]
    assert all(each.start >= end for each, end in zip(segments[1:], ends, strict=False))


def test_what_was_taken_is_forgotten() -> None:
    made = reader()
    for hour in range(200):
        first = 1_000 * hour
        push(made, [(hour + 1, first + row) for row in range(0, 900, 3)], first + 1_000)
        made.begin_at(made.next_row)
        assert not list(made.segments())
        assert made.next_row == first + 1_000 - 25
        assert made.resume_row == made.next_row - made.next_row % 7


def test_a_run_that_begins_again_gives_nothing_twice() -> None:
    made = reader()
    push(made, [(1, 3), (2, 8)], 14)
    push(made, [(1, 3), (7, 9), (3, 15)], 21)  # other tokens, without what was heard before
    (segment,) = made.segments()
    assert segment.transcript.text == "1 2 3"


def test_words_before_a_cut_are_dropped() -> None:
    made = reader()
    push(made, [(1, 3), (2, 8)], 14)
    made.begin_at(8)
    assert [each.transcript.text for each in made.segments()] == ["2"]
    made.begin_at(20)
    push(made, [(3, 16), (4, 20)], 21)
    assert [each.transcript.text for each in made.segments()] == ["4"]


def test_all_words_as_one_segment() -> None:
    made = reader()
    push(made, [(1, 3), (2, 30), (3, 33)], 35)
    assert len(list(made.segments())) == 2
    transcript = made.copy().whole(2 * ROW, 36 * ROW)
    assert transcript.text == "1 2 3"
    assert [round(word.start * 16_000) for word in transcript.words] == [1 * ROW, 28 * ROW, 31 * ROW]
    assert len(list(made.segments())) == 2


def test_times_are_exact_after_hours() -> None:
    made, row = reader(), 6 * 3600 * 25 // 2
    made.begin_at(row)
    push(made, [(5, row + 20)], row + 40)
    (segment,) = made.segments()
    (word,) = segment.transcript.words
    assert (segment.start, word.start, word.end) == ((row + 14) * ROW, 0.48, 0.56)


def test_a_tag_is_no_word() -> None:
    """It names the language of what comes before it, and of what follows until the next."""
    made = reader()
    push(made, [(1, 3), (TAG, 5), (TAG, 30), (2, 60)], 90)
    first, second = made.segments()
    assert (first.transcript.text, first.transcript.language) == ("1", "de")
    assert first.end == (4 + ROWS_OF_SILENCE) * ROW
    assert (second.transcript.text, second.transcript.languages) == ("2", ("de",))
