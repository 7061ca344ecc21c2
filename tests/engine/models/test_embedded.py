"""Embedded models are found by name; where they are not installed that is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from sensorium.engine.models import embedded
from sensorium.engine.models.embedded import embedded_models
from sensorium.engine.models.weights import find_folder
from sensorium.protocols.errors import ModelLoadError


def test_they_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mini").mkdir()
    (tmp_path / "mini/config.json").write_text("{}")
    monkeypatch.setattr(embedded, "CHECKPOINTS", tmp_path)
    assert embedded_models() == ("mini",)
    assert find_folder("mini") == tmp_path / "mini"
    with pytest.raises(ModelLoadError, match=r"nor an embedded model \(mini\)$"):
        find_folder("other")


def test_a_clone_has_them_beside_the_source() -> None:
    assert Path(__file__).parents[3] / "engine" / "checkpoints" == embedded.CHECKPOINTS
    assert {"tiny-qwen3-asr", "tiny-qwen3-vl", "tiny-whisper"} <= set(embedded_models())


def test_what_to_install_is_said_where_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "CHECKPOINTS", tmp_path / "missing")
    assert embedded_models() == ()
    with pytest.raises(ModelLoadError, match=r"tiny-whisper: .* pip install \./engine/checkpoints .*\)$"):
        find_folder("tiny-whisper")
