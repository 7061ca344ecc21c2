"""What the commands' tests share."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from sensorium.client import connection
from sensorium.client.audio import Audio, wav_bytes


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """One second of audio."""
    path = tmp_path / "talk.wav"
    path.write_bytes(wav_bytes(Audio(array("h", range(16_000)).tobytes(), 16_000)))
    return path


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that are sent again wait for next to nothing."""
    monkeypatch.setattr(connection, "_FIRST_WAIT_S", 0.001)
