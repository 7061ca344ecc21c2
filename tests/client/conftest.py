"""What the commands' tests share."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from sensorium.client.audio import Audio, wav_bytes


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """One second of audio."""
    path = tmp_path / "talk.wav"
    path.write_bytes(wav_bytes(Audio(array("h", range(16_000)).tobytes(), 16_000)))
    return path
