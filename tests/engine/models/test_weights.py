"""Tensors that do not fit are named in the error; those that do are read once, one by one."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from safetensors.torch import load_file, save_file
from sensorium.engine.models.weights import (
    TensorReader,
    choose_device,
    choose_dtype,
    find_folder,
    num_bytes,
    read_tensors,
    stored_types,
)
from sensorium.protocols.errors import ModelLoadError

CPU = torch.device("cpu")
SHAPES = {
    "embed.weight": (5, 4),
    "layers.0.up.weight": (3, 4),
    "layers.1.up.weight": (3, 4),
    "norm.weight": (4,),
}


def tensors(**changes: torch.Tensor) -> dict[str, torch.Tensor]:
    """One per shape, each with its own numbers, as `model.…`."""
    generator = torch.Generator().manual_seed(0)
    named = {f"model.{name}": torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    return named | changes


def write(folder: Path, held: dict[str, torch.Tensor], name: str = "model.safetensors") -> Path:
    save_file(held, folder / name, metadata={"format": "pt"})
    return folder


def write_shards(folder: Path) -> Path:
    """Two shards, and the index that names them."""
    held = tensors()
    names = sorted(held)
    files = {name: f"model-0000{1 + (i > 1)}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(files.values()):
        write(folder, {name: held[name] for name in names if files[name] == file}, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    return folder


def reader(folder: Path, **options: Any) -> TensorReader:  # noqa: ANN401 (of `read_tensors`)
    return read_tensors(folder, SHAPES, CPU, torch.float32, renames=(("model.", ""),), **options)


def refusal(folder: Path, **options: dict[str, str] | None) -> str:
    with pytest.raises(ModelLoadError) as caught:
        reader(folder, **options)
    return str(caught.value)


def test_tensors_are_taken_once_in_the_type_asked_for(tmp_path: Path) -> None:
    held = tensors(**{"model.norm.weight": torch.ones(4, dtype=torch.float16)})
    read = read_tensors(write(tmp_path, held), SHAPES, CPU, torch.bfloat16, renames=(("model.", ""),))
    assert "norm.weight" in read
    assert torch.equal(read.take("norm.weight"), torch.ones(4, dtype=torch.bfloat16))
    assert "norm.weight" not in read
    layers = read.take_all("layers.1.up.weight", "layers.0.up.weight")
    expected = [held[f"model.layers.{i}.up.weight"].to(torch.bfloat16) for i in (1, 0)]
    assert torch.equal(layers, torch.cat(expected))
    read.skip("embed.weight")
    read.finish()
    with pytest.raises(KeyError):
        read.take("norm.weight")


def test_a_forgotten_tensor_is_our_bug(tmp_path: Path) -> None:
    read = reader(write(tmp_path, tensors()))
    read.take("norm.weight")
    with pytest.raises(AssertionError, match=r"never taken: .*embed\.weight"):
        read.finish()


def test_what_is_taken_does_not_hold_the_file(tmp_path: Path) -> None:
    """A view into the file's mapping would keep all of it in memory."""
    read = reader(write(tmp_path, tensors()))
    assert read.take("norm.weight").untyped_storage().nbytes() == 4 * 4


def test_names_without_prefix_fit_too(tmp_path: Path) -> None:
    write(tmp_path, {name.removeprefix("model."): tensor for name, tensor in tensors().items()})
    assert torch.equal(reader(tmp_path).take("norm.weight"), tensors()["model.norm.weight"])


def test_the_first_prefix_that_fits_is_replaced(tmp_path: Path) -> None:
    write(tmp_path, {f"outer.{name}": tensor for name, tensor in tensors().items()})
    renames = (("outer.model.", ""), ("outer.", "wrong."))
    read = read_tensors(tmp_path, SHAPES, CPU, torch.float32, renames=renames)
    assert "embed.weight" in read


def test_one_tensor_under_two_names_is_refused(tmp_path: Path) -> None:
    write(tmp_path, tensors(**{"norm.weight": torch.ones(4)}))
    assert "model.norm.weight and norm.weight are the same tensor" in refusal(tmp_path)


def test_shards_read_as_one_file_does(tmp_path: Path) -> None:
    read = reader(write_shards(tmp_path))
    for name in SHAPES:
        assert torch.equal(read.take(name), tensors()[f"model.{name}"])
    read.finish()


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    folder = write_shards(tmp_path)
    (folder / "model-00002-of-00002.safetensors").unlink()
    assert refusal(folder) == (
        f"{folder}: missing model-00002-of-00002.safetensors, named by model.safetensors.index.json"
    )


def test_an_index_names_no_files_elsewhere(tmp_path: Path) -> None:
    folder = write_shards(tmp_path)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../elsewhere.safetensors"}}))
    assert "names files outside the folder: ../elsewhere.safetensors" in refusal(folder)
    index.write_text(json.dumps({"weight_map": ["a"]}))
    assert refusal(folder) == f"{index}: no weight_map"


