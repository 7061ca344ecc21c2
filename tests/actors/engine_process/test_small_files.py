"""What crosses to who faces clients is the small files, by one digest, into a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from sensorium.actors.engine_process import small_files
from sensorium.actors.engine_process.messages import CheckpointFiles
from sensorium.actors.engine_process.small_files import Checkpoint, read_checkpoint
from sensorium.protocols.errors import ModelLoadError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    for name in (
        "config.json",
        "tokenizer.json",
        "chat_template.jinja",
        "merges.txt",
        "spiece.model",
        "model.safetensors",
        "model.safetensors.index.json",
        "additional_chat_templates/tool_use.jinja",
        "1_Pooling/config.json",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"of {name}")
    return folder


def test_small_files_are_written_as_they_were_read(folder: Path, tmp_path: Path) -> None:
    checkpoint = read_checkpoint(folder)
    checkpoint.write(tmp_path / "other")
    written = [path for path in (tmp_path / "other").rglob("*") if path.is_file()]
    assert {path.relative_to(tmp_path / "other").as_posix() for path in written} == {
        "config.json",
        "tokenizer.json",
        "chat_template.jinja",
        "merges.txt",
        "spiece.model",
        "additional_chat_templates/tool_use.jinja",
    }
    for path in written:
        assert path.read_bytes() == (folder / path.relative_to(tmp_path / "other")).read_bytes()


def test_a_known_set_is_its_digest_which_any_change_changes(folder: Path) -> None:
    files = read_checkpoint(folder).files
    assert read_checkpoint(folder, {files.digest}) == Checkpoint(CheckpointFiles(files.digest), ())
    (folder / "merges.txt").rename(folder / "vocab.txt")
    renamed = read_checkpoint(folder, {files.digest}).files
    assert renamed.names
    (folder / "vocab.txt").write_text("of nergesitxt")
    changed = read_checkpoint(folder).files
    assert len({files.digest, renamed.digest, changed.digest}) == 3


def test_large_files_are_left_out_and_many_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "data.json").write_bytes(bytes(100))
    monkeypatch.setattr(small_files, "_MAX_FILE_BYTES", 99)
    assert "data.json" not in read_checkpoint(folder).files.names
    monkeypatch.setattr(small_files, "_MAX_BYTES", 50)
    with pytest.raises(ModelLoadError, match=f"{folder}: its 6 JSON.*allowed: 50"):
        read_checkpoint(folder)


def test_nothing_is_written_beside_the_folder(tmp_path: Path) -> None:
    checkpoint = Checkpoint(CheckpointFiles("", ("../a.json",)), (b"",))
    with pytest.raises(ModelLoadError, match="lies in its folder"):
        checkpoint.write(tmp_path / "model")
    assert not (tmp_path / "a.json").exists()
