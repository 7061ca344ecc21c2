"""Layers of `transformers` models that our kernels run: the same numbers from fewer bytes and operations."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.transformers.model import TransformersModel
from sensorium.engine.models.transformers.norms import FusedRmsNorm, fuse_norms
from sensorium.engine.models.transformers.rounded import Tiled, read_bytes, tile_linears
from sensorium.kernels.native import library
from support.exactness import check_every_way, reference_case
from support.text_folder import byte_level_tokenizer, make_text_folder
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, Gemma3TextConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.mamba2.modeling_mamba2 import MambaRMSNormGated

pytestmark = pytest.mark.skipif(library() is None, reason="there is no C compiler")

_VOCAB_SIZE = byte_level_tokenizer().get_vocab_size(with_added_tokens=True)


def folder_of(path: Path, dtype: torch.dtype) -> Path:
    config = Gemma3TextConfig(
        vocab_size=_VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        sliding_window=9,
        layer_types=["sliding_attention", "full_attention"],
        max_position_embeddings=512,
        tie_word_embeddings=True,
    )
    return make_text_folder(path, config, dtype=dtype)


@pytest.mark.parametrize("stored", [torch.bfloat16, torch.float16])
@torch.inference_mode()
def test_float32_reads_the_bits_that_were_stored(tmp_path: Path, stored: torch.dtype) -> None:
    torch.set_num_threads(1)
    folder = folder_of(tmp_path, stored)
    source = open_model(folder, device="cpu", dtype="float32")
    model = source.load()
    assert isinstance(model, TransformersModel)
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    products = [each.weight for each in reference.modules() if isinstance(each, nn.Linear)]
    tiled = sum(-(-each.shape[0] // 64) * 64 * each.shape[1] * 2 for each in products)
    norms = sum(each.nbytes for each in reference.parameters() if each.dim() == 1)
    assert model.weight_bytes == tiled + norms
    held = model.weight_bytes + reference.get_input_embeddings().weight.nbytes
    assert source.weight_bytes == held
    rng = random.Random(0)
    prompts = [[rng.randrange(_VOCAB_SIZE) for _ in range(length)] for length in (11, 45)]
    check_every_way(model, [reference_case(reference, prompt) for prompt in prompts], seed=0)


def test_a_tied_head_of_all_32_bits_is_not_copied(tmp_path: Path) -> None:
    model = open_model(folder_of(tmp_path, torch.float32), device="cpu", dtype="float32").load()
    reference = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    products = [each.weight for each in reference.model.modules() if isinstance(each, nn.Linear)]
    head = reference.lm_head.weight
    norms = sum(each.nbytes for each in reference.parameters() if each.dim() == 1)
    assert model.weight_bytes == sum(each.nbytes for each in (*products, head)) + norms


@pytest.mark.parametrize("bias", [True, False])
def test_a_layer_in_tiles_has_the_weight_it_stands_for(bias: bool) -> None:
    layer = nn.Linear(34, 70, bias=bias)
    model = nn.ModuleDict({"a": layer, "b": nn.Linear(34, 5).bfloat16(), "c": nn.LayerNorm(34)})
    tile_linears(model)
    tiled = model["a"]
    assert isinstance(tiled, Tiled)
    assert type(model["b"]) is nn.Linear
    assert torch.equal(tiled.weight, layer.weight)
    assert (tiled.bias is None) == (not bias)
    assert tiled.bias is None or torch.equal(tiled.bias, layer.bias)
    x = torch.randn(2, 3, 34)
    torch.testing.assert_close(tiled(x), layer(x))
    assert read_bytes((model,)) >= layer.weight.nbytes


class _MeanlessRMSNorm(nn.Module):
    """Named as one, and is none."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = 1e-6

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x / (x.abs().mean(-1, keepdim=True) + self.eps)


def _random(module: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(1.0, 0.2)
    return module


@pytest.mark.parametrize("kind", [Gemma3RMSNorm, LlamaRMSNorm])
@pytest.mark.parametrize("eps", [1e-6, 1e-2])
@torch.inference_mode()
def test_norms_are_fused_whatever_their_weight_means(kind: Any, eps: float) -> None:  # noqa: ANN401
    theirs = _random(kind(48, eps=eps))
    model = nn.ModuleDict({"norm": theirs})
    fuse_norms(model)
    ours = model["norm"]
    assert isinstance(ours, FusedRmsNorm)
    for x in (torch.randn(1, 5, 48), torch.randn(1, 5, 4, 48).transpose(1, 2), torch.randn(2, 3, 4, 48)):
        torch.testing.assert_close(ours(x), theirs(x), rtol=2e-6, atol=2e-6)


@torch.inference_mode()
def test_what_is_no_such_norm_is_left_as_it_is() -> None:
    others: dict[str, nn.Module] = {
        "other": _random(_MeanlessRMSNorm(48)),
        "narrow": _random(LlamaRMSNorm(48)).bfloat16(),
        "layer": nn.LayerNorm(48),
    }
    model = nn.ModuleDict(dict(others))
    fuse_norms(model)
    assert dict(model.items()) == others


@torch.inference_mode()
def test_a_gated_norm_stays_gated() -> None:
    """It can be called without a gate, but is not."""
    model = nn.ModuleDict({"norm": _random(MambaRMSNormGated(48, group_size=48))})
    fuse_norms(model)
    assert isinstance(model["norm"], MambaRMSNormGated)
