"""Some hundred seeded requests, with native panics among them; more by hand: `docs/reliability.md`."""

from __future__ import annotations

from pathlib import Path

import pytest
from reliability.storm import SPEECH_MODEL, storm
from sensorium.actors.config.server import EngineConfig
from support.server import make_config, running_server
from support.text_folder import make_qwen3_folder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_qwen3_folder(tmp_path_factory.mktemp("models") / "text")


def test_every_request_is_answered_and_the_server_goes_on(folder: Path) -> None:
    engine = EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="64MiB", max_running=8)
    with running_server(make_config(str(folder), SPEECH_MODEL, engine=engine)) as server:
        met = storm(server, number=400, seed=20261128)
        server.wait_quiet()
    assert met.num_panics > 3
    assert met.num_turns > 0
    assert met.statuses[200] > 40
    assert met.statuses[500] > 1
