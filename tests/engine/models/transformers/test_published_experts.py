"""Experts that were published in fewer bits answer as the numbers they stand for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from sensorium.engine.models.base import Model, StepBatch
from sensorium.engine.models.registry import open_model
from sensorium.engine.models.transformers.experts import ArrangedExperts
from sensorium.kernels.attention.paged_attention import PagedSequence, paged_batch, with_tables
from sensorium.protocols.errors import ModelLoadError
from support.exactness import check_every_way, reference_case
from support.latent_families import latent_config
from support.planned_bytes import held_bytes
from support.published_folders import FLOAT4, publish
from support.text_folder import byte_level_tokenizer, make_text_folder
from torch import Tensor
from transformers import AutoModelForCausalLM, Mxfp4Config
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

_VOCAB_SIZE = byte_level_tokenizer().get_vocab_size(with_added_tokens=True)
_SIZES: dict[str, Any] = {
    "vocab_size": _VOCAB_SIZE,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
}
_CODES = ("gptq", "awq", "packed", "int8")
"""That stay what they are."""
_CLOSE = 0.1
"""Inputs are rounded beside codes, by which rows near a tie go to another expert. Mixed up weights make it
1."""


def mixtral(folder: Path) -> Path:
    config = CONFIG_MAPPING["mixtral"](**_SIZES, num_local_experts=4)
    return make_text_folder(folder, config)


def deepseek(folder: Path) -> Path:
    sizes = {"moe_intermediate_size": 32, "hidden_size": 64, "intermediate_size": 96, "kv_lora_rank": 32}
    config = latent_config("deepseek_v3")
    config.update(
        sizes | {"q_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8, "v_head_dim": 24}
    )
    return make_text_folder(folder, config)


def rename(folder: Path, old: str, new: str) -> Path:
    """Mixtral's experts have names by which the packer knows no projection."""
    tensors = load_file(folder / "model.safetensors")
    renamed = {re.sub(old, new, key): each for key, each in tensors.items()}
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def logits_of(model: Model) -> Tensor:
    token_ids = torch.arange(40) * 7 % _VOCAB_SIZE
    groups = model.kv_shape.layout(model.dtype).groups
    cache = torch.zeros(model.kv_shape.cache_shape(4 * len(groups), 16, model.dtype), dtype=model.dtype)
    tables = [[PagedSequence(range(4 * index, 4 * index + 4), 0, 40)] for index in range(len(groups))]
    paged = paged_batch(tables[0], 16, model.device)
    more = tuple(with_tables(paged, each) for each in tables[1:])
    with torch.inference_mode():
        return model.logits(
            model.forward(StepBatch(token_ids, torch.arange(40), paged, more_paged=more), cache)
        )


def experts_in(model: Any) -> list[ArrangedExperts]:  # noqa: ANN401 (of `transformers`)
    return [each for each in model._decoder.modules() if isinstance(each, ArrangedExperts)]


@pytest.mark.parametrize("name", [*_CODES, "gptq, an order each", "fp8 blocks", "mxfp4"])
@pytest.mark.parametrize("family", ["mixtral", "deepseek"])
def test_a_folder_answers_as_the_numbers_it_stands_for(tmp_path: Path, family: str, name: str) -> None:
    torch.set_num_threads(1)
    if family == "mixtral":
        plain = rename(mixtral(tmp_path / "plain"), r"\.(w\d)\.", r".\1_proj.")
        folder, twin = (rename(each, r"\.(w\d)_proj\.", r".\1.") for each in publish(plain, tmp_path, name))
    else:
        folder, twin = publish(deepseek(tmp_path / "plain"), tmp_path, name)
    source, other = (open_model(each, device="cpu", dtype="float32") for each in (folder, twin))
    model, exact = source.load(), other.load()
    want, got = logits_of(exact), logits_of(model)
    is_coded = name in _CODES or name.startswith("gptq")
    assert all(each.is_coded == is_coded for each in experts_in(model))
    assert experts_in(model)
    assert source.weight_bytes == held_bytes(model)
    if name == "mxfp4":  # that numbers stored in 32 bits fit into 16 is known once they are read
        assert other.weight_bytes > held_bytes(exact) == held_bytes(model)
    else:
        assert other.weight_bytes == held_bytes(exact)
    assert float((got - want).norm() / want.norm()) < (_CLOSE if is_coded else 1e-5)
    assert (source.weight_bytes < 0.6 * other.weight_bytes) == is_coded, "codes are held as codes"


