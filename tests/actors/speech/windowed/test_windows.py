"""Windows cover a recording, and their tokens join to those of the whole, wrong as they may be at edges."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.actors.speech.windowed.windows import PlacedToken, WindowJoiner, agreed, windows_of

SIZE, OVERLAP = 60, 20
EDGE = OVERLAP // 4
"""Frames at a window's edge that lack context."""
Draw = Callable[[st.SearchStrategy[Any]], Any]
WRONG = 1000
"""Token ids from here on are said at edges only."""


@given(length=st.integers(0, 2_000), overlap=st.integers(1, 24), extra=st.integers(1, 50))
def test_windows_cover_a_recording(length: int, overlap: int, extra: int) -> None:
    size = 2 * overlap + extra
    windows = windows_of(length, size, overlap)
    covered = {frame for start, end in windows for frame in range(start, end)}
    assert covered == set(range(length))
    for (_, end), (start, last) in itertools.pairwise(windows):
        assert end - start == overlap
        assert end < last, "the last one has something of its own"
    assert all(end - start == size for start, end in windows[:-1])
    assert not windows or windows[-1][1] - windows[-1][0] <= size


@st.composite
def recordings(draw: st.DrawFn) -> list[PlacedToken]:
    """What is said: the same token comes again only after a while."""
    tokens: list[PlacedToken] = []
    frame = draw(st.integers(0, 10))
    for number in range(draw(st.integers(0, 120))):
        length = draw(st.integers(1, 3))
        tokens.append(PlacedToken(number % 9, frame, frame + length, -0.1))
        frame += length + draw(st.sampled_from([1, 1, 2, 4, 30]))
    return tokens


def seen(said: list[PlacedToken], window: tuple[int, int], length: int, draw: Draw) -> list[PlacedToken]:
    """What a window says: its edges are wrong, and the frames of tokens differ by one."""
    start, end = window
    first, last = start + EDGE * (start > 0), end - EDGE * (end < length)
    tokens: list[PlacedToken] = []
    for token in said:
        if first <= token.start < last:
            shift = draw(st.integers(-1, 1))
            at = min(max(token.start + shift, start, tokens[-1].end if tokens else start), end - 1)
            tokens.append(token._replace(start=at, end=max(at + 1, token.end + shift)))
    for frame in draw(st.sets(st.integers(0, EDGE - 2))):
        if start:
            tokens.append(
                PlacedToken(draw(st.integers(WRONG, WRONG + 3)), start + frame, start + frame + 1, -3.0)
            )
        if end < length:
            tokens.append(PlacedToken(draw(st.integers(0, 8)), end - 1 - frame, end - frame, -3.0))
    return sorted(tokens, key=lambda token: token.start)


@given(data=st.data(), said=recordings(), only_words=st.booleans())
def test_no_token_is_lost_or_given_twice(
    data: st.DataObject, said: list[PlacedToken], only_words: bool
) -> None:
    length = said[-1].end + 3 if said else 200
    windows = windows_of(length, SIZE, OVERLAP)
    joiner = WindowJoiner(lambda token_id: only_words or token_id % 3 == 0)
    given_tokens: list[PlacedToken] = []
    for index, window in enumerate(windows):
        next_start = windows[index + 1][0] if index + 1 < len(windows) else None
        given_tokens += joiner.push(seen(said, window, length, data.draw), window, next_start)
        assert all(token.start < (next_start or length) for token in given_tokens)
    assert [token.token_id for token in given_tokens] == [token.token_id for token in said]
    for token, true in zip(given_tokens, said, strict=True):
        assert abs(token.start - true.start) <= 3
    for one, other in itertools.pairwise(given_tokens):
        assert one.start < one.end <= other.start


def placed(*tokens: tuple[int, int]) -> list[PlacedToken]:
    return [PlacedToken(token_id, frame, frame + 1, -0.1) for token_id, frame in tokens]


def test_a_repeated_token_is_paired_with_itself() -> None:
    one, other = placed((1, 10), (1, 14), (1, 18)), placed((1, 13), (1, 17), (1, 30))
    assert agreed(one, other) == [(1, 0), (2, 1)]
    assert agreed(one, placed((2, 10), (1, 21))) == []


def test_a_word_on_which_windows_differ_is_not_cut() -> None:
    """Tokens 0 and 10 begin words; the windows spell the one in the middle, frame 50, differently."""
    joiner = WindowJoiner(lambda token_id: token_id in (0, 10))
    first = joiner.push(placed((0, 5), (0, 48), (1, 50), (2, 52)), (0, 60), 40)
    assert first == placed((0, 5))
    second = joiner.push(placed((10, 47), (11, 49), (12, 51), (10, 70)), (40, 100), None)
    assert [token.token_id for token in second] == [0, 1, 2, 10]


def test_where_one_window_says_nothing_its_half_of_the_overlap_is_silent() -> None:
    joiner = WindowJoiner(lambda token_id: True)
    assert joiner.push(placed((0, 5)), (0, 60), 40) == placed((0, 5))
    assert joiner.push(placed((1, 44), (2, 56)), (40, 100), None) == placed((2, 56))


@pytest.mark.parametrize("shift", [-2, 2])
def test_frames_given_do_not_overlap_where_windows_differ(shift: int) -> None:
    joiner = WindowJoiner(lambda token_id: True)
    joiner.push([PlacedToken(1, 50, 54, -0.1)], (0, 60), 40)
    tokens = joiner.push([PlacedToken(1, 50 + shift, 51 + shift, -0.1), *placed((2, 53))], (40, 100), None)
    assert [(token.token_id, token.start, token.end) for token in tokens] == [(1, 50, 54), (2, 54, 55)]