def test_everything_wrong_is_named_at_once(tmp_path: Path) -> None:
    held = tensors(
        **{
            "model.norm.weight": torch.ones(5),
            "model.embed.weight": torch.ones((5, 4), dtype=torch.int8),
            "model.layers.9.up.weight": torch.ones(2),
        }
    )
    del held["model.layers.0.up.weight"]
    assert refusal(write(tmp_path, held)) == (
        f"{tmp_path}: tensors do not fit the config; "
        "1 missing: layers.0.up.weight; 1 unexpected: layers.9.up.weight; "
        "1 misshapen: norm.weight is [5], expected [4]; "
        "1 not of a floating-point type: embed.weight is I8"
    )


def test_a_long_list_is_cut(tmp_path: Path) -> None:
    write(tmp_path, tensors(**{f"extra.{i:02}": torch.ones(1) for i in range(11)}))
    message = refusal(tmp_path)
    assert "11 unexpected: extra.00, " in message
    assert message.endswith("extra.07 and 3 more")


def test_a_tied_copy_is_kept_or_stands_for_its_original(tmp_path: Path) -> None:
    tied = {"head.weight": "embed.weight"}
    copy = torch.full((5, 4), 7.0)
    write(tmp_path, tensors(**{"head.weight": copy}))
    assert "1 unexpected: head.weight" in refusal(tmp_path)
    read = reader(tmp_path, tied=tied)
    assert "head.weight" in read
    assert torch.equal(read.take("embed.weight"), tensors()["model.embed.weight"])
    assert torch.equal(read.take("head.weight"), copy)

    held = tensors(**{"head.weight": copy})
    del held["model.embed.weight"]
    read = reader(write(tmp_path, held), tied=tied)
    assert "head.weight" not in read
    assert torch.equal(read.take("embed.weight"), copy)


def test_a_tied_copy_has_its_originals_shape(tmp_path: Path) -> None:
    write(tmp_path, tensors(**{"head.weight": torch.ones(6, 4)}))
    message = refusal(tmp_path, tied={"head.weight": "embed.weight"})
    assert "1 misshapen: head.weight is [6, 4], expected [5, 4]" in message


def test_a_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path}: no model.safetensors nor model.safetensors.index.json"
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    assert refusal(tmp_path).endswith("(weights in other formats are not read)")


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, tensors())
    assert set(stored_types(tmp_path).values()) == {"F32"}
    path = tmp_path / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])  # a download that stopped
    for read in (reader, stored_types):
        with pytest.raises(ModelLoadError, match=r"model\.safetensors: not a readable safetensors file"):
            read(tmp_path)


def test_a_file_that_changes_under_us_is_an_error(tmp_path: Path) -> None:
    read = reader(write(tmp_path, tensors()))
    write(tmp_path, {"other": torch.ones(1)})
    with pytest.raises(ModelLoadError, match=r"cannot read model\.norm\.weight"):
        read.take("norm.weight")


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_weights_that_are_no_numbers_are_an_error(tmp_path: Path, number: float) -> None:
    broken = tensors()["model.norm.weight"]
    broken[2] = number
    read = reader(write(tmp_path, tensors(**{"model.norm.weight": broken})))
    read.take("embed.weight")
    with pytest.raises(ModelLoadError, match=r"model\.norm\.weight holds NaN or infinity as float32"):
        read.take("norm.weight")


def test_bytes_are_counted() -> None:
    assert num_bytes(SHAPES, torch.bfloat16) == 2 * (20 + 12 + 12 + 4)
    assert num_bytes({}, torch.float32) == 0


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no-such-model", "no such folder, nor a hub id, nor an embedded model"),
        ("./no/such", "./no/such: no such folder"),
        (Path("/no/such/folder"), "/no/such/folder: no such folder"),
    ],
)
def test_names_that_are_nothing_are_refused(name: str | Path, reason: str) -> None:
    with pytest.raises(ModelLoadError) as caught:
        find_folder(name)
    assert reason in str(caught.value)


def test_a_file_is_no_model(tmp_path: Path) -> None:
    """What llama.cpp and whisper.cpp are given."""
    file = tmp_path / "ggml-base.bin"
    file.touch()
    with pytest.raises(ModelLoadError, match=r"ggml-base\.bin: a file; a model is a folder of config\.json"):
        find_folder(str(file))


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "tokenizer.json", "chat_template.jinja"]
)
def test_what_would_be_waited_for_is_no_file_of_a_model(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(ModelLoadError, match=f"/{name}: not a regular file$"):
        find_folder(tmp_path)


def test_a_hub_id_without_network_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelLoadError, match="somebody/no-such: no such folder, not in the local hub cache"):
        find_folder("somebody/no-such")


def test_devices_and_types_that_do_not_exist_are_refused() -> None:
    for device in ("tpu", "meta"):
        with pytest.raises(ModelLoadError, match="not auto, cpu or cuda"):
            choose_device(device)
    with pytest.raises(ModelLoadError, match="float16 needs a CUDA device"):
        choose_dtype("float16", CPU)
    with pytest.raises(ModelLoadError, match="int8"):
        choose_dtype("int8", CPU)
    assert choose_dtype("auto", CPU) in (torch.bfloat16, torch.float32)


def test_reading_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    read = reader(write(tmp_path, tensors()))
    read.take("norm.weight").zero_()
    assert torch.equal(
        load_file(tmp_path / "model.safetensors")["model.norm.weight"], tensors()["model.norm.weight"]
    )
