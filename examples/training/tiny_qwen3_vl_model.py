"""The network of tiny-qwen3-vl: its shape, its tokenizer, its training losses and its checkpoint folder.

The network is `transformers`' Qwen3-VL with patches of 16 pixels of two frames and 2 x 2 of them to a token,
so the exported folder loads wherever the big ones do; only the vision tower is driven by hand here, for
pictures of one size at once. While it is trained, each patch also says what lies on it, which teaches the
tower to see long before the answers do. `tiny_qwen3_vl_data.py` makes the batches.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import torch
from checkpoint_files import (
    END,
    MESSAGE_END,
    MESSAGE_START,
    byte_level_tokenizer,
    replaced_files,
    write_tokenizer,
    write_weights,
)
from drawing import LABEL_SIZES
from grouped_attention import GROUPED
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional
from transformers import GenerationConfig, Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen3_vl.modeling_qwen3_vl import apply_rotary_pos_emb_vision
from transformers.vision_utils import get_vision_interpolation_indices_and_weights, get_vision_position_ids

NUM_TEXT_TOKENS: Final = 896
PATCH: Final = 16
MERGE: Final = 2
DEPTH: Final = 2
"""Frames to a patch; a picture stands in both."""
CELL: Final = PATCH * MERGE
"""Pixels on a side of what becomes a token."""
TOWER_WIDTH, TOWER_LAYERS, TOWER_HEADS = 160, 5, 4
DEEPSTACK: Final = (1, 3)
WIDTH, DECODER_LAYERS, DECODER_MLP = 192, 4, 512
NUM_POSITIONS: Final = 64
IMAGE_PIXELS: Final = (9 * CELL**2, 16 * CELL**2)
"""Least and most pixels of a picture that is looked at: others are made smaller or larger."""
FRAME_TOKENS: Final = 12
VIDEO_PIXELS: Final = (9 * CELL**2, 64 * FRAME_TOKENS * CELL**2)
"""Of all frames of a clip together."""

VISION_START, VISION_END = "<|vision_start|>", "<|vision_end|>"
IMAGE_PAD, VIDEO_PAD = "<|image_pad|>", "<|video_pad|>"
_PART: Final = (
    "{% if part.type == 'image' or 'image' in part or 'image_url' in part %}"
    f"{VISION_START}{IMAGE_PAD}{VISION_END}"
    "{% elif part.type == 'video' or 'video' in part %}"
    f"{VISION_START}{VIDEO_PAD}{VISION_END}"
    "{% elif 'text' in part %}{{ part.text }}{% endif %}"
)
CHAT_TEMPLATE: Final = (
    "{% for message in messages %}" + MESSAGE_START + "{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}{% else %}"
    "{% for part in message.content %}" + _PART + "{% endfor %}{% endif %}" + MESSAGE_END + "\n{% endfor %}"
    "{% if add_generation_prompt %}" + MESSAGE_START + "assistant\n{% endif %}"
)


def build_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Splits words as Qwen's does, with the control tokens of Qwen3-VL."""
    controls = (END, MESSAGE_START, MESSAGE_END, VISION_START, VISION_END, IMAGE_PAD, VIDEO_PAD)
    return byte_level_tokenizer(texts, NUM_TEXT_TOKENS, controls)


def model_config(tokenizer: Tokenizer) -> Qwen3VLConfig:
    """The network's shape; the vocabulary is exactly the tokenizer's."""
    end, message_end = tokenizer.token_to_id(END), tokenizer.token_to_id(MESSAGE_END)
    return Qwen3VLConfig(
        text_config={
            "vocab_size": tokenizer.get_vocab_size(with_added_tokens=True),
            "hidden_size": WIDTH,
            "intermediate_size": DECODER_MLP,
            "num_hidden_layers": DECODER_LAYERS,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 48,
            "max_position_embeddings": 8192,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10_000.0,
                "mrope_section": [8, 8, 8],
                "mrope_interleaved": True,
            },
            "tie_word_embeddings": True,
            "bos_token_id": None,
            "eos_token_id": message_end,
            "pad_token_id": end,
        },
        vision_config={
            "depth": TOWER_LAYERS,
            "hidden_size": TOWER_WIDTH,
            "intermediate_size": 4 * TOWER_WIDTH,
            "num_heads": TOWER_HEADS,
            "patch_size": PATCH,
            "temporal_patch_size": DEPTH,
            "spatial_merge_size": MERGE,
            "out_hidden_size": WIDTH,
            "num_position_embeddings": NUM_POSITIONS,
            "deepstack_visual_indexes": list(DEEPSTACK),
        },
        image_token_id=tokenizer.token_to_id(IMAGE_PAD),
        video_token_id=tokenizer.token_to_id(VIDEO_PAD),
        vision_start_token_id=tokenizer.token_to_id(VISION_START),
        vision_end_token_id=tokenizer.token_to_id(VISION_END),
        tie_word_embeddings=True,
    )


