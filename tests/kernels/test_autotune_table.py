"""Choices kept in a cache, shared in a file, or pinned; and what happens when any of that is wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import cycle, repeat
from pathlib import Path

import msgspec
import pytest
import torch
from sensorium.kernels.autotune import Choice
from sensorium.kernels.autotune_table import (
    BUDGET_S,
    Entry,
    Settled,
    Table,
    TableError,
    apply,
    key_of,
    pin,
    read_table,
    remember,
    settle,
    this_machine,
    write_table,
)
from support.choices import ROWS, Stopwatch, any_threads, no_others, scripted

NEW = Entry(dict.fromkeys(ROWS, "new"), [{"new"}])


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A home of its own, so that nothing is kept beyond the test."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    with no_others(monkeypatch):
        yield tmp_path / "home"


def faster_by_rows(name: str, rows: int) -> Iterator[float]:
    return repeat(1e-3 if name == "old" else 0.5e-3)


def start(
    seconds: Callable[[str, int], Iterator[float]] = faster_by_rows,
) -> tuple[Choice, Stopwatch, Settled]:
    """What a process does when it starts: make its choices, settle them."""
    clock = Stopwatch()
    choice = scripted(clock, seconds)
    return choice, clock, settle(any_threads, clock)


def cached(home: Path) -> Path:
    (path,) = (home / ".cache" / "sensorium").glob("choices-*.json")
    return path


def test_what_was_measured_once_is_found_again() -> None:
    first, _, settled = start()
    assert settled == Settled(measured=1)
    del first
    second, clock, settled = start()
    assert settled == Settled(found=1)
    assert clock.num_calls == 0
    assert second.chosen == ("new",) * 4


def test_what_is_settled_is_left_alone() -> None:
    _first, clock, _ = start()
    assert settle(any_threads, clock) == Settled()


def test_other_threads_are_another_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    def threads(rows: int) -> None:
        monkeypatch.setattr(torch, "get_num_threads", lambda: 1 if rows < 8 else 2)

    choice = scripted(Stopwatch(), faster_by_rows)
    assert key_of(choice, threads) == "product 8x8, threads 1/2"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"processors": []}',
        b'{"choices": {"product 8x8, threads 1": {"chosen": {"x": 1}}}}',
        b" " * (1 << 21),
    ],
)
def test_a_broken_cache_is_as_if_it_were_not_there(home: Path, content: bytes) -> None:
    first, _, _ = start()
    del first
    cached(home).write_bytes(content)
    second, clock, settled = start()
    assert settled == Settled(measured=1)
    assert clock.num_calls
    assert second.chosen == ("new",) * 4
    assert msgspec.json.decode(cached(home).read_bytes(), type=Table).choices


def test_a_cache_that_cannot_be_written_hurts_nobody(home: Path) -> None:
    (home / ".cache").write_text("no folder")
    choice, _, settled = start()
    assert settled == Settled(measured=1)
    assert choice.chosen == ("new",) * 4


def test_a_busy_machine_keeps_its_defaults_and_nothing_else(home: Path) -> None:
    choice, _, settled = start(lambda name, _: cycle([1e-3, 9e-3, 9e-3]))
    assert settled == Settled(left=1)
    assert choice.chosen == ("old",) * 4
    assert not list((home / ".cache" / "sensorium").glob("choices-*"))


def test_what_was_measured_while_others_computed_is_measured_again(home: Path) -> None:
    """Every round takes as long, and yet a thread always waited."""
    clock = Stopwatch()
    clock.waiting = 0.4
    choice = scripted(clock, faster_by_rows)
    assert settle(any_threads, clock, waited=clock.waited) == Settled(left=1)
    assert choice.chosen == ("old",) * 4
    assert not list((home / ".cache" / "sensorium").glob("choices-*"))
    clock.waiting = 0.0
    assert settle(any_threads, clock, waited=clock.waited) == Settled(measured=1)
    assert choice.chosen == ("new",) * 4


@pytest.mark.parametrize("calm", [0, 1])
def test_what_others_disturb_at_either_look_is_not_kept(home: Path, calm: int) -> None:
    """One look of four rows is calm, seven calls of either candidate each; then others come."""
    clock = Stopwatch()
    choice = scripted(
        clock, lambda name, rows: _disturbed(clock, calm * 4 * 2 * 7, 1e-3 if name == "old" else 0.5e-3)
    )
    assert settle(any_threads, clock, waited=clock.waited) == Settled(left=1)
    assert choice.chosen == ("old",) * 4
    assert not list((home / ".cache" / "sensorium").glob("choices-*"))


def _disturbed(clock: Stopwatch, num_calm: int, seconds: float) -> Iterator[float]:
    while True:
        clock.waiting = 0.5 if clock.num_calls > num_calm else 0.0
        yield seconds


def test_what_a_second_look_does_not_confirm_is_kept_as_the_default(home: Path) -> None:
    """Somebody took the default's time evenly at the first look, and is gone at the second."""
    clock = Stopwatch()
    choice = scripted(clock, lambda name, _: _once_slow(clock, name))
    assert settle(any_threads, clock, waited=clock.waited) == Settled(measured=1)
    assert choice.chosen == ("old",) * 4
    (entry,) = read_table(cached(home), this_machine()).choices.values()
    assert set(entry.chosen.values()) == {"old"}


