"""What is said of a folder before its weights are read: if it is served, by which code, in what memory."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from safetensors.torch import load_file, save_file
from sensorium.actors.config.engine import EngineConfig
from sensorium.actors.folder_report import FolderReport, lines_of, report_folder
from sensorium.engine.models.embedded import embedded_models
from support.causal_types import tiny_config
from support.recurrent_families import recurrent_config
from support.text_folder import QwenShape, make_qwen3_folder, make_text_folder

pytestmark = pytest.mark.slow

CONFIG = EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="64MiB")


def report(folder: Path) -> FolderReport:
    found = report_folder(str(folder), CONFIG)
    assert msgspec.json.decode(msgspec.json.encode(found), type=FolderReport) == found
    return found


def test_a_family_of_ours(tmp_path: Path) -> None:
    folder = make_qwen3_folder(tmp_path / "qwen3", shape=QwenShape(tied=False))
    found = report(folder)
    assert (found.served, found.runs, found.abilities) == (True, "native", ("complete", "chat"))
    assert found.weight_bytes == sum(t.nbytes for t in load_file(folder / "model.safetensors").values())
    assert found.bytes_per_token == 2 * 2 * 2 * 8 * 4, "layers, keys and values, heads, their size, float32"
    assert found.bytes_per_sequence == 0
    assert found.num_tokens >= found.max_context == 512
    assert "is served through the engine's own code of qwen3: complete, chat" in next(lines_of(found))


def test_windows_and_states_are_told_by_sequence(tmp_path: Path) -> None:
    window = report(make_text_folder(tmp_path / "gemma3", tiny_config("gemma3_text"), seed=0))
    assert (window.runs, window.bytes_per_sequence) == ("transformers", 2 * 8 * 2 * 2 * 16 * 4)
    states = report(make_text_folder(tmp_path / "lfm2", recurrent_config("lfm2"), seed=0))
    assert states.bytes_per_sequence == 2 * 32 * 2 * 4, "two convolutions over three tokens"
    assert states.bytes_per_token == 2 * 2 * 8 * 4, "one layer that attends"
    assert any("(windows and states)" in line for line in lines_of(states))


def test_no_weights_are_read(tmp_path: Path) -> None:
    """What loading would refuse is not seen."""
    folder = make_text_folder(tmp_path / "olmo2", tiny_config("olmo2"), seed=0)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"].fill_(float("nan"))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert report(folder).served


def test_a_refusal_has_its_words(tmp_path: Path) -> None:
    found = report(make_text_folder(tmp_path / "doge", tiny_config("doge"), seed=0))
    assert not found.served
    assert "its attention has masks of its own; docs/models.md lists those that can" in found.refused
    assert list(lines_of(found)) == [f"{found.model}: is not served: {found.refused}"]
    assert json.loads(msgspec.json.encode(found)).keys() == {"model", "served", "refused"}


def test_what_does_not_fit_says_what_would(tmp_path: Path) -> None:
    folder = make_qwen3_folder(tmp_path / "qwen3")
    found = report_folder(str(folder), EngineConfig(device="cpu", dtype="float32", num_blocks=1))
    assert not found.served
    assert "--num-blocks" in found.refused


@pytest.mark.parametrize("name", embedded_models())
def test_embedded_models_are_served(name: str) -> None:
    found = report_folder(name, CONFIG)
    assert (found.served, found.runs, found.dtype) == (True, "native", "float32")
    assert ("chat" if "vl" in name else "transcribe") in found.abilities