@dataclass(frozen=True, slots=True)
class Pictures:
    """Pictures, or temporal patches of clips, of one size. `patches` float32 [pictures, patches, values] in
    merge order, `grid` patches down and across, `labels` [pictures, patches, kinds] what lies on each,
    `words` [pictures, tokens, most words] what each token should say, -100 behind the last word."""

    patches: Tensor
    grid: tuple[int, int]
    labels: Tensor
    words: Tensor


@dataclass(frozen=True, slots=True)
class VlBatch:
    """One step's rows. `inputs` and `labels` [rows, length], `positions` [3, rows, length]; `visual` marks
    the places of the pictures' tokens in `inputs`, which follow each other as the pictures do."""

    pictures: Sequence[Pictures]
    inputs: Tensor
    labels: Tensor
    positions: Tensor
    visual: Tensor


class TrainedVl(nn.Module):
    """The network with a head on its tower that says what lies on each patch."""

    def __init__(self, config: Qwen3VLConfig) -> None:
        super().__init__()
        for part in (config, config.vision_config, config.text_config):
            part._attn_implementation = GROUPED
        self.vl = Qwen3VLForConditionalGeneration(config)
        self.patch_head = nn.Linear(TOWER_WIDTH, sum(LABEL_SIZES))

    def forward(self, batch: VlBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Cross entropy of the answers, of what lies on the patches, and of the words of the pictures'
        tokens; all means."""
        model = cast(Any, self.vl.model)
        with torch.autocast("cpu", torch.bfloat16):
            levels: list[list[Tensor]] = []
            patch_losses: list[Tensor] = []
            word_losses: list[Tensor] = []
            for pictures in batch.pictures:
                hidden, rows = self._encoded(pictures)
                levels.append(rows)
                patch_losses.append(self._patch_loss(hidden, pictures.labels))
                word_losses.append(self._word_loss(rows[0], pictures.words.flatten(0, 1)))
            encoded = [torch.cat(level) for level in zip(*levels, strict=True)]
            embedded = model.get_input_embeddings()(batch.inputs).to(encoded[0].dtype)
            embedded = embedded.masked_scatter(batch.visual[..., None], encoded[0])
            hidden = model.language_model(
                inputs_embeds=embedded,
                position_ids=batch.positions,
                visual_pos_masks=batch.visual,
                deepstack_visual_embeds=encoded[1:],
                use_cache=False,
            ).last_hidden_state
            # Only the predicted positions go through the vocabulary.
            predicted = batch.labels != -100
            logits = self.vl.lm_head(hidden[predicted])
        loss = functional.cross_entropy(logits.float(), batch.labels[predicted])
        return loss, torch.stack(patch_losses).mean(), torch.stack(word_losses).mean()

    def _encoded(self, pictures: Pictures) -> tuple[Tensor, list[Tensor]]:
        """The tower's last hidden rows [pictures, patches, width], and the tokens' rows [tokens, width]: the
        merger's, then each deepstack level's."""
        tower = cast(Any, self.vl.model.visual)
        patch = tower.patch_embed.proj
        x = functional.linear(pictures.patches, patch.weight.flatten(1), patch.bias)
        grid = torch.tensor([[1, *pictures.grid]])
        places, weights = get_vision_interpolation_indices_and_weights(
            grid,
            num_grid_per_side=tower.num_grid_per_side,
            mode=tower.interpolation_mode,
            align_corners=tower.interpolation_align_corners,
            spatial_merge_size=MERGE,
        )
        x = x + (tower.pos_embed(places) * weights[..., None]).sum(1).to(x.dtype)
        turns = tower.rotary_pos_emb(x, get_vision_position_ids(grid, MERGE))
        rows: list[Tensor] = []
        for index, block in enumerate(tower.blocks):
            x = x + self._attended(block.attn, block.norm1(x), turns)
            x = x + block.mlp(block.norm2(x))
            if index in DEEPSTACK:
                rows.append(tower.deepstack_merger_list[DEEPSTACK.index(index)](x))
        return x, [tower.merger(x), *rows]

    def _attended(self, attention: Any, x: Tensor, turns: tuple[Tensor, Tensor]) -> Tensor:  # noqa: ANN401
        pictures, patches, width = x.shape
        query, key, value = attention.qkv(x).view(pictures, patches, 3, TOWER_HEADS, -1).unbind(2)
        query, key = (each.transpose(1, 2) for each in apply_rotary_pos_emb_vision(query, key, *turns))
        scores = (query * attention.scaling) @ key.transpose(2, 3)
        mixed = scores.softmax(-1).to(value.dtype) @ value.transpose(1, 2)
        return cast(Tensor, attention.proj(mixed.transpose(1, 2).reshape(pictures, patches, width)))

    def _patch_loss(self, hidden: Tensor, labels: Tensor) -> Tensor:
        parts = self.patch_head(hidden).float().split(LABEL_SIZES, -1)
        losses = [
            functional.cross_entropy(part.flatten(0, 1), labels[..., kind].flatten())
            for kind, part in enumerate(parts)
        ]
        return torch.stack(losses).mean()

    def _word_loss(self, rows: Tensor, words: Tensor) -> Tensor:
        """How far the words lie from the rows, which go through the output layer as what is said does."""
        model = cast(Any, self.vl.model)
        log_probabilities = self.vl.lm_head(model.language_model.norm(rows)).float().log_softmax(-1)
        known = words >= 0
        picked = log_probabilities.gather(1, words.clamp(min=0)) * known
        return cast(Tensor, -(picked.sum(-1) / known.sum(-1)).mean())


def export(weights: dict[str, Tensor], tokenizer: Tokenizer, folder: Path) -> None:
    """Replace the checkpoint folder's files one by one, each at once. Others, such as the model card,
    stay."""
    config = model_config(tokenizer)
    config.architectures = ["Qwen3VLForConditionalGeneration"]
    eos = [tokenizer.token_to_id(END), tokenizer.token_to_id(MESSAGE_END)]
    vision = {
        "image_token": IMAGE_PAD,
        "video_token": VIDEO_PAD,
        "vision_bos_token": VISION_START,
        "vision_eos_token": VISION_END,
    }
    with replaced_files(folder) as fresh:
        config.save_pretrained(fresh)
        GenerationConfig(do_sample=False, eos_token_id=eos, pad_token_id=eos[0]).save_pretrained(fresh)
        _write_processors(fresh)
        write_tokenizer(fresh, tokenizer, CHAT_TEMPLATE, {"extra_special_tokens": vision})
        write_weights(fresh, weights, "lm_head.weight")


def _write_processors(folder: Path) -> None:
    """The two preprocessor configs, as the published folders have them."""
    common = {
        "patch_size": PATCH,
        "temporal_patch_size": DEPTH,
        "merge_size": MERGE,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
        "processor_class": "Qwen3VLProcessor",
    }
    image = common | {"image_processor_type": "Qwen2VLImageProcessorFast"}
    video = common | {
        "video_processor_type": "Qwen3VLVideoProcessor",
        "cap_pixels_per_frame": True,
        "max_video_tokens": FRAME_TOKENS,
    }
    for name, config, (least, most) in (
        ("preprocessor_config.json", image, IMAGE_PIXELS),
        ("video_preprocessor_config.json", video, VIDEO_PIXELS),
    ):
        config["size"] = {"shortest_edge": least, "longest_edge": most}
        (folder / name).write_text(json.dumps(config, indent=2) + "\n", "utf-8")
