"""Random checkpoints of models that see or hear, of any family, and prompts for them as `generate` takes
them.

Weights are made by `transformers` (names and shapes are its own). Features are what our own rules of
pixels make of pictures: those equal the processors of `transformers`
(`tests/media/vision/rules/test_rules.py`), which need torchvision.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from sensorium.media.audio.features import FloatArray
from sensorium.protocols.engine.messages import EncoderItem
from support.recurrent_families import FAMILIES as RECURRENT
from support.text_folder import END, END_OF_MESSAGE, byte_level_tokenizer, randomise, write_tokenizer
from tokenizers import Tokenizer
from torch import Tensor
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES

SIDE = 32
"""Pixels of the squares that towers of this file take; a patch has a quarter of it."""
_CLIP = {"model_type": "clip_vision_model", "projection_dim": 8}
_SIGLIP = {"model_type": "siglip_vision_model"}
_TOWER: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": SIDE,
    "patch_size": SIDE // 4,
}
_PINPOINTS = [[32, 64], [64, 32], [64, 64]]
_SQUARE = {"height": SIDE, "width": SIDE}


def stacked(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    """Features of one shape, one behind the other."""
    return {"pixel_values": torch.stack(list(map(values, items)))}


def patches(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    """Patches of any grids; `ids` [1, tokens] have the placeholder most often."""
    grids = torch.tensor([item.features.grid for item in items])
    token = int(ids.mode().values)
    return {
        "pixel_values": torch.cat(list(map(values, items))),
        "image_grid_thw": grids,
        "mm_token_type_ids": (ids == token).int(),
    }


def any_resolution(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    """A whole picture and tiles of each, and its size."""
    features = list(map(values, items))
    most = max(each.shape[0] for each in features)
    padded = [torch.cat([each, each.new_zeros(most - len(each), *each.shape[1:])]) for each in features]
    sizes = [item.features.grid for item in items]
    return {"pixel_values": torch.stack(padded), "image_sizes": torch.tensor(sizes)[:, 1:]}


def any_shape(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    """Pictures of their own shapes, with zeros behind them, and their sizes."""
    features = list(map(values, items))
    height, width = (max(each.shape[axis] for each in features) for axis in (1, 2))
    padded = torch.zeros(len(features), 3, height, width)
    for index, each in enumerate(features):
        padded[index, :, : each.shape[1], : each.shape[2]] = each
    return {"pixel_values": padded, "image_sizes": torch.tensor([each.shape[1:] for each in features])}


def squares_of_a_prompt(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    """All squares of one prompt."""
    return {"pixel_values": stacked(items, ids)["pixel_values"][None]}


def windows(mask: str | None) -> Callable[[Sequence[EncoderItem], Tensor], dict[str, Any]]:
    """Features of windows, and by this name which of their frames are audio."""

    def inputs(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
        features = torch.stack(list(map(values, items)))
        if mask is None:
            return {"input_features": features}
        lengths = torch.tensor([item.features.grid[2] if item.features.grid else 0 for item in items])
        return {
            "input_features": features,
            mask: (torch.arange(features.shape[-1]) < lengths[:, None]).long(),
        }

    return inputs


def seen_whole(items: Sequence[EncoderItem], ids: Tensor) -> dict[str, Any]:
    """Features of one shape, and which tokens are those of pictures; `ids` [1, tokens] have those most
    often."""
    return stacked(items, ids) | {"token_type_ids": (ids == int(ids.mode().values)).int()}


def values(item: EncoderItem) -> Tensor:
    """An item's features."""
    array = np.frombuffer(item.features.data, "<f4").reshape(item.features.shape)
    return torch.from_numpy(array.copy())


@dataclass(frozen=True)
class Sound:
    """Noise that becomes louder and softer."""

    seconds: float
    seed: int = 0

    @property
    def samples(self) -> FloatArray:
        generator = np.random.default_rng(self.seed)
        noise = generator.standard_normal(round(16_000 * self.seconds)).astype(np.float32)
        return noise * np.abs(np.sin(np.arange(len(noise), dtype=np.float32) / 3000)) * np.float32(0.1)