@pytest.mark.parametrize("quantization", ["int8", "int4"])
def test_experts_are_rounded_when_they_are_read(tmp_path: Path, quantization: str) -> None:
    torch.set_num_threads(1)
    folder = mixtral(tmp_path)
    source = open_model(folder, device="cpu", dtype="float32", quantization=quantization)
    model, exact = source.load(), open_model(folder, device="cpu", dtype="float32").load()
    assert all(each.is_coded for each in experts_in(model))
    want, got = logits_of(exact), logits_of(model)
    assert float((got - want).norm() / want.norm()) < {"int8": 0.1, "int4": 0.5}[quantization]
    assert source.weight_bytes == held_bytes(model)


def mxfp4_folder(folder: Path) -> Path:
    """gpt-oss as it is published: blocks of 32 numbers of four bits, and an exponent each."""
    kinds = ["sliding_attention", "full_attention"]
    sizes = _SIZES | {"intermediate_size": 32, "sliding_window": 8, "layer_types": kinds}
    config = CONFIG_MAPPING["gpt_oss"](**sizes, num_local_experts=4, num_experts_per_tok=2)
    make_text_folder(folder, config, dtype=torch.bfloat16)
    tensors = load_file(folder / "model.safetensors")
    levels = torch.cat((FLOAT4, -FLOAT4))
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        grouped = tensors.pop(name).float().transpose(1, 2).unflatten(-1, (-1, 32))
        exponents = (grouped.abs().amax(-1) / 6).log2().ceil()
        codes = (grouped / exponents.exp2()[..., None])[..., None].sub(levels).abs().argmin(-1)
        tensors[f"{name}_blocks"] = (codes[..., 0::2] | codes[..., 1::2] << 4).to(torch.uint8)
        tensors[f"{name}_scales"] = (exponents + 127).to(torch.uint8)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    published = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": published}))
    return folder


@torch.inference_mode()
def test_gpt_oss_in_mxfp4_answers_as_transformers_does(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    folder = mxfp4_folder(tmp_path)
    source = open_model(folder, device="cpu", dtype="float32")
    model: Any = source.load()
    assert source.weight_bytes == held_bytes(model)
    reference = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, quantization_config=Mxfp4Config(dequantize=True)
    ).eval()
    prompts = [[(seed + 5) * token % _VOCAB_SIZE for token in range(1, 20 + seed)] for seed in (3, 20)]
    check_every_way(model, [reference_case(reference, prompt) for prompt in prompts], seed=0)


@pytest.mark.parametrize(
    ("suffix", "change", "named"),
    [
        ("_scales", None, "1 missing: model.layers.1.mlp.experts.down_proj_scales"),
        ("_blocks", (4, 64, 1, 15), "down_proj_blocks is [4, 64, 1, 15], expected [4, 64, 1, 16]"),
        ("_scales", (4, 64, 2), "down_proj_scales is [4, 64, 2], expected [4, 64, 1]"),
    ],
)
def test_blocks_that_do_not_fit_are_named_before_one_is_read(
    tmp_path: Path, suffix: str, change: tuple[int, ...] | None, named: str
) -> None:
    folder = mxfp4_folder(tmp_path)
    tensors = load_file(folder / "model.safetensors")
    key = f"model.layers.1.mlp.experts.down_proj{suffix}"
    del tensors[key]
    if change is not None:
        tensors[key] = torch.zeros(change, dtype=torch.uint8)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelLoadError) as caught:
        open_model(folder, device="cpu", dtype="float32")
    assert named in str(caught.value)
