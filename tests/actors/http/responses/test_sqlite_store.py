"""Responses in a file: as they were after a restart or a kill, within bounds that keys share."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sensorium.actors.callers import Caller, caller_by_address
from sensorium.actors.errors import ConfigError
from sensorium.actors.http.responses.row_codec import (
    KeptResponse,
    Row,
    UnreadableRowError,
    from_row,
    to_row,
)
from sensorium.actors.http.responses.sqlite_store import ResponseFile
from sensorium.protocols.chat.content import ChatMessage, MediaAddress, MediaPart, TextPart
from sensorium.protocols.responses.output_items import (
    FunctionCall,
    OutputMessage,
    OutputText,
    ResponseStatus,
)
from support.kept_responses import MINE, YOURS, kept


def opened(path: Path, **bounds: Any) -> ResponseFile:  # noqa: ANN401
    limits: dict[str, Any] = {"now": 0.0, "max_bytes": 10**8, "kept_s": 1000.0}
    _OPENED.append(ResponseFile(path, **(limits | bounds)))
    return _OPENED[-1]


_OPENED: list[ResponseFile] = []


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """Whatever is opened is closed: from Python 3.13 on a connection that is forgotten open is a warning."""
    yield tmp_path / "responses.db"
    while _OPENED:
        _OPENED.pop()._base.close()


def names(file: ResponseFile, *candidates: str, now: float = 0.0) -> str:
    return "".join(name for name in candidates if file.load(name, now=now) is not None)


def test_a_response_comes_back_as_it_was(path: Path) -> None:
    whole = kept("a", size=3 * (1 << 20))
    output = [
        OutputMessage(id="m", status="completed", content=[OutputText(text="ü")]),
        FunctionCall(id="f", call_id="c", name="now", arguments="{}", status="completed"),
    ]
    call = {"id": "c", "type": "function", "function": {"name": "now", "arguments": {"a": [None, 1.5, "b"]}}}
    address = MediaAddress("https://example.com/a.png", "input[1].image_url")
    messages = (
        ChatMessage(role="assistant", content=None, extra={"tool_calls": [call]}, param="input[0]"),
        ChatMessage(role="tool", content="late", extra={"tool_call_id": "c"}, param="input[1]"),
        ChatMessage(
            role="user",
            content=(
                TextPart("a"),
                MediaPart("video", b"", "p", address, "clip"),
                MediaPart("audio", b"x", "q"),
                MediaPart("image", b"y", "r", is_low=True),
            ),
            extra={},
            param="input[2]",
        ),
        *whole.messages,
    )
    response = msgspec.structs.replace(whole.response, output=output, metadata={"a": "b"})
    original = KeptResponse(MINE, response, [msgspec.Raw(b'{"id": "x"}')], messages)
    assert from_row(MINE, to_row(original)) == original
    file = opened(path)
    file.save(original, now=1.0)
    assert file.load("a", now=2.0) == original
    file.close()
    assert opened(path).load("a", now=2.0) == original


def test_integers_of_any_size_come_back(path: Path) -> None:
    """JSON has them; MessagePack does not."""
    tools = (
        b'[{"name": "f", "parameters": {"properties": {"a": {"maximum": 1e99, "minimum": -%d}}}}]' % 10**30
    )
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": {"a": 10**20}}}
    message = ChatMessage(role="assistant", content=None, extra={"tool_calls": [call]}, param="input[0]")
    whole = kept("a", image=b"\x00\xff")
    response = msgspec.structs.replace(whole.response, tools=msgspec.Raw(tools))
    original = KeptResponse(MINE, response, [msgspec.Raw(b'{"id": "x"}')], (message, *whole.messages))
    file = opened(path)
    file.save(original, now=1.0)
    found = file.load("a", now=2.0)
    assert found is not None
    assert found.messages == original.messages
    assert bytes(found.input_items[0]) == b'{"id": "x"}'
    assert msgspec.json.encode(found.response) == msgspec.json.encode(response)


def test_rows_of_before_are_read() -> None:
    """A response was an object in them."""
    whole = kept("a")
    row = to_row(whole)
    body = msgspec.msgpack.decode(row.body)
    body[0] = msgspec.json.decode(body[0])
    assert from_row(MINE, Row(msgspec.msgpack.encode(body), row.media)) == whole


def test_what_was_saved_is_there_after_a_kill(path: Path, tmp_path: Path) -> None:
    """The files as they lie there while a server has them open."""
    file = opened(path)
    file.save(kept("a", size=1000), now=1.0)
    file.save(kept("b", status="in_progress"), now=1.0)
    copy = tmp_path / "copy.db"
    for suffix in ("", "-wal"):
        shutil.copy(f"{path}{suffix}", f"{copy}{suffix}")
    again = opened(copy, now=2.0)
    assert again.load("a", now=2.0) == kept("a", size=1000)
    ended = again.load("b", now=2.0)
    assert ended is not None
    assert (ended.response.status, ended.is_finished) == ("failed", True)
    assert ended.response.error is not None
    assert "The server ended" in ended.response.error.message


def test_they_expire_by_the_clock_on_the_wall(path: Path) -> None:
    file = opened(path, kept_s=100.0)
    file.save(kept("a"), now=0.0)
    file.save(kept("b"), now=90.0)
    assert names(file, "a", "b", now=95.0) == "ab"
    assert names(file, "a", "b", now=101.0) == "b"
    file.save(kept("c"), now=101.0)
    assert file.num_kept == 2, "what is too old goes with the next that is kept"


def test_who_keeps_most_gives_way(path: Path) -> None:
    file = opened(path, max_bytes=60_000)
    for name in "abcd":
        file.save(kept(name, size=13_000, image=os.urandom(6500)), now=1.0 + ord(name))
    file.save(kept("y", YOURS, size=13_000), now=0.5)
    assert names(file, *"abcdy") == "bcdy"
    file.save(kept("z", YOURS, size=13_000), now=0.6)
    assert names(file, *"abcdyz") == "cdyz"
    file.close()
    file = opened(path, max_bytes=60_000)
    file.save(kept("e", size=13_000, image=os.urandom(6500)), now=500.0)
    assert names(file, *"cdeyz") == "deyz", "who holds what is known after a restart"


def test_one_that_is_too_large_is_not_kept_and_the_number_is_bounded(path: Path) -> None:
    file = opened(path, max_bytes=10_000, max_kept=2)
    file.save(kept("a"), now=1.0)
    file.save(kept("b", size=50_000), now=2.0)
    assert names(file, "a", "b") == "a"
    for name in "cd":
        file.save(kept(name), now=3.0)
    assert names(file, *"acd") == "cd"
    assert file.num_kept == 2


def test_a_picture_of_ten_turns_is_stored_once_for_each_key(path: Path) -> None:
    file, picture = opened(path), os.urandom(200_000)
    for turn in range(10):
        file.save(kept(f"turn {turn}", image=picture), now=1.0)
    assert 200_000 < file.num_bytes < 220_000
    file.save(kept("other", YOURS, image=picture), now=1.0)
    assert file.num_bytes > 400_000
    for turn in range(10):
        assert file.load("turn 9", now=1.0) == kept("turn 9", image=picture)
        file.delete(f"turn {turn}")
    assert 200_000 < file.num_bytes < 201_500
    file.delete("other")
    assert (file.num_bytes, file.num_kept) == (0, 0)
    file.close()
    assert picture[:64] not in path.read_bytes(), "what is forgotten is gone"


operations = st.one_of(
    st.tuples(
        st.just("save"),
        st.sampled_from("abcdef"),
        st.sampled_from((MINE, YOURS)),
        st.integers(0, 4000),
        st.booleans(),
    ),
    st.tuples(st.just("delete"), st.sampled_from("abcdef")),
    st.tuples(st.just("open")),
)


@settings(max_examples=20, deadline=None)
@given(st.lists(operations, max_size=25))
def test_the_count_is_what_is_there(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]]
) -> None:
    """Whatever is saved, replaced, deleted and pushed out: sums agree with the tables, and bounds hold."""
    path = tmp_path_factory.mktemp("file") / "responses.db"
    file, now = opened(path, max_bytes=12_000, max_kept=4), 0.0
    for step in steps:
        now += 1.0
        match step:
            case ("save", name, owner, size, is_shared):
                image = b"x" * 1500 if is_shared else b""
                file.save(kept(name, owner, size, image=image), now=now)
            case ("delete", name):
                file.delete(name)
            case _:
                file.close()
                file = opened(path, max_bytes=12_000, max_kept=4)
        fresh = file.num_bytes, file.num_kept
        file._held, file.num_kept = file._counted()
        assert (file.num_bytes, file.num_kept) == fresh
        assert file.num_bytes <= 12_000
        assert file.num_kept <= 4
        assert {owner for owner, size in file._held.items() if size} <= {MINE, YOURS}
    file.close()


def test_a_change_that_fails_changes_nothing(path: Path) -> None:
    file = opened(path)
    file.save(kept("a", size=1000), now=1.0)
    file._base.execute("PRAGMA max_page_count = 30")
    before = file.num_bytes
    with pytest.raises(sqlite3.OperationalError, match="full"):
        file.save(kept("a", image=os.urandom(500_000)), now=2.0)
    assert file.num_bytes == before
    assert file.load("a", now=2.0) == kept("a", size=1000)
    file.save(kept("b"), now=3.0)


def test_only_its_owner_may_read_the_file(path: Path) -> None:
    opened(path).save(kept("a", caller_by_address("10.0.0.1")), now=1.0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(f"{path}-wal").stat().st_mode) == 0o600


def test_no_key_is_in_it(path: Path) -> None:
    file = opened(path)
    file.save(kept("a", Caller("digest", has_key=True)), now=1.0)
    found = file.load("a", now=1.0)
    assert found is not None
    assert found.owner == Caller("digest", has_key=True)


def refused(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        opened(path)
    message = str(caught.value)
    assert message.startswith(f"--response-store is '{path}': ")
    assert "\n" not in message
    return message.removeprefix(f"--response-store is '{path}': ")


def test_what_is_no_file_of_ours_is_named_and_left_as_it_is(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"Dear diary, today" * 100)
    assert refused(path) == "file is not a database"
    assert path.read_bytes().startswith(b"Dear diary")
    foreign = tmp_path / "foreign.db"
    with sqlite3.connect(foreign) as base:
        base.execute("CREATE TABLE bookmarks (url TEXT)")
    base.close()
    before = foreign.read_bytes()
    assert refused(foreign) == "it is not a store of responses"
    assert foreign.read_bytes() == before
    assert refused(tmp_path) == "Is a directory"
    assert refused(tmp_path / "nowhere" / "responses.db") == "No such file or directory"


def test_a_damaged_file_is_named(path: Path) -> None:
    file = opened(path)
    for index in range(40):
        file.save(kept(f"{index}", size=8000), now=1.0)
    file.close()
    data = bytearray(path.read_bytes())
    data[8192:60_000] = b"\x55" * (60_000 - 8192)
    path.write_bytes(data)
    assert "damaged" in refused(path) or "malformed" in refused(path)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"[1,2",
        b"\x93\xa0\xa0\xa0",
        b"[" * 100_000,
        b"\x91" * 1_000_000,
        b'["\xff"]',
        b"\xc0",
    ],
)
@pytest.mark.parametrize("status", ["in_progress", "completed"])
def test_a_row_that_cannot_be_read_fails_alone(
    path: Path, body: bytes, status: ResponseStatus, caplog: pytest.LogCaptureFixture
) -> None:
    file = opened(path)
    for name in "ab":
        file.save(kept(name, status=status, image=b"picture"), now=1.0)
    file.close()
    damage(path, "UPDATE responses SET body = ? WHERE id = 'a'", body)
    file = opened(path, now=2.0)
    assert ("a cannot be read" in caplog.text) == (status == "in_progress")
    with pytest.raises(UnreadableRowError):
        file.load("a", now=2.0)
    found = file.load("b", now=2.0)
    assert found is not None
    assert found.response.status == ("failed" if status == "in_progress" else "completed")
    file.delete("a")
    file.delete("b")
    assert (file.num_kept, file.num_bytes) == (0, 0)


@pytest.mark.parametrize(
    "change",
    [
        "responses SET body = 'text'",
        "responses SET body = 2.5",
        "responses SET owner = x'ff'",
        "responses SET size = 'many'",
        "responses SET size = -1",
        "responses SET written = 'today'",
        "media SET size = 'many'",
        "media SET owner = x'ff'",
        "media SET digest = x'00'",
    ],
)
def test_rows_of_wrong_types_are_dropped_and_reported(
    path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = opened(path)
    file.save(kept("a", status="in_progress", image=b"picture"), now=1.0)
    file.save(kept("b", YOURS, status="in_progress", image=b"other"), now=1.0)
    file.close()
    damage(path, f"UPDATE {change} WHERE owner = ?", MINE.name)
    file = opened(path, now=2.0)
    assert "damaged rows were dropped" in caplog.text
    assert names(file, "b", now=2.0) == "b"
    file.save(kept("a"), now=3.0)
    file.delete("a")
    file.delete("b")
    assert file.num_kept == 0


def test_a_name_that_is_no_text_fails_no_start(path: Path) -> None:
    file = opened(path)
    file.save(kept("a", status="in_progress"), now=1.0)
    file.save(kept("b", status="in_progress"), now=1.0)
    file.close()
    damage(
        path, "UPDATE responses SET owner = CAST(x'ff' AS TEXT), id = CAST(x'fe' AS TEXT) WHERE id = ?", "a"
    )
    assert names(opened(path, now=2.0), "a", "b", now=2.0) == "b"


def damage(path: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(statement, values)


def test_another_version_is_named(path: Path) -> None:
    opened(path).close()
    with sqlite3.connect(path) as base:
        base.execute("PRAGMA user_version = 7")
    base.close()
    assert refused(path) == "it is of version 7; this server reads 1"


def test_a_file_is_one_servers(path: Path) -> None:
    file = opened(path)
    assert refused(path) == "another server uses it"
    file.close()
    opened(path).close()


@pytest.mark.parametrize("log_too", [False, True])
def test_one_that_was_removed_is_written_again(path: Path, log_too: bool) -> None:
    file = opened(path)
    file.save(kept("a", image=b"picture" * 1000), now=0.0)
    assert not file.refresh()
    path.unlink()
    if log_too:
        Path(f"{path}-wal").unlink()
    assert file.refresh()
    assert not file.refresh()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    file.save(kept("b"), now=0.0)
    assert (file.num_kept, names(file, "a", "b")) == (2, "ab")
    file.close()
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name]
    again = opened(path)
    assert names(again, "a", "b") == "ab"
    again.close()


def test_one_that_was_removed_is_there_again_at_the_end(path: Path) -> None:
    file = opened(path)
    file.save(kept("a"), now=0.0)
    path.unlink()
    file.close()
    again = opened(path)
    assert names(again, "a") == "a"
    again.close()


def test_one_that_was_moved_away_and_back_goes_on(path: Path, tmp_path: Path) -> None:
    folder, elsewhere = path.parent / "store", tmp_path / "elsewhere"
    folder.mkdir()
    file = opened(folder / "responses.db")
    file.save(kept("a"), now=0.0)
    folder.rename(elsewhere)
    with pytest.raises(FileNotFoundError):
        file.refresh()
    assert names(file, "a") == "a", "what is open can be read"
    elsewhere.rename(folder)
    assert not file.refresh()
    file.save(kept("b"), now=0.0)
    file.close()
    again = opened(folder / "responses.db")
    assert names(again, "a", "b") == "ab"
    again.close()


def test_one_that_may_not_be_written_is_not(path: Path) -> None:
    file = opened(path)
    file.save(kept("a"), now=0.0)
    path.chmod(0o400)
    with pytest.raises(PermissionError):
        file.refresh()
    path.chmod(0o600)
    assert not file.refresh()
    file.close()


def test_another_that_lies_there_is_opened_without_our_log(path: Path, tmp_path: Path) -> None:
    other = opened(tmp_path / "other.db")
    other.save(kept("other"), now=0.0)
    other.close()
    file = opened(path)
    file.save(kept("a"), now=0.0)
    (tmp_path / "other.db").replace(path)
    assert file.refresh()
    assert (file.num_kept, names(file, "a", "other")) == (1, "other")
    file.close()


def test_what_lies_there_and_is_no_store_is_left_alone(path: Path) -> None:
    file = opened(path)
    file.save(kept("a"), now=0.0)
    path.unlink()
    path.write_text("somebody's notes, which are long enough to be looked at" * 100)
    for _ in range(2):
        with pytest.raises(sqlite3.DatabaseError):
            file.refresh()
    assert path.read_text().startswith("somebody's notes")
    assert names(file, "a") == "a"
    path.unlink()
    assert file.refresh()
    assert names(file, "a") == "a"
    file.close()


def test_what_is_no_regular_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="it is not a regular file"):
        opened(tmp_path / "pipe")
    assert [each.name for each in tmp_path.iterdir()] == ["pipe"]
