"""Random checkpoints of models that see and hear and, in the same folder, have a part that speaks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from sensorium.protocols.engine.messages import EncoderItem
from support.media_families.patches import MROPE
from support.media_family import Family, make_media_folder, values
from torch import Tensor

_TOKENS = (
    *("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"),
    *("<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>"),
)
_PLACE = (
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif part.type == 'video' %}<|vision_start|><|video_pad|><|vision_end|>"
    "{% else %}<|audio_bos|><|AUDIO|><|audio_eos|>{% endif %}"
)
_PREPARED = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "patch_size": 4,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "size": {"shortest_edge": 8 * 8 * 2, "longest_edge": 8 * 8 * 24},
    "feature_extractor_type": "WhisperFeatureExtractor",
    "feature_size": 16,
    "chunk_length": 3,
}
_IDS = {"vision_start_token_id": "<|vision_start|>", "vision_end_token_id": "<|vision_end|>"}
_EARS = {
    "num_mel_bins": 16,
    "d_model": 16,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
    "output_dim": 32,
    "n_window": 10,
}
_EYES = {
    "depth": 3,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_heads": 2,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "out_hidden_size": 32,
}


def _heard_and_seen(window_frames: int) -> Any:  # noqa: ANN401
    """What `generate` takes for items, of which windows of so many frames are followed by more of a clip."""

    def inputs(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
        pictures = [item for item in items if item.features.grid is not None]
        clips: list[list[Tensor]] = [[]]
        for item in items:
            if item.features.grid is None:
                clips[-1].append(values(item))
                if item.features.shape[1] < window_frames:
                    clips.append([])
        found: dict[str, Any] = {}
        if pictures:
            found["pixel_values"] = torch.cat([values(item) for item in pictures])
            found["image_grid_thw"] = torch.tensor([item.features.grid for item in pictures])
        heard = [torch.cat(clip, dim=1) for clip in clips if clip]
        if heard:
            lengths = torch.tensor([each.shape[1] for each in heard])
            padded = torch.zeros(len(heard), heard[0].shape[0], int(lengths.max()))
            for clip, each in zip(padded, heard, strict=True):
                clip[:, : each.shape[1]] = each
            found["input_features"] = padded
            found["feature_attention_mask"] = (torch.arange(padded.shape[2]) < lengths[:, None]).long()
        return found

    return inputs


OMNI_FAMILIES = (
    Family(
        "qwen2_5_omni_thinker",
        _PLACE,
        _TOKENS,
        _IDS
        | {
            "image_token_index": "<|image_pad|>",
            "video_token_index": "<|video_pad|>",
            "audio_token_index": "<|AUDIO|>",
            "audio_start_token_id": "<|audio_bos|>",
            "audio_end_token_id": "<|audio_eos|>",
            "vision_config": _EYES | {"window_size": 16, "fullatt_block_indexes": [1]},
            "audio_config": _EARS,
        },
        _PREPARED,
        {"model_type": "qwen2_5_omni_text", **MROPE},
        _heard_and_seen(20),
    ),
    Family(
        "qwen3_omni_moe_thinker",
        _PLACE,
        _TOKENS,
        _IDS
        | {
            "image_token_id": "<|image_pad|>",
            "video_token_id": "<|video_pad|>",
            "audio_token_id": "<|AUDIO|>",
            "audio_start_token_id": "<|audio_bos|>",
            "vision_config": _EYES | {"num_position_embeddings": 36, "deepstack_visual_indexes": [0, 2]},
            "audio_config": _EARS | {"n_window": 50, "n_window_infer": 100, "downsample_hidden_size": 8},
        },
        _PREPARED,
        {
            "model_type": "qwen3_omni_moe_text",
            "head_dim": 8,
            "moe_intermediate_size": 16,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "rope_parameters": MROPE["rope_parameters"] | {"mrope_interleaved": True},
        },
        _heard_and_seen(100),
    ),
)
_ARCHITECTURES = {
    "qwen2_5_omni_thinker": ("qwen2_5_omni", "Qwen2_5OmniModel"),
    "qwen3_omni_moe_thinker": ("qwen3_omni_moe", "Qwen3OmniMoeForConditionalGeneration"),
}


def make_omni_folder(path: Path, family: Family, *, seed: int = 0) -> Path:
    """Write a random checkpoint as it is published, with a tensor of the model that speaks; return `path`."""
    make_media_folder(path, family, seed=seed)
    template = path / "chat_template.jinja"
    template.write_text(template.read_text().replace("('image', 'audio')", "('image', 'audio', 'video')"))
    model_type, architecture = _ARCHITECTURES[family.model_type]
    thinker = json.loads((path / "config.json").read_text())
    whole = {"architectures": [architecture], "model_type": model_type, "thinker_config": thinker}
    (path / "config.json").write_text(json.dumps(whole))
    file = path / "model.safetensors"
    tensors = {
        name if name.startswith("thinker.") else f"thinker.{name}": tensor
        for name, tensor in load_file(file).items()
    }
    save_file(tensors | {"talker.codec_head.weight": torch.zeros(4, 4)}, file, metadata={"format": "pt"})
    return path
