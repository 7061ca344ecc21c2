"""Models rounded when they are read: what they answer, what they hold, and what stays as it is.

The reference has the same weights with the codes' values written in their place, in float32: what is left
between the two is the rounding of inputs.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models import registry
from sensorium.engine.models.base import Model, StepBatch
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.weights import grid_of
from sensorium.kernels.attention.paged_attention import PagedSequence, paged_batch
from sensorium.kernels.linear.quantized_linear import BitsWeight
from sensorium.kernels.linear.weight_codes import HEAD_GRID, Quantization, quantize
from sensorium.protocols.engine.messages import Features
from sensorium.protocols.errors import ModelLoadError
from support.asr_folder import make_asr_folder
from support.text_folder import QwenShape, make_qwen3_folder, make_text_folder
from support.vl_folder import make_vl_folder
from support.whisper_folder import make_whisper_folder
from torch import Tensor
from transformers import Olmo2Config

SHAPE = QwenShape(hidden_size=128, intermediate_size=192, num_heads=4, num_kv_heads=2, head_dim=32)
KINDS: tuple[Quantization, ...] = ("int8", "int4")
CLOSE = 0.08
"""Difference of logits as a part of their size that rounding a row's inputs to 8 bits may make here."""


def dequantised(folder: Path, to: Path, quantization: Quantization, *, tied: bool) -> Path:
    """The folder with the weights that codes stand for."""
    shutil.copytree(folder, to)
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        grid = grid_of(name, tuple(tensor.shape), quantization)
        if tied and name.endswith("embed_tokens.weight"):
            grid = HEAD_GRID  # the embedding is the head's
        if grid is not None:
            tensors[name] = quantize(tensor, grid).weight()
    save_file(tensors, to / "model.safetensors", metadata={"format": "pt"})
    return to


def logits_of(model: Model, token_ids: Tensor) -> Tensor:
    """Of each token of a prompt."""
    k, num = model.kv_shape, token_ids.shape[0]
    cache = torch.zeros((k.num_layers, 4, 2, k.num_kv_heads, 16, k.head_dim), dtype=model.dtype)
    paged = paged_batch([PagedSequence(range(4), 0, num)], 16, model.device)
    with torch.inference_mode():
        return model.logits(model.forward(StepBatch(token_ids, torch.arange(num), paged), cache))


def held_bytes(model: object) -> int:
    """Bytes of all tensors that a model holds, each memory once; packed dense weights as torch has them."""
    seen: dict[int, int] = {}
    waiting: list[Any] = [model]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Tensor):
            seen[id(each)] = each.numel() * each.element_size()
        elif isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list | tuple):
            waiting += each
        elif dataclasses.is_dataclass(each) and not isinstance(each, type):
            waiting += [getattr(each, field.name) for field in dataclasses.fields(each)]
        elif type(each).__module__.startswith("sensorium.engine.models"):
            waiting += vars(each).values()
    return sum(seen.values())


@pytest.mark.parametrize("quantization", KINDS)
@pytest.mark.parametrize("tied", [True, False])
def test_a_decoder_answers_as_its_codes_do(tmp_path: Path, quantization: Quantization, tied: bool) -> None:
    folder = make_qwen3_folder(tmp_path / "a", shape=dataclasses.replace(SHAPE, tied=tied))
    twin = dequantised(folder, tmp_path / "b", quantization, tied=tied)
    rounded = open_model(folder, device="cpu", dtype="float32", quantization=quantization).load()
    exact, plain = (open_model(each, device="cpu", dtype="float32").load() for each in (twin, folder))
    token_ids = torch.arange(40) * 7 % exact.info.vocab_size
    want, got = logits_of(exact, token_ids), logits_of(rounded, token_ids)
    assert float((got - want).norm() / want.norm()) < CLOSE
    if quantization == "int4":  # whose codes are further from the weights than that
        assert float((logits_of(plain, token_ids) - want).norm() / want.norm()) > CLOSE