Content = str | tuple[int, int, int] | Sound
"""Text, a picture (height, width, seed), or audio."""


@dataclass(frozen=True)
class Family:
    """How a small checkpoint of a family is made, and what `generate` takes beside ids."""

    model_type: str
    place: str
    """What the chat template writes for a picture."""
    tokens: tuple[str, ...]
    """Added to the tokenizer."""
    config: Mapping[str, Any]
    """Beside `text_config`; a token's id stands where a field names the token."""
    processor: Mapping[str, Any]
    text: Mapping[str, Any] = field(default_factory=lambda: {"model_type": "llama"})
    inputs: Callable[[Sequence[EncoderItem], Tensor], dict[str, Any]] = stacked


_LLAVA_TEXT = {"model_type": "llama"}
_MROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [2, 1, 1]}}
_QWEN_TOKENS = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_QWEN_IDS = {
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
}
_QWEN_PLACE = "<|vision_start|><|image_pad|><|vision_end|>"
_QWEN_PIXELS = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "patch_size": 4,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "size": {"shortest_edge": 8 * 8 * 2, "longest_edge": 8 * 8 * 24},
}
_QWEN3_TOWER = {
    "depth": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_heads": 2,
    "out_hidden_size": 32,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "num_position_embeddings": 36,
}
_GLM_TOKENS = ("<|begin_of_image|>", "<|end_of_image|>", "<|image|>", "<|video|>")
_GLM_IDS = {
    "image_token_id": "<|image|>",
    "video_token_id": "<|video|>",
    "image_start_token_id": "<|begin_of_image|>",
    "image_end_token_id": "<|end_of_image|>",
}
_GLM_TOWER = {
    "depth": 2,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_heads": 2,
    "out_hidden_size": 32,
    "patch_size": 4,
    "image_size": 16,
    "spatial_merge_size": 2,
}
_GLM_PIXELS = {
    "image_processor_type": "Glm4vImageProcessor",
    "patch_size": 4,
    "merge_size": 2,
    "size": {"shortest_edge": 8 * 8 * 4, "longest_edge": 8 * 8 * 48},
}


def _of_text(model_type: str) -> dict[str, Any]:
    """The text config of one some of whose layers keep states."""
    return {"model_type": f"{model_type}_text", **RECURRENT[f"{model_type}_text"]}


