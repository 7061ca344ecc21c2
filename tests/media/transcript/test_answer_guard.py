"""Loops are cut and nothing else is; a growing answer is cut like a whole one; an echo is known as one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sensorium.media.transcript.answer_guard import (
    KEPT_COPIES,
    MAX_TOKEN_UNIT,
    MAX_UNIT,
    TOKEN_COPIES,
    LoopCutter,
    LoopGuard,
    cut_loops,
    echoes_context,
    speaking_time_s,
    spoken_part,
    token_budget,
)

HONEST = [
    "",
    "No, no, no, no, no!",
    "ha ha ha ha ha ha ha ha ha ha",
    "The number is 1,000,000,000,000 or 1000000000000.",
    "It is very very very very cold.",
    "Mississippi banana aaaah hmmmmmm",
    "Wait.......... what?",
    "爱爱爱你你你。哈哈哈哈哈哈哈哈",
    "Around the world, around the world, around the world, around the world.",
    "one two three four five six seven eight nine ten " * 3,
    "Buffalo buffalo Buffalo buffalo buffalo buffalo Buffalo buffalo.",
    "We will, we will rock you. " * 7,
    "0" * 19,
    "go " * 19,
]
LONG_PHRASE = (
    "and then I went down to the river to see whether the boat that he had left there was still there, "
)
LOOPS = [
    ("Thank you for watching." + " Thank you." * 40, "Thank you for watching. Thank you. Thank you."),
    ("I went" + " and" * 30 + " he came", "I went and and he came"),
    ("好" * 50 + "的", "好好的"),
    ("多謝" * 30, "多謝" * 2),
    ("The end. " + LONG_PHRASE * 9, "The end. " + LONG_PHRASE * 2),
    ("1" * 25 + "2" * 25, "1122"),
    ("x" + "ab " * 20 + "y" + "ab " * 20, "xab ab yab ab "),
    ("no" * 20 + "n", "nonon"),
]
UNITS = st.text("ab ü好.", min_size=1, max_size=6)
LOOPY = st.lists(st.tuples(UNITS, st.sampled_from([1, 1, 2, 7, 19, 20, 21, 45])), max_size=6).map(
    lambda parts: "".join(unit * count for unit, count in parts)
)
"""Texts of rows of units, some of them loops, whose ends may make longer rows with their neighbours."""


def in_pieces(text: str, sizes: list[int]) -> tuple[str, list[str]]:
    """The joined output of a cutter fed in pieces, and what had been given after each."""
    cutter, given, states = LoopCutter(), "", []
    start = 0
    for size in [*sizes, len(text)]:
        given += cutter.feed(text[start : start + size])
        states.append(given)
        start += size
    return given + cutter.finish(), states


@pytest.mark.parametrize("text", HONEST)
def test_what_people_say_is_untouched(text: str) -> None:
    assert cut_loops(text) == text
    assert in_pieces(text, [1] * len(text))[0] == text


@pytest.mark.parametrize(("text", "expected"), LOOPS)
def test_loops_are_cut_and_what_follows_stays(text: str, expected: str) -> None:
    assert cut_loops(text) == expected


def test_documents_are_untouched() -> None:
    for path in sorted((Path(__file__).parents[3] / "docs").glob("*.md")):
        lines = [line for line in path.read_text().splitlines() if not line.startswith(("|", "```"))]
        text = " ".join(" ".join(lines).split())
        assert cut_loops(text) == text
        assert in_pieces(text[:2_000], [7] * 300)[0] == text[:2_000]


@given(text=LOOPY)
@example("ab" * 19 + "b" * 19 + "ab")
@example(("a" * 20 + "b") * 20)
def test_cutting_twice_is_cutting_once(text: str) -> None:
    once = cut_loops(text)
    assert cut_loops(once) == once
    assert len(once) <= len(text)


@settings(max_examples=40)
@given(text=LOOPY, sizes=st.lists(st.integers(1, 30), max_size=10), tail=LOOPY)
@example("ab" * 19 + "b" * 19 + "ab" * 5, [77], "")
@example("", [], "aab" * 19 + "aabbaabb" * 2)
def test_a_growing_text_is_cut_like_the_whole(text: str, sizes: list[int], tail: str) -> None:
    whole, states = in_pieces(text + tail, [1] * len(text))
    assert whole == in_pieces(text + tail, sizes)[0] == cut_loops(text + tail)
    assert all(whole.startswith(state) for state in states)


@given(
    before=st.text("xyz ", max_size=9),
    unit=UNITS,
    count=st.integers(20, 60),
    after=st.text("xyz ", max_size=9),
)
def test_whatever_is_left_out_is_copies(before: str, unit: str, count: int, after: str) -> None:
    kept = cut_loops(before + unit * count + after)
    assert len(kept) <= len(before) + (KEPT_COPIES + 1) * len(unit) + len(after)
    assert kept.startswith(before + unit[:1])
    assert kept.endswith(unit[-1:] + after)


def test_natural_text_is_given_at_once() -> None:
    cutter = LoopCutter()
    for piece in ("The quick brown fox", " jumps over the lazy", " dog, and the lazy dog does not mind."):
        assert cutter.feed(piece) == piece


@pytest.mark.parametrize(
    "text",
    [
        "a" * 20_000,
        "ab" * 10_000,
        ("a" * 19 + "b") * 400,
        ("ab" * 19 + "c") * 150,
        "".join("a" * n + "b" for n in range(1, 120)),
        ("x" * MAX_UNIT + "y") * 20,
        LONG_PHRASE * 60,
    ],
)
def test_time_is_bounded(text: str) -> None:
    started = time.process_time()
    cut_loops(text)
    assert time.process_time() - started < 3


def test_the_budget_holds_fast_speech_in_any_script() -> None:
    assert token_budget(0) == token_budget(-1.0) > 19  # the longest header
    assert token_budget(10) >= 10 * 6 * 6
    assert token_budget(10) >= 10 * 9 * 3
    assert token_budget(64) < 64 * 40
    assert [token_budget(s / 10) for s in range(50)] == sorted(token_budget(s / 10) for s in range(50))


@given(
    before=st.lists(st.integers(100, 130), max_size=20, unique=True),
    unit=st.lists(st.integers(0, 90), min_size=1, max_size=MAX_TOKEN_UNIT, unique=True),
    cuts=st.lists(st.integers(1, 50), max_size=20),
)
def test_the_guard_ends_an_answer_at_one_place_however_its_tokens_come(
    before: list[int], unit: list[int], cuts: list[int]
) -> None:
    token_ids = before + unit * TOKEN_COPIES
    whole = LoopGuard()
    assert whole.feed(token_ids[:-1]) is None
    assert whole.feed(token_ids[-1:]) == len(token_ids)
    pieces, start = LoopGuard(), 0
    for size in [*cuts, len(token_ids)]:
        end = pieces.feed([*token_ids, *unit, 99][start : start + size])
        assert end == (len(token_ids) if start + size >= len(token_ids) else None)
        start += size


def test_the_guard_lets_people_repeat_themselves() -> None:
    guard = LoopGuard()
    assert guard.feed([1, 2, 3] * (TOKEN_COPIES - 1) + [4] * (TOKEN_COPIES - 1) + list(range(99))) is None


@pytest.mark.parametrize(
    ("text", "context"),
    [
        ("Sensorium, Qwen, Łukasz", "Sensorium, Qwen, Łukasz"),
        ("sensorium qwen łukasz.", "Sensorium, Qwen, Łukasz"),
        ("Qwen Łukasz Zürich", "Names: Qwen, Łukasz, Zürich"),
        ("東京、大阪", "東京 大阪 京都"),
    ],
)
def test_a_large_part_of_the_context_is_an_echo(text: str, context: str) -> None:
    assert echoes_context(text, context)


@pytest.mark.parametrize(
    ("text", "context"),
    [
        ("", "Sensorium"),
        ("", ""),
        ("Hello", ""),
        ("Ask Łukasz whether Qwen runs", "Qwen, Łukasz"),
        ("Qwen", "Qwen, Łukasz, Zürich, François"),
        ("Łukasz and Qwen", "Qwen, Łukasz"),
        ("...", "..."),
    ],
)
def test_what_only_contains_keywords_is_none(text: str, context: str) -> None:
    assert not echoes_context(text, context)


def test_speaking_takes_time() -> None:
    assert speaking_time_s("") == speaking_time_s(" … ") == 0
    assert 0.25 < speaking_time_s("Turn on the lights") < 1.0
    assert 0.3 < speaking_time_s("東京大阪") < 0.6


@given(st.text(max_size=80), st.floats(0, 3))
def test_what_cannot_be_said_in_the_time_is_cut(text: str, seconds: float) -> None:
    part = spoken_part(text, seconds)
    assert text.startswith(part)
    assert speaking_time_s(part) <= seconds + 1e-6
    assert part == text or speaking_time_s(text) > seconds
    assert spoken_part(part, seconds) == part


def test_an_answer_about_9_and_a_half_seconds_has_287_letters_at_most() -> None:
    loop = "Please, please, press the three button again to record the message. " * 20
    letters = [letter for letter in spoken_part(loop, 9.575) if letter.isalnum()]
    assert 280 <= len(letters) <= 287
    assert len(spoken_part("忙" * 100, 2.01)) == 18