@pytest.mark.parametrize("quantization", KINDS)
def test_the_fallback_answers_as_its_codes_do(tmp_path: Path, quantization: Quantization) -> None:
    config = Olmo2Config(
        vocab_size=384, hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4
    )
    folder = make_text_folder(tmp_path / "a", config)
    twin = tmp_path / "b"
    shutil.copytree(folder, twin)
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        grid = grid_of(name, tuple(tensor.shape), quantization)
        if grid is not None and "layers" in name:
            tensors[name] = quantize(tensor, grid).weight()
    save_file(tensors, twin / "model.safetensors", metadata={"format": "pt"})
    source = open_model(folder, device="cpu", dtype="float32", quantization=quantization)
    rounded, exact = source.load(), open_model(twin, device="cpu", dtype="float32").load()
    token_ids = torch.arange(40) * 7 % 330
    want, got = logits_of(exact, token_ids), logits_of(rounded, token_ids)
    assert float((got - want).norm() / want.norm()) < CLOSE
    looked_up = tensors["model.embed_tokens.weight"].nbytes
    assert source.weight_bytes == rounded.weight_bytes + looked_up


@pytest.mark.parametrize("quantization", KINDS)
def test_whisper_hears_as_its_codes_do(tmp_path: Path, quantization: Quantization) -> None:
    folder = make_whisper_folder(tmp_path / "a")
    twin = dequantised(folder, tmp_path / "b", quantization, tied=False)
    rounded, exact = (
        open_model(each, device="cpu", dtype="float32", quantization=kind).load()
        for each, kind in ((folder, quantization), (twin, "none"))
    )
    shape = exact.info.attended_shape
    assert shape is not None
    window = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    item = Features(shape, window.numpy().tobytes())
    with torch.inference_mode():
        want, got = (model.encode([item])[0] for model in (exact, rounded))
    difference = got.memory - want.memory  # type: ignore[attr-defined]
    assert 0 < float(difference.norm() / want.memory.norm()) < CLOSE  # type: ignore[attr-defined]


@pytest.mark.parametrize("quantization", KINDS)
@pytest.mark.parametrize("make", [make_qwen3_folder, make_whisper_folder, make_asr_folder, make_vl_folder])
def test_what_is_held_is_what_was_said(tmp_path: Path, make: Any, quantization: Quantization) -> None:  # noqa: ANN401
    """Joined weights share tiles, so that a few bytes less may be held."""
    source = open_model(make(tmp_path / "a"), device="cpu", dtype="float32", quantization=quantization)
    model = source.load()
    Runner(model, num_blocks=8).warm_up()
    assert 0.7 * source.weight_bytes <= held_bytes(model) <= 1.1 * source.weight_bytes
    assert model.weight_bytes <= source.weight_bytes


def test_a_tied_head_is_the_only_copy_of_the_embedding(tmp_path: Path) -> None:
    folder = make_qwen3_folder(tmp_path, shape=SHAPE)
    held = {
        kind: open_model(folder, device="cpu", dtype="bfloat16", quantization=kind).weight_bytes
        for kind in ("none", *KINDS)
    }
    assert held["int8"] <= held["none"] / 2
    assert held["int4"] <= held["none"] / 2.5
    model: Any = open_model(folder, device="cpu", dtype="bfloat16", quantization="int8").load()
    assert isinstance(model._decoder._tokens, BitsWeight)
    assert model._decoder._tokens is model._decoder._head


def test_what_cannot_be_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_qwen3_folder(tmp_path)
    with pytest.raises(ModelLoadError, match="quantization 'int3' is not one of none, int8, int4"):
        open_model(folder, device="cpu", quantization="int3")
    monkeypatch.setattr(registry, "choose_device", lambda _: torch.device("cuda"))
    with pytest.raises(ModelLoadError, match="quantization int8 is computed on CPUs only; device is cuda"):
        open_model(folder, dtype="float32", quantization="int8")
