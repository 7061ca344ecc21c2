"""The JavaScript client (`client/js/`): its pure parts, and a real server that it is run against in Node."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from sensorium.actors.config.server import DEFAULT_MODELS, ListenConfig
from support.server import make_config, running_server

TESTS = Path(__file__).parents[1] / "client" / "js"
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed: apt-get install nodejs")


def run_node(*files: Path, **environment: str) -> None:
    """Fail with what Node's test runner prints if one of its tests fails."""
    command = (NODE or "node", "--experimental-websocket", "--no-warnings", "--test", *map(str, files))
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\n# pass 0\n" not in done.stdout, done.stdout


def test_parts_without_sockets() -> None:
    run_node(*sorted(TESTS.glob("*.test.mjs")))


def test_against_a_real_server() -> None:
    listen = ListenConfig(port=0, drain_s=5.0, api_key=("alice",))
    with (
        running_server(make_config(*DEFAULT_MODELS)) as server,
        running_server(make_config("tiny-whisper", listen=listen)) as keyed,
    ):
        run_node(TESTS / "server.mjs", SENSORIUM_URL=server.url, SENSORIUM_KEYED_URL=keyed.url)
        server.wait_quiet()
