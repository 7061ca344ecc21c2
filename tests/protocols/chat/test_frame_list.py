"""Lists of frames come out as they went in; what is no list is refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.chat.frame_list import is_frame_list, pack_frames, unpack_frames
from sensorium.protocols.errors import MediaError


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=20), st.floats(0, 1000))
def test_what_goes_in_comes_out(frames: list[bytes], fps: float) -> None:
    data = pack_frames(frames, fps)
    assert is_frame_list(data)
    assert unpack_frames(data) == (frames, fps)


@given(st.binary(max_size=60), st.integers(0, 200))
def test_damage_is_refused_or_gives_frames(rest: bytes, cut: int) -> None:
    whole = pack_frames([b"one", b"two"], 2.0)
    for data in (whole[:17] + rest, whole[:cut], whole + rest):
        if is_frame_list(data) and data != whole:
            with suppress(MediaError):
                assert unpack_frames(data)[0]


def test_none_are_no_list() -> None:
    with pytest.raises(MediaError):
        unpack_frames(pack_frames([]))