def _once_slow(clock: Stopwatch, name: str) -> Iterator[float]:
    while True:
        yield 2e-3 if name == "old" and clock.num_calls <= 4 * 2 * 7 else 1e-3


def test_a_start_takes_no_longer_than_it_may() -> None:
    clock = Stopwatch()
    slow = [scripted(clock, lambda *_: repeat(0.05), shape=str(number)) for number in range(9)]
    settled = settle(any_threads, clock)
    assert settled.left
    assert settled.measured + settled.left == len(slow)
    assert clock.now <= BUDGET_S + 4 * 0.05
    again = settle(any_threads, clock)
    assert again.measured
    assert again.left < settled.left


def test_processes_that_write_at_once_leave_a_whole_table(home: Path) -> None:
    code = (
        "import sys; from sensorium.kernels.autotune_table import *\n"
        "for number in range(30):\n"
        "    remember({f'{sys.argv[1]} {number}': Entry({1: 'new'})}, this_machine())"
    )
    processes = [subprocess.Popen([sys.executable, "-c", code, name]) for name in "ab"]
    assert [process.wait() for process in processes] == [0, 0]
    kept = read_table(cached(home), this_machine()).choices
    assert {"a 29", "b 29"} & set(kept)
    assert list(cached(home).parent.glob("choices-*")) == [cached(home)]


def test_what_others_measured_meanwhile_is_kept(home: Path) -> None:
    remember({"theirs": Entry({1: "new"})}, this_machine())
    remember({"ours": Entry({1: "new"})}, this_machine())
    assert set(read_table(cached(home), this_machine()).choices) == {"theirs", "ours"}


def saved(folder: Path, **changes: object) -> Path:
    """A table of this machine, changed."""
    path = folder / "table.json"
    table = msgspec.structs.replace(this_machine(), **changes)
    write_table(path, table)
    return path


def test_a_table_is_used_instead_of_measuring(tmp_path: Path) -> None:
    clock = Stopwatch()
    choice = scripted(clock, faster_by_rows)
    table = saved(tmp_path, choices={key_of(choice, any_threads): NEW})
    assert settle(any_threads, clock, table=table) == Settled(found=1)
    assert choice.chosen == ("new",) * 4
    assert clock.num_calls == 0


def test_a_processor_may_have_other_names(tmp_path: Path) -> None:
    ours = this_machine().processors[0]
    assert read_table(saved(tmp_path, processors=["EPYC 9R14", ours]), this_machine()).processors[1] == ours


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"processors": ["Z80"]}, "is for processors Z80; this one is "),
        ({"flags": "mmx"}, "was made where flags is 'mmx'; here it is "),
        ({"torch": "1.0"}, "was made where torch is '1.0'; here it is "),
        ({"kernels": "0"}, "was made where kernels is '0'; here it is "),
        ({}, "has no usable choice of product 8x8, threads "),
        ({"choices": {"product 8x8, threads 1": Entry({1: "new"})}}, "has no usable choice of product 8x8"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_in_a_line(
    tmp_path: Path, changes: dict[str, object], line: str
) -> None:
    clock = Stopwatch()
    choice = scripted(clock, faster_by_rows)
    with pytest.raises(TableError, match=line) as raised:
        settle(any_threads, clock, table=saved(tmp_path, **changes))
    assert str(raised.value).startswith(str(tmp_path))
    assert "\n" not in str(raised.value)
    assert choice.chosen == ("old",) * 4


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    _choice = scripted(Stopwatch(), faster_by_rows)
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(TableError, match="is not a table of kernels"):
            settle(any_threads, Stopwatch(), table=path)


@pytest.mark.parametrize(
    ("chosen", "alike", "is_taken"),
    [
        (("new", "new", "new", "old"), [{"new"}], True),
        (("old", "new", "old", "old"), [{"old", "new"}], True),
        (("old", "new", "old", "old"), [{"old"}, {"new"}], False),
        (("new", "new", "new", "new"), [], False),
        (("old", "old", "old", "new"), [], True),
        (("other", "old", "old", "old"), [{"other", "old"}], False),
    ],
)
def test_no_table_mixes_what_differs(chosen: tuple[str, ...], alike: list[set[str]], is_taken: bool) -> None:
    choice = scripted(Stopwatch(), faster_by_rows)
    assert apply(choice, Entry(dict(zip(ROWS, chosen, strict=True)), alike)) is is_taken
    assert choice.chosen == (chosen if is_taken else ("old",) * 4)


def test_a_pin_goes_before_measuring() -> None:
    clock = Stopwatch()
    choice = scripted(clock, lambda name, _: repeat(1e-3 if name == "old" else 9e-3))
    pin({"product": "new"})
    assert settle(any_threads, clock) == Settled()
    assert choice.chosen == ("new",) * 4


@pytest.mark.parametrize(
    ("pins", "line"),
    [
        ({"product": "b"}, "allowed: new, old"),
        ({"sum": "new"}, "sum=new pins no operation; allowed: product"),
    ],
)
def test_a_pin_of_nothing_is_refused(pins: dict[str, str], line: str) -> None:
    _choice = scripted(Stopwatch(), faster_by_rows)
    with pytest.raises(TableError, match=line):
        pin(pins)
