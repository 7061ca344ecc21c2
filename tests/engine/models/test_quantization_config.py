"""Checkpoints published in fewer bits: the numbers they stand for, what they answer, what is refused."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sensorium.engine.models.base import CrossAttendingRows, Model, StepBatch
from sensorium.engine.models.packed_weights import PackedWeight
from sensorium.engine.models.quantization_config import read_published
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.weights import TensorReader, read_tensors
from sensorium.kernels.attention.paged_attention import PagedSequence, paged_batch
from sensorium.kernels.linear.quantized_linear import BitsWeight
from sensorium.protocols.engine.messages import Features
from sensorium.protocols.errors import ModelLoadError
from support.planned_bytes import held_bytes
from support.published_folders import PACKINGS, publish, tensors_config
from support.text_folder import make_text_folder
from support.whisper_folder import WhisperShape, make_whisper_folder
from torch import Tensor, nn
from transformers import LlamaConfig, Olmo2Config

CODES = [
    name for name in PACKINGS if not any(kind in name for kind in ("f4", "fp4", "fp8", "float8", "fbgemm"))
]
CLOSE = 0.08
"""Difference of logits as a part of their size that rounding a row's inputs to 8 bits may make here."""
SIZES: dict[str, Any] = {
    "vocab_size": 330,
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_text_folder(tmp_path_factory.mktemp("plain"), LlamaConfig(**SIZES))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run by transformers' own code."""
    return make_text_folder(tmp_path_factory.mktemp("other"), Olmo2Config(**SIZES))


@pytest.fixture(scope="module")
def speech_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = WhisperShape(d_model=64, encoder_ffn=128, decoder_ffn=128)
    return make_whisper_folder(tmp_path_factory.mktemp("hearing"), shape=shape)


def logits_of(model: Model) -> Tensor:
    """Of each token of a prompt, behind a window where the model listens."""
    k, token_ids = model.kv_shape, torch.arange(40) * 7 % 330
    cache = torch.zeros((k.num_layers, 4, 2, k.num_kv_heads, 16, k.head_dim), dtype=model.dtype)
    paged = paged_batch([PagedSequence(range(4), 0, 40)], 16, model.device)
    shape = model.info.attended_shape
    cross_attending: tuple[CrossAttendingRows, ...] = ()
    with torch.inference_mode():
        if shape is not None:
            window = torch.randn(shape, generator=torch.Generator().manual_seed(0))
            cross_attending = (
                CrossAttendingRows(model.encode([Features(shape, window.numpy().tobytes())])[0], 40),
            )
        batch = StepBatch(token_ids, torch.arange(40), paged, cross_attending=cross_attending)
        return model.logits(model.forward(batch, cache))


def edit(folder: Path, **changes: Any) -> None:  # noqa: ANN401 (fields of a quantization_config)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["quantization_config"] = config.get("quantization_config", {}) | changes
    path.write_text(json.dumps(config))


def refusal(folder: Path, **options: Any) -> str:  # noqa: ANN401 (of `open_model`)
    with pytest.raises(ModelLoadError) as caught:
        open_model(folder, device="cpu", **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", PACKINGS)
def test_a_folder_answers_as_the_numbers_it_stands_for(plain: Path, tmp_path: Path, name: str) -> None:
    folder, twin = publish(plain, tmp_path, name)
    source = open_model(folder, device="cpu", dtype="float32")
    model, exact = source.load(), open_model(twin, device="cpu", dtype="float32").load()
    want, got = logits_of(exact), logits_of(model)
    assert float((got - want).norm() / want.norm()) < (CLOSE if name in CODES else 1e-5)
    ours = open_model(plain, device="cpu", dtype="float32")
    assert (source.weight_bytes < 0.6 * ours.weight_bytes) == (name in CODES), "codes are held as codes"


@pytest.mark.parametrize("kind", ["other", "speech_folder"])
@pytest.mark.parametrize("name", PACKINGS)
def test_other_families_answer_as_the_numbers_they_stand_for(
    request: pytest.FixtureRequest, tmp_path: Path, name: str, kind: str
) -> None:
    plain: Path = request.getfixturevalue(kind)
    folder, twin = publish(plain, tmp_path, name)
    source, ours = (open_model(each, device="cpu", dtype="float32") for each in (folder, plain))
    want, got = logits_of(open_model(twin, device="cpu", dtype="float32").load()), logits_of(source.load())
    assert float((got - want).norm() / want.norm()) < (CLOSE if name in CODES else 1e-5)
    is_narrow = name == "mxfp4" and kind == "other"  # numbers that fit into 16 bits, which are read as those
    assert (source.weight_bytes < ours.weight_bytes) == (name in CODES or is_narrow), "codes stay codes"


@pytest.mark.parametrize("name", PACKINGS)
def test_every_weight_is_the_one_that_was_packed(plain: Path, tmp_path: Path, name: str) -> None:
    folder, twin = publish(plain, tmp_path, name)
    numbers = load_file(twin / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    expected = {key: tuple(tensor.shape) for key, tensor in numbers.items()}
    published = read_published(config, folder)
    reader = read_tensors(folder, expected, torch.device("cpu"), torch.float32, published=published)
    for key, want in numbers.items():
        torch.testing.assert_close(reader.take(key), want, rtol=2e-7, atol=0)
    reader.finish()


def test_no_numbers_are_held_beside_codes_where_transformers_reads(
    other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What stands in place of a layer of codes has its shape and not its memory, the head's as any other."""
    folder, _ = publish(other, tmp_path, "packed")
    tensors = load_file(folder / "model.safetensors")
    head, _ = PACKINGS["packed"][1](tensors.pop("lm_head.weight").float(), torch.Generator())
    tensors |= {f"lm_head.{suffix}": each.contiguous() for suffix, each in head.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    replaced: dict[str, int] = {}
    set_submodule = nn.Module.set_submodule

    def watched(self: nn.Module, name: str, module: nn.Module) -> None:
        if (weight := getattr(self.get_submodule(name), "weight", None)) is not None:
            replaced[name] = weight.untyped_storage().nbytes()
        set_submodule(self, name, module)

    monkeypatch.setattr(nn.Module, "set_submodule", watched)
    source = open_model(folder, device="cpu", dtype="bfloat16")
    model: Any = source.load()
    assert replaced["lm_head"] == max(replaced.values()) == 2
    assert len(replaced) == 2 * 7 + 1
    assert source.weight_bytes == held_bytes(model)


def test_bytes_are_counted_as_they_are_held(plain: Path, tmp_path: Path) -> None:
    """Of fused projections, whose outputs are whole tiles here."""
    folder, _ = publish(plain, tmp_path, "packed")
    source = open_model(folder, device="cpu", dtype="bfloat16")
    decoder: Any = source.load()
    layers = decoder._decoder._layers
    codes = [each for layer in layers for each in (layer.qkv, layer.out, layer.up, layer.down)]
    assert all(isinstance(each, BitsWeight) for each in codes)
    rest = 2 * (2 * 330 * 128 + 5 * 128)
    assert source.weight_bytes == sum(each.nbytes for each in codes) + rest
    assert decoder.weight_bytes == source.weight_bytes - 2 * 330 * 128


def test_numbers_of_8_bits_may_be_rounded_further(plain: Path, tmp_path: Path) -> None:
    folder, twin = publish(plain, tmp_path, "fp8 blocks")
    rounded, exact = (
        open_model(each, device="cpu", dtype="float32", quantization="int8").load() for each in (folder, twin)
    )
    torch.testing.assert_close(logits_of(rounded), logits_of(exact), rtol=1e-3, atol=1e-3)


def test_codes_are_not_rounded_again(plain: Path, tmp_path: Path) -> None:
    folder, _ = publish(plain, tmp_path, "awq")
    assert refusal(folder, quantization="int8").endswith(
        "its weights are codes of few bits already; quantization int8 is for others"
    )


def test_what_becomes_of_the_weights_is_said(
    plain: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sensorium")
    for name in ("gptq", "fp8 whole"):
        folder, _ = publish(plain, tmp_path / name, name)
        open_model(folder, device="cpu", dtype="bfloat16")
    assert "gptq; 14 weights stay codes of 4 bits" in caplog.text
    assert "fp8; 14 weights become bfloat16" in caplog.text


@pytest.mark.parametrize(
    ("name", "changes", "named"),
    [
        ("gptq", {"quant_method": "exl3"}, "quant_method 'exl3' is not one of awq, bitsandbytes, compressed"),
        ("gptq", {"bits": 3}, "quantization_config.bits 3 is not 4 or 8"),
        ("gptq", {"checkpoint_format": "marlin"}, "checkpoint_format 'marlin' is not gptq or gptq_v2"),
        ("awq", {"version": "gemv"}, "version 'gemv' is not gemm"),
        ("nf4", {"bnb_4bit_quant_type": "fp4"}, "bnb_4bit_quant_type 'fp4' is not nf4"),
        ("nf4", {"load_in_4bit": False}, "load_in_4bit is not set"),
        ("fp8 blocks", {"weight_block_size": [128]}, "weight_block_size [128] are not two sizes"),
        ("packed", {"format": "marlin-24"}, "format 'marlin-24' is not one of int-quantized"),
        ("packed", {"transform_config": {"R1": {}}}, "transform_config asks for rotations"),
        ("packed", {"sparsity_config": {"format": "sparse-bitmask"}}, "sparsity_config asks for sparse"),
        ("packed", {"config_groups": {"group_0": {}}}, "config_groups.group_0.weights is missing"),
        ("packed", tensors_config("pack-quantized", num_bits=3), "of type 'int' and 3 bits are not read"),
        ("packed", {"config_groups": {"two\nlines": {}}}, r"'config_groups.two\nlines.weights' is missing"),
    ],
)
def test_what_is_not_read_is_refused_by_its_field(
    plain: Path, tmp_path: Path, name: str, changes: dict[str, Any], named: str
) -> None:
    folder, _ = publish(plain, tmp_path, name)
    edit(folder, **changes)
    message = refusal(folder)
    assert message.startswith(f"{folder / 'config.json'}: quantization_config.")
    assert named in message


def spoil(folder: Path, key: str, tensor: Tensor | None) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors.pop(key, None)
    if tensor is not None:
        tensors[key] = tensor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


PROJECTION = "model.layers.1.mlp.down_proj"


@pytest.mark.parametrize(
    ("name", "suffix", "shape", "named"),
    [
        ("gptq", "scales", None, "1 missing: layers.1.mlp.down_proj.scales"),
        ("gptq", "qzeros", (6, 15), f"1 misshapen: {PROJECTION}.qzeros is [6, 15], expected [6, 16]"),
        ("gptq", "scales", (5, 128), "misshapen"),
        ("awq", "qweight", (192, 15), f"1 misshapen: {PROJECTION}.qweight is [192, 15], expected [192, 16]"),
        ("packed", "weight_packed", (128, 23), f"{PROJECTION}.weight_packed is [128, 23], expected"),
        ("int8", "weight_scale", (7, 1), f"{PROJECTION}.weight_scale is [7, 1], expected [128, 1] or [128]"),
        ("fp8 blocks", "weight_scale_inv", None, "1 missing: layers.1.mlp.down_proj.weight_scale"),
        ("fp8 blocks", "weight_scale_inv", (3, 5), "weight_scale_inv is [3, 5], expected [3, 6] or"),
        ("nf4", "weight.quant_map", (15,), f"{PROJECTION}.weight.quant_map is [15], expected [16]"),
        ("int8", "strange", (3,), "1 unexpected: layers.1.mlp.down_proj.strange"),
    ],
)
def test_tensors_that_do_not_fit_are_named_before_one_is_read(
    plain: Path, tmp_path: Path, name: str, suffix: str, shape: tuple[int, ...] | None, named: str
) -> None:
    folder, _ = publish(plain, tmp_path, name)
    key = f"{PROJECTION}.{suffix}"
    old = load_file(folder / "model.safetensors").get(key, torch.zeros(1))
    spoil(folder, key, None if shape is None else torch.zeros(shape, dtype=old.dtype))
    assert named in refusal(folder)


@pytest.mark.parametrize(
    ("name", "suffix", "dtype"),
    [
        ("gptq", "qweight", torch.int64),
        ("awq", "scales", torch.int32),
        ("packed", "weight_scale", torch.uint8),
        ("mxfp4", "weight_packed", torch.float16),
        ("nf4", "weight.absmax", torch.int64),
        ("nf4 nested", "weight.absmax", torch.float32),
        ("nf4", "weight.quant_map", torch.uint8),
    ],
)
def test_tensors_of_another_type_are_named(
    plain: Path, tmp_path: Path, name: str, suffix: str, dtype: torch.dtype
) -> None:
    folder, _ = publish(plain, tmp_path, name)
    key = f"{PROJECTION}.{suffix}"
    spoil(folder, key, load_file(folder / "model.safetensors")[key].to(dtype))
    assert f"1 misshapen: {key} is " in refusal(folder)


@pytest.mark.parametrize(
    ("suffix", "tensor", "named"),
    [
        ("bias", torch.ones(128), "is a bias the model has not"),
        ("g_idx", torch.zeros(192, dtype=torch.int32), "g_idx does not put 32 inputs into each of 6 groups"),
        ("scales", torch.full((6, 128), torch.nan), "holds NaN or infinity"),
    ],
)
def test_numbers_that_do_not_fit_are_named_when_they_are_read(
    plain: Path, tmp_path: Path, suffix: str, tensor: Tensor, named: str
) -> None:
    folder, _ = publish(plain, tmp_path, "gptq")
    spoil(folder, f"{PROJECTION}.{suffix}", tensor)
    source = open_model(folder, device="cpu", dtype="float32")
    with pytest.raises(ModelLoadError, match=named):
        source.load()


STATE = "weight.quant_state.bitsandbytes__nf4"


def state(**changes: Any) -> Tensor:  # noqa: ANN401 (fields of a quant_state)
    """Of a projection, as bytes."""
    text = json.dumps({"quant_type": "nf4", "blocksize": 64, "shape": [128, 192]} | changes)
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


@pytest.mark.parametrize(
    ("name", "suffix", "tensor", "named"),
    [
        ("gptq", "g_idx", torch.full((192,), -1, dtype=torch.int32), "g_idx does not put 32 inputs"),
        ("gptq", "g_idx", torch.full((192,), 2**31 - 1, dtype=torch.int32), "g_idx does not put 32 inputs"),
        (
            "nf4",
            STATE,
            state(blocksize=10**12),
            "384. scales of blocks of 1000000000000 do not fit 24576 numb",
        ),
        ("nf4", STATE, state(blocksize=0), "blocksize 0 of its quant_state is not a size"),
        ("nf4", STATE, torch.full((100_000,), ord("["), dtype=torch.uint8), "recursion"),
        ("nf4", "weight.absmax", torch.ones(5), "5. scales of blocks of 64 do not fit 24576 numbers"),
        (
            "nf4 nested",
            "weight.nested_absmax",
            torch.ones(()),
            "scales of blocks of 256 do not fit 384 numbers",
        ),
    ],
)
def test_numbers_that_would_take_memory_or_fail_are_refused(
    plain: Path, tmp_path: Path, name: str, suffix: str, tensor: Tensor, named: str
) -> None:
    folder, _ = publish(plain, tmp_path, name)
    spoil(folder, f"{PROJECTION}.{suffix}", tensor)
    source = open_model(folder, device="cpu", dtype="float32")
    with pytest.raises(ModelLoadError, match=named) as caught:
        source.load()
    assert "\n" not in str(caught.value)


def test_blocks_larger_than_a_weight_take_no_memory_of_their_size(plain: Path, tmp_path: Path) -> None:
    folder, _ = publish(plain, tmp_path, "fp8 blocks")
    tensors = load_file(folder / "model.safetensors")
    changed = {key: each[:1].clone() for key, each in tensors.items() if key.endswith("_scale_inv")}
    save_file(tensors | changed, folder / "model.safetensors", metadata={"format": "pt"})
    edit(folder, weight_block_size=[10**12, 32])
    open_model(folder, device="cpu", dtype="float32").load()


def test_elsewhere_codes_become_numbers(plain: Path, tmp_path: Path) -> None:
    """A device without products of codes is given what they stand for."""
    folder, twin = publish(plain, tmp_path, "awq")
    numbers = load_file(twin / "model.safetensors")
    published = read_published(json.loads((folder / "config.json").read_text()), folder)
    expected = {key: tuple(tensor.shape) for key, tensor in numbers.items()}
    reader = read_tensors(folder, expected, torch.device("meta"), torch.float32, published=published)
    assert isinstance(reader, TensorReader)
    assert reader.saved_bytes() == 0
    assert all(isinstance(each, PackedWeight) for each in reader._packed.values())
