"""Parcels survive the stream, in any pieces and with any others' between their parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.actors.engine_process.framing import (
    HEADER,
    MAX_FRAME,
    MAX_MESSAGE,
    FrameError,
    FrameReader,
    large_frames,
    small_frame,
)

Parts = tuple[int, list[bytes]]


def read(data: Sequence[bytes]) -> Iterator[Parts]:
    reader = FrameReader()
    for each in data:
        for encoded in reader.feed(each):
            yield encoded.call, encoded.joined()


def frames(call: int, parts: Sequence[bytes]) -> list[bytes]:
    """Each as one piece."""
    return [b"".join(frame) for frame in large_frames(call, parts[0], parts[1:])]


sizes = st.sampled_from([0, 1, 13, 1000, MAX_FRAME - 1, MAX_FRAME, MAX_FRAME + 1, 3 * MAX_FRAME])
contents = st.lists(sizes, min_size=1, max_size=4).map(
    lambda found: [bytes([65 + place]) * size for place, size in enumerate(found)]
)


@given(st.lists(contents, min_size=1, max_size=4), st.randoms(), st.sampled_from([1, 4099, 10**9]))
def test_messages_arrive_whole(messages: list[list[bytes]], random: object, step: int) -> None:
    """However they are mixed, and cut on their way: whole, in pieces, by single bytes."""
    waiting = {call: frames(call, parts) for call, parts in enumerate(messages)}
    mixed: list[bytes] = []
    while waiting:
        call = random.choice(sorted(waiting))  # type: ignore[attr-defined]
        mixed.append(waiting[call].pop(0))
        waiting = {key: left for key, left in waiting.items() if left}
    data = b"".join(mixed)
    if step == 1:  # by single bytes, of those that are not too many
        cut = [data[at : at + 1] for at in range(min(len(data), 3000))] + [data[3000:]]
    else:
        cut = [data[at : at + step] for at in range(0, len(data), step)]
    assert dict(read(cut)) == dict(enumerate(messages))


@given(st.binary(max_size=100))
def test_a_small_message_is_one_frame(head: bytes) -> None:
    frame = small_frame(7, head)
    assert frame is not None
    assert len(frame) == HEADER.size + len(head)
    assert list(read([frame])) == [(7, [head])]
    assert small_frame(7, bytes(MAX_FRAME + 1)) is None


def test_nothing_large_is_copied_to_be_sent() -> None:
    data = bytes(5 * MAX_FRAME)
    views = [part for frame in large_frames(1, b"", [data]) for part in frame if isinstance(part, memoryview)]
    assert all(view.obj is data for view in views)
    assert sum(map(len, views)) == len(data)


def test_what_a_call_has_begun_ends_with_its_next_frame() -> None:
    begun = frames(1, [b"head", bytes(2 * MAX_FRAME)])[:2]
    leave = small_frame(1, b"leave")
    assert leave is not None
    assert list(read([*begun, leave])) == [(1, [b"leave"])]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (HEADER.pack(MAX_FRAME + 1, 0, 1), "a frame of kind 0 and 131073 bytes"),
        (HEADER.pack(1, 3, 1), "kind 3"),
        (HEADER.pack(1, 2, 1) + b"x", "did not begin"),
        (HEADER.pack(3, 1, 1) + b"abc", "3 bytes are not a list of sizes"),
        (HEADER.pack(8, 1, 1) + (MAX_MESSAGE + 1).to_bytes(8, "big"), "a message of 2147483649 bytes"),
        (HEADER.pack(8, 1, 1) + (1).to_bytes(8, "big") + HEADER.pack(2, 2, 1) + b"ab", "more than it"),
    ],
)
def test_nonsense_is_named(data: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        list(read([data]))


def test_too_much_is_not_sent() -> None:
    with pytest.raises(FrameError, match="20000 buffers"):
        list(large_frames(1, b"", [b""] * 19_999))
