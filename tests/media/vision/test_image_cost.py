"""Records are counted in whatever bytes a file has: too many are refused, and nothing else is an error."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.media.vision.image_cost import MAX_STRIPS, PNG, check_records, check_scans
from sensorium.media.vision.jpeg import JPEG, lacks_end
from sensorium.media.vision.live_frames import is_picture
from sensorium.protocols.errors import TooLargeError

_HEADS = (JPEG, PNG, b"II*\0", b"MM\0*", b"II+\0", b"MM\0+", b"\0\0\1\0")


@given(st.sampled_from(_HEADS), st.lists(st.sampled_from([b"\xff" * 4, bytes(4), b"\xff\xda", b"\1", PNG])))
def test_any_bytes_are_counted(head: bytes, rest: list[bytes]) -> None:
    data = head + b"".join(rest)
    for check in (check_records, lambda each: check_scans(each, 8, 8)):
        try:
            check(data)
        except TooLargeError as error:
            assert error.param == "image"  # noqa: PT017 (most are not refused)
    assert lacks_end(JPEG + data) in (True, False)
    assert is_picture(data) in (True, False)


@pytest.mark.parametrize(("num_strips", "is_refused"), [(MAX_STRIPS, False), (MAX_STRIPS + 1, True)])
def test_strips_are_counted_by_the_directory(num_strips: int, is_refused: bool) -> None:
    big = struct.pack("<4sHHQ", b"II+\0", 8, 0, 16) + struct.pack("<QHHQQ", 1, 273, 16, num_strips, 0)
    if is_refused:
        with pytest.raises(TooLargeError, match="strips"):
            check_records(big)
    else:
        check_records(big)
