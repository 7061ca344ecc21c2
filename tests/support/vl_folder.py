"""Random Qwen3-VL checkpoints as Hugging Face folders: small ones for tests, published shapes for benchmarks.

Weights are made by `transformers` (names and shapes are its own) and scaled so that greedy output is varied
and depends on the pictures. Tokenizer and scaling are `text_folder.py`'s; the template writes what Qwen3-VL's
does for images and videos.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from support.text_folder import END, END_OF_MESSAGE, byte_level_tokenizer, randomise, write_tokenizer
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

VISION_START, VISION_END, IMAGE_PAD, VIDEO_PAD = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
VISION_TOKENS = (VISION_START, VISION_END, IMAGE_PAD, VIDEO_PAD)
IMAGE_PLACE = f"{VISION_START}{IMAGE_PAD}{VISION_END}"
VIDEO_PLACE = f"{VISION_START}{VIDEO_PAD}{VISION_END}"
"""What a chat template writes for one image or video."""

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}"
    "{% if part.type == 'image' or 'image' in part or 'image_url' in part %}" + IMAGE_PLACE + ""
    "{% elif part.type == 'video' or 'video' in part %}" + VIDEO_PLACE + ""
    "{% elif 'text' in part %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class VlShape:
    """The sizes of a checkpoint. `vision_size` is a multiple of 4 · `vision_heads`."""

    hidden_size: int = 32
    intermediate_size: int = 48
    num_layers: int = 3
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 8
    section: tuple[int, int, int] = (2, 1, 1)
    tied: bool = True
    vision_size: int = 16
    vision_ffn: int = 24
    vision_depth: int = 3
    vision_heads: int = 2
    patch_size: int = 4
    merge_size: int = 2
    num_positions: int = 36
    deepstack: tuple[int, ...] = (0, 2)
    num_text_tokens: int = 320
    vocab_size: int | None = None
    """Rows of the embedding; by default the tokenizer's ids and a few more."""
    max_positions: int = 2048
    rope_theta: float = 10_000.0
    image_size: tuple[int, int] = (8 * 8 * 2, 8 * 8 * 24)
    """Least and most pixels of an image."""
    video_size: tuple[int, int] = (8 * 8 * 2, 8 * 8 * 40)
    extra: dict[str, Any] = field(default_factory=dict)
    """Further fields of the text config."""


QWEN3_VL_2B = VlShape(
    hidden_size=2048,
    intermediate_size=6144,
    num_layers=28,
    num_heads=16,
    num_kv_heads=8,
    head_dim=128,
    section=(24, 20, 20),
    vision_size=1024,
    vision_ffn=4096,
    vision_depth=24,
    vision_heads=16,
    patch_size=16,
    num_positions=2304,
    deepstack=(5, 11, 17),
    num_text_tokens=151_643,
    vocab_size=151_936,
    max_positions=262_144,
    rope_theta=5_000_000.0,
    image_size=(65_536, 16_777_216),
    video_size=(4096, 25_165_824),
)
"""The published shape of Qwen/Qwen3-VL-2B-Instruct."""


def vl_config(shape: VlShape) -> Qwen3VLConfig:
    """The config of a shape, with the ids of its tokenizer."""
    tokenizer = byte_level_tokenizer(shape.num_text_tokens, VISION_TOKENS)
    num_ids = tokenizer.get_vocab_size(with_added_tokens=True)
    end = tokenizer.token_to_id(END_OF_MESSAGE)
    return Qwen3VLConfig(
        text_config={
            "vocab_size": shape.vocab_size or num_ids + 3,  # padded, as published ones are
            "hidden_size": shape.hidden_size,
            "intermediate_size": shape.intermediate_size,
            "num_hidden_layers": shape.num_layers,
            "num_attention_heads": shape.num_heads,
            "num_key_value_heads": shape.num_kv_heads,
            "head_dim": shape.head_dim,
            "max_position_embeddings": shape.max_positions,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": shape.rope_theta,
                "mrope_section": list(shape.section),
                "mrope_interleaved": True,
            },
            "tie_word_embeddings": shape.tied,
            "eos_token_id": end,
            "bos_token_id": None,
            **shape.extra,
        },
        vision_config={
            "depth": shape.vision_depth,
            "hidden_size": shape.vision_size,
            "intermediate_size": shape.vision_ffn,
            "num_heads": shape.vision_heads,
            "patch_size": shape.patch_size,
            "spatial_merge_size": shape.merge_size,
            "out_hidden_size": shape.hidden_size,
            "num_position_embeddings": shape.num_positions,
            "deepstack_visual_indexes": list(shape.deepstack),
        },
        image_token_id=tokenizer.token_to_id(IMAGE_PAD),
        video_token_id=tokenizer.token_to_id(VIDEO_PAD),
        vision_start_token_id=tokenizer.token_to_id(VISION_START),
        vision_end_token_id=tokenizer.token_to_id(VISION_END),
        tie_word_embeddings=shape.tied,
    )


def make_vl_folder(
    path: Path,
    *,
    seed: int = 0,
    shape: VlShape | None = None,
    max_shard_size: str = "5GB",
    dtype: torch.dtype = torch.float32,
) -> Path:
    """Write a random Qwen3-VL checkpoint to `path`; return it."""
    shape = shape or VlShape()
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = byte_level_tokenizer(shape.num_text_tokens, VISION_TOKENS)
    end = tokenizer.token_to_id(END_OF_MESSAGE)
    model = Qwen3VLForConditionalGeneration(vl_config(shape))
    randomise(model, seed)
    model.generation_config.eos_token_id = [end, tokenizer.token_to_id(END)]
    model.generation_config.pad_token_id = tokenizer.token_to_id(END)
    model.to(dtype).save_pretrained(path, max_shard_size=max_shard_size)
    write_tokenizer(path, tokenizer)
    (path / "chat_template.jinja").write_text(CHAT_TEMPLATE)
    write_processors(path, shape)
    return path


def write_processors(path: Path, shape: VlShape) -> None:
    """The two preprocessor configs, as the published folders have them."""
    common = {
        "patch_size": shape.patch_size,
        "temporal_patch_size": 2,
        "merge_size": shape.merge_size,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "processor_class": "Qwen3VLProcessor",
    }
    for name, size, kind in (
        ("preprocessor_config.json", shape.image_size, {"image_processor_type": "Qwen2VLImageProcessorFast"}),
        (
            "video_preprocessor_config.json",
            shape.video_size,
            {"video_processor_type": "Qwen3VLVideoProcessor"},
        ),
    ):
        config = {"size": {"shortest_edge": size[0], "longest_edge": size[1]}} | common | kind
        (path / name).write_text(json.dumps(config, indent=2))
