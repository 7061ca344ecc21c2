"""A cluster of one machine, with Ray: a server transcribes, an engine is killed, another takes its place.

Skipped where Ray is not installed, which it is in no environment of ours: 240 MB. To run it:
    pip install '.[cluster]' && pytest tests/e2e/test_cluster.py
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from support.command_line import serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("ray") is None,
        reason="Ray is not installed; pip install '.[cluster]' && pytest tests/e2e/test_cluster.py",
    ),
]

MODEL = "tiny-qwen3-asr"
LIMIT_S = 180.0
SPEECH = Path(__file__).parents[2] / "examples" / "data" / "kitchen_lights.wav"


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def transcribed(url: str) -> int:
    files = {"file": ("a.wav", SPEECH.read_bytes())}
    return httpx.post(
        f"{url}/v1/audio/transcriptions", files=files, data={"model": MODEL}, timeout=LIMIT_S
    ).status_code


def engines_of(pid: int) -> list[int]:
    """Engine processes of the Ray that a process has started."""
    found = subprocess.run(
        ["pgrep", "-f", "--", f"-m sensorium.actors.cluster [0-9]+ {MODEL}"], capture_output=True, text=True
    ).stdout
    return [int(each) for each in found.split() if os.getsid(int(each)) == os.getsid(pid)]


def test_a_server_finds_an_engine_and_its_successor(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef0123456789abcdef")
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": os.urandom(16).hex()}
    log = tmp_path / "cluster.log"
    options = ("--address", "local", "--secret-file", str(secret), "--listen", "127.0.0.1:0")
    with log.open("wb") as output:
        cluster = subprocess.Popen(
            [sys.executable, "-m", "sensorium", "cluster", MODEL, "--kv-memory", "64MiB", *options],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    try:
        until(lambda: "directory on" in log.read_text() or cluster.poll() is not None)
        where = re.search(r"directory on (\S+)", log.read_text())
        assert where is not None, log.read_text()
        arguments = (
            MODEL,
            "--cluster",
            where[1],
            "--engine-secret-file",
            str(secret),
            "--port",
            "0",
        )
        with serving(*arguments) as (_, url):
            assert transcribed(url) == 200
            (engine,) = engines_of(cluster.pid)
            os.kill(engine, signal.SIGKILL)
            until(lambda: httpx.get(f"{url}/health").status_code == 503)
            until(lambda: httpx.get(f"{url}/health").status_code == 200)
            assert transcribed(url) == 200
            assert engines_of(cluster.pid) != [engine]
        cluster.send_signal(signal.SIGTERM)
        assert cluster.wait(60) == 0
        assert not engines_of(cluster.pid)
    finally:
        if cluster.poll() is None:
            cluster.kill()
            cluster.wait()
