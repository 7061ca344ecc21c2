"""Families that read documents, or see in two ways at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sensorium.protocols.engine.messages import EncoderItem
from support.media_family import (
    PINPOINTS,
    SIDE,
    SIGLIP,
    SQUARE,
    TOWER,
    Family,
    any_resolution,
    any_shape,
    patches,
    stacked,
    values,
)
from torch import Tensor

_SAM = {
    "hidden_size": 16,
    "output_channels": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "image_size": 2 * SIDE,
    "patch_size": SIDE // 4,
    "window_size": 2,
    "global_attn_indexes": [0],
    "mlp_dim": 24,
}
_ARIA_SIDE = 490
_NUM_CODES = 16


def _tiles(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    pixels = stacked(items, ids)["pixel_values"][None]
    return {"pixel_values": pixels, "pixel_attention_mask": torch.ones(pixels.shape[:2], dtype=torch.bool)}


def _framed(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    found = stacked(items, ids)
    mask = torch.zeros(found["pixel_values"][:, 0].shape, dtype=torch.bool)
    for index, item in enumerate(items):
        assert item.features.grid is not None
        _, height, width = item.features.grid
        mask[index, :height, :width] = True
    return found | {"pixel_mask": mask}


def _two_squares(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    large, small = 2 * SIDE, SIDE
    both = torch.stack(list(map(values, items)))
    high, low = both[:, : 3 * large**2], both[:, 3 * large**2 :]
    return {
        "pixel_values": low.view(-1, 3, small, small),
        "high_res_pixel_values": high.view(-1, 3, large, large),
    }


def _sliced(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    sizes = torch.tensor([item.features.grid for item in items])[:, 1:]
    return {"pixel_values": torch.cat(list(map(values, items)), dim=-1)[None], "target_sizes": sizes}


def _joined(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    return {"pixel_values": torch.cat(list(map(values, items)))[None]}


def _grids(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    found = patches(items, ids)
    del found["mm_token_type_ids"]
    return found


def _views(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    wholes = [item for item in items if item.features.grid == (1, 0, 0)]
    tiles = [item for item in items if item not in wholes]
    numbers, number = [], 0
    for item in items:
        number += item in tiles
        if item in wholes:
            numbers.append(number)
            number = 0
    found: dict[str, Any] = {"pixel_values": torch.stack(list(map(values, wholes)))}
    if tiles:
        found["pixel_values_local"] = torch.stack(list(map(values, tiles)))
        found["num_local_patches"] = numbers
    return found


FAMILIES = (
    Family(
        "granite_docling",
        "<image>",
        ("<image>", "<fake_token_around_image>", "<global-img>", "<row_1_col_1>", "<row_1_col_2>"),
        {
            "vision_config": TOWER
            | {"out_hidden_size": 32, "scale_factor": 2, "deepstack_visual_indexes": [0, 1]},
            "image_token_id": "<image>",
        },
        {"image_processor_type": "GraniteDoclingImageProcessor", "size": SQUARE, "max_patches": 3},
        {
            "model_type": "granite_docling_text",
            "embedding_multiplier": 1.0,
            "residual_multiplier": 1.0,
            "attention_multiplier": 8**-0.5,
        },
        _tiles,
    ),
    Family(
        "aria",
        "<|img|>",
        ("<|img|>",),
        {
            "vision_config": TOWER
            | {"model_type": "idefics3_vision", "image_size": _ARIA_SIDE, "patch_size": _ARIA_SIDE // 5},
            "image_token_index": "<|img|>",
            "projector_patch_to_query_dict": {"25": 4},
        },
        {"image_processor_type": "AriaImageProcessor", "max_image_size": _ARIA_SIDE},
        {"model_type": "aria_text", "moe_num_experts": 4, "moe_topk": 2, "moe_num_shared_experts": 1},
        _framed,
    ),
    Family(
        "deepseek_vl_hybrid",
        "<image_placeholder>",
        ("<image_placeholder>",),
        {
            "vision_config": TOWER | SIGLIP | {"vision_use_head": False},
            "high_res_vision_config": {"model_type": "sam_vision_model"} | _SAM,
            "image_token_id": "<image_placeholder>",
        },
        {
            "image_processor_type": "DeepseekVLHybridImageProcessor",
            "size": SQUARE,
            "high_res_size": {"height": 2 * SIDE, "width": 2 * SIDE},
        },
        inputs=_two_squares,
    ),
    Family(
        "granite4_vision",
        "<image>",
        ("<image>",),
        {
            "vision_config": TOWER | SIGLIP | {"hidden_size": 64, "vision_use_head": False},
            "qformer_config": {
                "model_type": "blip_2_qformer",
                "num_hidden_layers": 1,
                "intermediate_size": 24,
                "cross_attention_frequency": 1,
                "max_position_embeddings": 64,
                "use_qformer_text_input": False,
            },
            "image_token_index": "<image>",
            "image_grid_pinpoints": PINPOINTS,
            "vision_feature_select_strategy": "full",
            "downsample_rate": "1/2",
            "deepstack_layer_map": [[-2, 0], [-1, 1]],
            "spatial_target_layers": [0, 1, 2, 2],
        },
        {
            "image_processor_type": "LlavaNextImageProcessor",
            "size": {"shortest_edge": SIDE},
            "crop_size": SQUARE,
            "image_grid_pinpoints": PINPOINTS,
        },
        {"num_hidden_layers": 3},
        inputs=any_resolution,
    ),
    Family(
        "chameleon",
        "<image>",
        ("<image>", "<racm3:break>", "<eoss>"),
        {
            "vq_config": {
                "embed_dim": 8,
                "num_embeddings": _NUM_CODES,
                "latent_channels": 32,
                "resolution": SIDE,
                "base_channels": 32,
                "channel_multiplier": [1, 1, 1, 1],
                "num_res_blocks": 1,
            },
            "vocabulary_map": {"<image>": "<image>"}
            | {
                f"IMGIMG{'AB'[code // 10]}{'ABCDEFGHIJ'[code % 10]}Z": 40 + code for code in range(_NUM_CODES)
            },
        },
        {
            "image_processor_type": "ChameleonImageProcessor",
            "size": {"shortest_edge": SIDE},
            "crop_size": SQUARE,
        },
        {},
        has_parts=False,
    ),
    Family(
        "deepseek_ocr2",
        "<image>",
        ("<image>",),
        {
            "vision_config": {
                "sam_config": _SAM | {"downsample_channels": [8, 16]},
                "encoder_config": {
                    "hidden_size": 16,
                    "intermediate_size": 24,
                    "num_hidden_layers": 1,
                    "num_attention_heads": 2,
                    "num_key_value_heads": 1,
                },
            },
            "image_token_id": "<image>",
        },
        {
            "image_processor_type": "DeepseekOcr2ImageProcessor",
            "size": {"height": 2 * SIDE, "width": 2 * SIDE},
            "tile_size": 60,
            "max_patches": 2,
        },
        {
            "model_type": "deepseek_ocr2_text",
            "moe_intermediate_size": 16,
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "n_shared_experts": 1,
            "mlp_layer_types": ["dense", "sparse"],
        },
        _views,
    ),
    *(
        Family(
            model_type,
            "<|image_pad|>",
            ("<|image_pad|>", "<image>", "</image>", "<slice>", "</slice>", "<image_id>", "</image_id>"),
            {
                "vision_config": TOWER | {"num_hidden_layers": 2},
                "image_token_id": "<|image_pad|>",
                "insert_layer_id": 0,
                "downsample_mode": mode,
            },
            {
                "image_processor_type": kind,
                "scale_resolution": 48,
                "patch_size": SIDE // 4,
                "max_slice_nums": 4,
            },
            {
                "model_type": "qwen3_5_text",
                "head_dim": 8,
                "layer_types": ["linear_attention", "full_attention"],
                "linear_num_key_heads": 2,
                "linear_num_value_heads": 4,
                "linear_key_head_dim": 8,
                "linear_value_head_dim": 8,
            },
            _sliced,
        )
        for model_type, mode, kind in (
            ("minicpmv4_6", "16x", "MiniCPMV4_6ImageProcessor"),
            ("minicpm_ocr", "4x", "MiniCPMOcrImageProcessor"),
        )
    ),
    Family(
        "emu3",
        "<image>",
        ("<image>", "<|image start|>", "<|image end|>", "<|image token|>", "<|extra_200|>", "<|extra_201|>"),
        {
            "vq_config": {
                "codebook_size": _NUM_CODES,
                "embed_dim": 4,
                "latent_channels": 4,
                "temporal_downsample_factor": 2,
                "base_channels": 32,
                "channel_multiplier": [1, 1, 1, 1],
                "num_res_blocks": 1,
                "attn_resolutions": [],
                "hidden_size": 32,
            },
            "vocabulary_map": {name: name for name in ("<image>", "<|extra_200|>")}
            | {f"<|visual token {code:06d}|>": 40 + code for code in range(_NUM_CODES)},
        },
        {  # all of one size: the reference pads others, and its convolutions see that
            "image_processor_type": "Emu3ImageProcessor",
            "spatial_factor": SIDE,
            "min_pixels": SIDE**2,
            "max_pixels": SIDE**2,
        },
        {"model_type": "emu3_text_model", "pad_token_id": 0, "bos_token_id": 0},
        any_shape,
    ),
    Family(
        "fuyu",
        "|SPEAKER|",
        ("|SPEAKER|", "|NEWLINE|"),
        {"patch_size": SIDE // 4, "image_token_id": "|SPEAKER|"},
        {
            "image_processor_type": "FuyuImageProcessor",
            "size": SQUARE,
            "patch_size": {"height": SIDE // 4, "width": SIDE // 4},
        },
        {"model_type": "persimmon"},
        _joined,
    ),
    Family(
        "minimax_m3_vl",
        "]<]image[>[",
        ("]<]image[>[", "]<]start of image[>[", "]<]end of image[>["),
        {
            "vision_config": TOWER | {"num_hidden_layers": 2},
            "image_token_index": "]<]image[>[",
            "projector_hidden_size": 24,
        },
        {
            "image_processor_type": "MiniMaxM3VLImageProcessor",
            "patch_size": SIDE // 4,
            "size": {"shortest_edge": 256, "longest_edge": 2 * SIDE**2},
        },
        {
            "model_type": "minimax_m3_vl_text",
            "num_hidden_layers": 3,
            "head_dim": 8,
            "dense_intermediate_size": 24,
            "shared_intermediate_size": 24,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "index_head_dim": 8,
            "index_n_heads": 2,
            "layer_types": ["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"],
            "mlp_layer_types": ["dense", "sparse", "sparse"],
        },
        _grids,
    ),
)
