"""The rows of the fairness bench send what they say, and a broken promise is called one."""

from __future__ import annotations

import io
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

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


BENCH = """
import attack
with attack.another("--be", "storm", "--url", "http://127.0.0.1:1") as attacker:
    print(attacker.pid, flush=True)
    attacker.wait()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process can ask to end with another")
def test_attackers_give_way_and_end_with_a_bench_that_is_killed() -> None:
    folder = Path(attack.__file__).parent
    with subprocess.Popen([sys.executable, "-c", BENCH], stdout=subprocess.PIPE, cwd=folder) as bench:
        assert bench.stdout is not None
        attacker = int(bench.stdout.readline())
        descriptor = os.pidfd_open(attacker)
        try:
            while os.getpriority(os.PRIO_PROCESS, attacker) < 19:
                pass
            bench.send_signal(signal.SIGKILL)
            ended, _, _ = select.select([descriptor], [], [], 60)
        finally:
            os.close(descriptor)
    assert ended
