"""A Whisper checkpoint that does not fit is refused with an error that names what is wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.whisper.info import WhisperInfo
from sensorium.engine.models.whisper.model import WhisperModel
from sensorium.engine.models.whisper.text import WhisperText
from sensorium.protocols.errors import ModelLoadError
from support.whisper_folder import make_whisper_folder

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_whisper_folder(tmp_path / "model")


def refusal(folder: Path) -> str:
    with pytest.raises(ModelLoadError) as caught:
        open_model(folder, device="cpu", dtype="float32")
    return str(caught.value)


def edit_tensors(folder: Path, edit: Callable[[Tensors], object]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def edit_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_complete_folder_opens_and_loads(folder: Path) -> None:
    source = open_model(folder, device="cpu", dtype="bfloat16")
    assert isinstance(source.side.text, WhisperText)
    assert isinstance(source.info, WhisperInfo)
    assert (source.info.family, source.info.folder) == ("whisper", folder)
    assert (source.kv_shape.num_layers, source.kv_shape.num_kv_heads, source.kv_shape.head_dim) == (2, 2, 16)
    assert source.weight_bytes == sum(2 * t.numel() for t in load_file(folder / "model.safetensors").values())
    assert source.encoder_bytes is not None
    assert source.encoder_bytes(0) == 2 * 2 * 32 * 100 * 2  # layers, key and value, width, positions
    assert isinstance(source.load(), WhisperModel)


def test_shards_and_names_without_prefix_load_too(tmp_path: Path) -> None:
    sharded = make_whisper_folder(tmp_path / "sharded", max_shard_size="50KB")
    assert len(list(sharded.glob("*.safetensors"))) > 2
    plain = make_whisper_folder(tmp_path / "plain")

    def strip(tensors: Tensors) -> None:
        for name in list(tensors):
            tensors[name.removeprefix("model.")] = tensors.pop(name)

    edit_tensors(plain, strip)
    for folder in (sharded, plain):
        assert open_model(folder, device="cpu", dtype="float32").load()


def test_tensors_that_do_not_fit_are_named(folder: Path) -> None:
    def spoil(tensors: Tensors) -> None:
        del tensors["model.decoder.layers.1.fc2.bias"]
        tensors["model.decoder.layers.7.fc1.weight"] = torch.zeros(2)
        tensors["model.encoder.conv1.bias"] = torch.zeros(31)

    edit_tensors(folder, spoil)
    message = refusal(folder)
    assert "1 missing: decoder.layers.1.fc2.bias" in message
    assert "1 unexpected: decoder.layers.7.fc1.weight" in message
    assert "1 misshapen: encoder.conv1.bias is [31], expected [32]" in message


def test_an_output_projection_of_its_own(folder: Path) -> None:
    edit_json(folder / "config.json", tie_word_embeddings=False)
    assert "1 missing: proj_out.weight" in refusal(folder)
    edit_tensors(folder, lambda t: t.update({"proj_out.weight": t["model.decoder.embed_tokens.weight"] * 2}))
    own = open_model(folder, device="cpu", dtype="float32")
    # Tied: the copy beside the embedding is allowed and not counted.
    edit_json(folder / "config.json", tie_word_embeddings=True)
    tied = open_model(folder, device="cpu", dtype="float32")
    assert own.weight_bytes > tied.weight_bytes
    assert own.load()
    assert tied.load()


def test_a_tokenizer_that_is_not_there_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    assert "no tokenizer" in refusal(folder)


def test_config_fields_are_checked(folder: Path) -> None:
    edit_json(folder / "config.json", decoder_attention_heads=5)
    assert "decoder_attention_heads 5" in refusal(folder)
    edit_json(folder / "config.json", decoder_attention_heads=2, activation_function="swish")
    assert "activation_function 'swish'" in refusal(folder)


@pytest.mark.parametrize(
    ("field", "value"), [("d_model", "large"), ("encoder_layers", None), ("decoder_attention_heads", 0)]
)
def test_config_values_that_make_no_sense_are_named(folder: Path, field: str, value: object) -> None:
    edit_json(folder / "config.json", **{field: value})
    message = refusal(folder)
    assert message.startswith(f"{folder / 'config.json'}: ")
    assert field in message
    assert "\n" not in message


def test_alignment_heads_that_are_not_there_are_named(tmp_path: Path) -> None:
    folder = make_whisper_folder(tmp_path, alignment_heads=[(0, 1)])
    assert open_model(folder, device="cpu", dtype="float32").load()
    edit_json(folder / "generation_config.json", alignment_heads=[[9, 0]])
    assert "alignment_heads names layer 9, head 0; there is none" in refusal(folder)
    edit_json(folder / "generation_config.json", alignment_heads=["x", 3])
    assert "alignment_heads is ['x', 3], not a list of pairs of layer and head" in refusal(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("suppress_tokens", "x"),
        ("begin_suppress_tokens", [1, None]),
        ("eos_token_id", 1.5),
        ("lang_to_id", 3),
        ("task_to_id", [1]),
        ("max_length", "448"),
        ("no_timestamps_token_id", [7]),
        ("alignment_heads", 1),
    ],
)
def test_a_generation_config_that_makes_no_sense_is_named(folder: Path, field: str, value: object) -> None:
    edit_json(folder / "generation_config.json", **{field: value})
    assert refusal(folder).startswith(f"{folder / 'generation_config.json'}: {field} is {value!r}, not ")
