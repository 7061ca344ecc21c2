"""The rows of the fairness bench send what they say, and a broken promise is called one."""

from __future__ import annotations

import io

import attack
import av
import greedy
import pytest
from PIL import Image
from sensorium.client.bench.realtime import RealtimeRound


def row(kind: str, final_s: float, upload_s: float) -> attack.Row:
    return attack.Row(kind, 0.0, RealtimeRound(1, final_s=[final_s]), [upload_s], [])


@pytest.mark.parametrize(
    ("kind", "final_s", "upload_s", "is_kept"),
    [
        ("files", 0.19, 0.24, True),
        ("files", 0.21, 0.10, False),
        ("files", 0.10, 0.26, False),
        ("frames", 0.19, 0.10, True),
        ("frames", 0.21, 0.10, False),
    ],
)
def test_what_is_promised(kind: str, final_s: float, upload_s: float, is_kept: bool) -> None:
    assert attack.is_kept(row(kind, final_s, upload_s), row("", 0.1, 0.1)) is is_kept


def test_every_row_of_the_review_is_there() -> None:
    assert {"files", "scans", "regexes", "frames", "completions", "pictures", "video"} <= attack.KINDS.keys()


def test_a_picture_has_as_many_scans_as_asked() -> None:
    few, many = (greedy.scanned(7, side=16, num_scans=num) for num in (1, 40))
    assert many.count(b"\xff\xda") - few.count(b"\xff\xda") == 39
    assert Image.open(io.BytesIO(many)).convert("L").getpixel((8, 8)) == pytest.approx(7, abs=1)


def test_a_film_has_as_many_frames_as_asked() -> None:
    with av.open(io.BytesIO(greedy.film(30))) as container:
        assert sum(1 for _ in container.decode(video=0)) == 30