FAMILIES = (
    Family(
        "aya_vision",
        "<image>",
        ("<image>", "<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "TILE_GLOBAL", "TILE_1", "TILE_2"),
        {
            "vision_config": _TOWER | _SIGLIP,
            "image_token_id": "<|IMG_PATCH|>",
            "vision_feature_select_strategy": "full",
            "downsample_factor": 2,
            "adapter_layer_norm_eps": 1e-6,
        },
        {"image_processor_type": "GotOcr2ImageProcessor", "size": _SQUARE, "max_patches": 3},
        {"model_type": "cohere2", "sliding_window": 40},
    ),
    Family(
        "gemma3",
        "<start_of_image>",
        ("<start_of_image>", "<end_of_image>", "<image_soft_token>"),
        {
            "vision_config": _TOWER | _SIGLIP | {"vision_use_head": False},
            "boi_token_index": "<start_of_image>",
            "eoi_token_index": "<end_of_image>",
            "image_token_id": "<image_soft_token>",
            "mm_tokens_per_image": 16,
        },
        {"image_processor_type": "Gemma3ImageProcessor", "size": _SQUARE, "do_pan_and_scan": None},
        {
            "model_type": "gemma3_text",
            "head_dim": 8,
            "num_hidden_layers": 3,
            "sliding_window": 12,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        seen_whole,
    ),
    Family(
        "internvl",
        "<IMG_CONTEXT>",
        ("<img>", "</img>", "<IMG_CONTEXT>"),
        {
            "vision_config": _TOWER
            | {"model_type": "internvl_vision", "image_size": [SIDE] * 2, "patch_size": [SIDE // 4] * 2},
            "image_token_id": "<IMG_CONTEXT>",
        },
        {"image_processor_type": "GotOcr2ImageProcessorFast", "size": _SQUARE, "max_patches": 4},
        {"model_type": "qwen2"},
    ),
    Family(
        "llava_next",
        "<image>",
        ("<image>",),
        {
            "vision_config": _TOWER | _CLIP,
            "image_token_id": "<image>",
            "image_grid_pinpoints": _PINPOINTS,
        },
        {
            "image_processor_type": "LlavaNextImageProcessor",
            "size": {"shortest_edge": SIDE},
            "crop_size": _SQUARE,
            "image_grid_pinpoints": _PINPOINTS,
        },
        {"model_type": "mistral", "sliding_window": None},
        any_resolution,
    ),
    Family(
        "llava_onevision",
        "<image>",
        ("<image>", "<video>"),
        {
            "vision_config": _TOWER | _SIGLIP | {"vision_use_head": False},
            "image_token_id": "<image>",
            "video_token_id": "<video>",
            "image_grid_pinpoints": _PINPOINTS,
            "vision_aspect_ratio": "anyres_max_2",
        },
        {
            "image_processor_type": "LlavaOnevisionImageProcessor",
            "size": _SQUARE,
            "image_grid_pinpoints": _PINPOINTS,
        },
        {"model_type": "qwen2"},
        any_resolution,
    ),
    Family(
        "smolvlm",
        "<image>",
        ("<image>", "<fake_token_around_image>", "<global-img>", "<row_1_col_1>", "<row_1_col_2>"),
        {"vision_config": _TOWER | {"model_type": "smolvlm_vision"}, "image_token_id": "<image>"},
        {
            "image_processor_type": "SmolVLMImageProcessor",
            "size": {"longest_edge": 2 * SIDE},
            "max_image_size": {"longest_edge": SIDE},
        },
        inputs=squares_of_a_prompt,
    ),
    Family(
        "idefics3",
        "<image>",
        ("<image>", "<fake_token_around_image>", "<global-img>"),
        {"vision_config": _TOWER | {"model_type": "idefics3_vision"}, "image_token_id": "<image>"},
        {
            "image_processor_type": "Idefics3ImageProcessor",
            "size": {"longest_edge": 2 * SIDE},
            "max_image_size": {"longest_edge": SIDE},
        },
        inputs=squares_of_a_prompt,
    ),
    Family(
        "mistral3",
        "[IMG]",
        ("[IMG]", "[IMG_BREAK]", "[IMG_END]"),
        {
            "vision_config": _TOWER | {"model_type": "pixtral", "head_dim": 8, "image_size": 64},
            "image_token_id": "[IMG]",
            "vision_feature_layer": -1,
        },
        {
            "image_processor_type": "PixtralImageProcessor",
            "size": {"longest_edge": 2 * SIDE},
            "patch_size": SIDE // 2,
        },
        {"model_type": "mistral", "sliding_window": None, "head_dim": 8},
        any_shape,
    ),
    Family(
        "glm4v",
        "<|begin_of_image|><|image|><|end_of_image|>",
        _GLM_TOKENS,
        _GLM_IDS | {"vision_config": _GLM_TOWER},
        _GLM_PIXELS,
        {"model_type": "glm4v_text", "head_dim": 8, **_MROPE},
        patches,
    ),
    Family(
        "llava",
        "[IMG]",
        ("[IMG]", "[IMG_BREAK]", "[IMG_END]"),
        {
            "vision_config": _TOWER | {"model_type": "pixtral", "head_dim": 8, "image_size": 64},
            "image_token_id": "[IMG]",
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
        },
        {
            "image_processor_type": "PixtralImageProcessor",
            "size": {"longest_edge": 2 * SIDE},
            "patch_size": SIDE // 4,
        },
        {"model_type": "mistral", "sliding_window": None, "head_dim": 8},
        any_shape,
    ),
    Family(
        "vipllava",
        "<image>",
        ("<image>",),
        {
            "vision_config": _TOWER | _CLIP,
            "image_token_id": "<image>",
            "vision_feature_layer": [-1, -2],
        },
        {
            "image_processor_type": "CLIPImageProcessor",
            "size": {"shortest_edge": SIDE},
            "crop_size": _SQUARE,
        },
    ),
    *(
        Family(
            model_type,
            _QWEN_PLACE,
            _QWEN_TOKENS,
            _QWEN_IDS | {"vision_config": _QWEN3_TOWER},
            _QWEN_PIXELS,
            _of_text(model_type)
            | {
                "rope_parameters": _MROPE["rope_parameters"] | {"partial_rotary_factor": 1.0},
                "vocab_size": 400,
            },
            patches,
        )
        for model_type in ("qwen3_5", "qwen3_5_moe")
    ),
    *(
        Family(
            model_type,
            "<|begin_of_image|><|image|><|end_of_image|>",
            _GLM_TOKENS,
            _GLM_IDS | {"vision_config": _GLM_TOWER},
            _GLM_PIXELS,
            {"model_type": f"{model_type}_text", "head_dim": 8, **_MROPE},
            patches,
        )
        for model_type in ("glm_ocr",)
    ),
    Family(
        "llava",
        "<image>\n",
        ("<image>",),
        {"vision_config": _TOWER | _CLIP, "image_token_id": "<image>"},
        {
            "image_processor_type": "CLIPImageProcessor",
            "size": {"shortest_edge": SIDE},
            "crop_size": _SQUARE,
        },
    ),
    Family(
        "qwen2_vl",
        _QWEN_PLACE,
        _QWEN_TOKENS,
        _QWEN_IDS
        | {
            "vision_config": {
                "depth": 2,
                "embed_dim": 16,
                "hidden_size": 32,
                "num_heads": 2,
                "mlp_ratio": 2,
                "patch_size": 4,
                "spatial_merge_size": 2,
            }
        },
        _QWEN_PIXELS,
        {"model_type": "qwen2_vl_text", **_MROPE},
        patches,
    ),
    Family(
        "qwen2_5_vl",
        _QWEN_PLACE,
        _QWEN_TOKENS,
        _QWEN_IDS
        | {
            "vision_config": {
                "depth": 2,
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_heads": 2,
                "out_hidden_size": 32,
                "patch_size": 4,
                "spatial_merge_size": 2,
                "window_size": 16,
                "fullatt_block_indexes": [1],
            }
        },
        _QWEN_PIXELS,
        {"model_type": "qwen2_5_vl_text", **_MROPE},
        patches,
    ),
    Family(
        "qwen3_vl_moe",
        _QWEN_PLACE,
        _QWEN_TOKENS,
        _QWEN_IDS
        | {
            "vision_config": {
                "depth": 3,
                "hidden_size": 16,
                "intermediate_size": 24,
                "num_heads": 2,
                "out_hidden_size": 32,
                "patch_size": 4,
                "spatial_merge_size": 2,
                "num_position_embeddings": 36,
                "deepstack_visual_indexes": [0, 2],
            }
        },
        _QWEN_PIXELS,
        {
            "model_type": "qwen3_vl_moe_text",
            "head_dim": 8,
            "moe_intermediate_size": 16,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "rope_parameters": _MROPE["rope_parameters"] | {"mrope_interleaved": True},
        },
        patches,
    ),
)
_WINDOW_S = 2
_WHISPER = {
    "feature_extractor_type": "WhisperFeatureExtractor",
    "chunk_length": _WINDOW_S,
    "feature_size": 16,
}
_EARS: dict[str, Any] = {
    "num_mel_bins": 16,
    "max_source_positions": 50 * _WINDOW_S,
    "d_model": 16,
    "encoder_layers": 2,
    "encoder_attention_heads": 2,
    "encoder_ffn_dim": 24,
}
_HEARD: dict[str, Any] = {
    "num_mel_bins": 16,
    "max_source_positions": 50 * _WINDOW_S,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
AUDIO_FAMILIES = (
    Family(
        "audioflamingo3",
        "<sound>",
        ("<sound>",),
        {"audio_config": {"model_type": "audioflamingo3_encoder", **_EARS}, "audio_token_id": "<sound>"},
        _WHISPER,
        {"model_type": "qwen2"},
        windows("input_features_mask"),
    ),
    Family(
        "glmasr",
        "<|begin_of_audio|><|pad|><|end_of_audio|>",
        ("<|begin_of_audio|>", "<|pad|>", "<|end_of_audio|>"),
        {"audio_config": {"model_type": "glmasr_encoder", **_HEARD}, "audio_token_id": "<|pad|>"},
        _WHISPER,
        inputs=windows("input_features_mask"),
    ),
    Family(
        "qwen2_audio",
        "Audio 1: <|audio_bos|><|AUDIO|><|audio_eos|>\n",
        ("<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>"),
        {"audio_config": {"model_type": "qwen2_audio_encoder", **_EARS}, "audio_token_id": "<|AUDIO|>"},
        _WHISPER,
        {"model_type": "qwen2"},
        windows("feature_attention_mask"),
    ),
    Family(
        "voxtral",
        "[BEGIN_AUDIO][AUDIO]",
        ("[BEGIN_AUDIO]", "[AUDIO]"),
        {"audio_config": {"model_type": "voxtral_encoder", **_HEARD}, "audio_token_id": "[AUDIO]"},
        _WHISPER,
        inputs=windows(None),
    ),
)
BY_NAME = {family.model_type: family for family in (*FAMILIES, *AUDIO_FAMILIES)}


def tokenizer_of(family: Family) -> Tokenizer:
    """Our own, with the family's tokens."""
    return byte_level_tokenizer(320, family.tokens)


def make_media_folder(path: Path, family: Family, *, seed: int = 0) -> Path:
    """Write a random checkpoint to `path`; return it."""
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizer_of(family)
    end = tokenizer.token_to_id(END_OF_MESSAGE)
    text = {
        "vocab_size": tokenizer.get_vocab_size(with_added_tokens=True) + 3,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
        "eos_token_id": end,
        "bos_token_id": None,
        "pad_token_id": None,
        **family.text,
    }
    fields = {
        name: tokenizer.token_to_id(value) if isinstance(value, str) and value in family.tokens else value
        for name, value in family.config.items()
    }
    config = CONFIG_MAPPING[family.model_type](text_config=text, tie_word_embeddings=False, **fields)
    model = model_class(family)(config)
    randomise(model, seed)
    model.generation_config.eos_token_id = [end, tokenizer.token_to_id(END)]
    model.generation_config.pad_token_id = tokenizer.token_to_id(END)
    model.save_pretrained(path)
    write_tokenizer(path, tokenizer)
    (path / "chat_template.jinja").write_text(_template(family.place))
    (path / "preprocessor_config.json").write_text(json.dumps(dict(family.processor), indent=2))
    return path


def model_class(family: Family) -> Any:  # noqa: ANN401 (of transformers)
    """Its whole model."""
    names = MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES
    return getattr(transformers, names.get(family.model_type, "AudioFlamingo3ForConditionalGeneration"))


def _template(place: str) -> str:
    return (
        "{% for message in messages %}<|im_start|>{{ message.role }}\n"
        "{% if message.content is string %}{{ message.content }}{% else %}{% for part in message.content %}"
        "{% if part.type in ('image', 'audio') %}"
        + place
        + "{% elif part.type == 'text' %}{{ part.text }}{% endif %}"
        "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
