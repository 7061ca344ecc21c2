"""Other servers' names of Whisper."""

from __future__ import annotations

from pathlib import Path

import pytest
from sensorium.engine.models import weights
from sensorium.engine.models.hub_names import hub_name


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("base", "openai/whisper-base"),
        ("tiny.en", "openai/whisper-tiny.en"),
        ("large", "openai/whisper-large-v3"),
        ("large-v1", "openai/whisper-large"),
        ("large-v3-turbo", "openai/whisper-large-v3-turbo"),
        ("turbo", "openai/whisper-large-v3-turbo"),
        ("Systran/faster-whisper-large-v3", "openai/whisper-large-v3"),
        ("Systran/faster-whisper-small.en", "openai/whisper-small.en"),
        ("Systran/faster-distil-whisper-large-v3", "Systran/faster-distil-whisper-large-v3"),
        ("openai/whisper-base", "openai/whisper-base"),
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B"),
    ],
)
def test_names_of_whisper(name: str, expected: str) -> None:
    assert hub_name(name) == expected


def test_a_folder_of_that_name_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[str] = []

    def download(name: str) -> Path:
        requested.append(name)
        return tmp_path

    monkeypatch.setattr(weights, "_download", download)
    monkeypatch.chdir(tmp_path)
    weights.find_folder("base")
    assert requested == ["openai/whisper-base"]
    (tmp_path / "base").mkdir()
    assert weights.find_folder("base") == Path("base")
    assert len(requested) == 1
