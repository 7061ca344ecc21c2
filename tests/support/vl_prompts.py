"""Prompts with random pictures in them, as our engine takes them and as `transformers`' `generate` does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import torch
from sensorium.engine.models.prompts import Prompt
from sensorium.engine.models.qwen3_vl.text import VisionTokens, expand_vision
from sensorium.engine.text.tokenizer import TextTokenizer
from sensorium.media.vision.config import VisionConfig
from sensorium.media.vision.images import image_item
from sensorium.media.vision.video import prepare_frames
from sensorium.protocols.engine.messages import EncoderItem, MediaItems
from support.text_folder import SENTENCES
from support.vision_files import picture
from support.vl_folder import IMAGE_PLACE, VIDEO_PLACE
from torch import Tensor

Kind = Literal["text", "image", "images", "video", "interleaved"]
KINDS: Final[tuple[Kind, ...]] = ("text", "image", "images", "video", "interleaved")
_PLACES: Final[dict[Kind, str]] = {
    "text": "",
    "image": "i",
    "images": "iii",
    "video": "v",
    "interleaved": "ivi",
}


@dataclass(frozen=True)
class VlPrompt:
    """A prompt before and after expansion, and its media."""

    text: str
    expanded: Prompt
    images: tuple[EncoderItem, ...]
    videos: tuple[MediaItems, ...]

    def inputs(self, tokens: VisionTokens) -> dict[str, Any]:
        """What `generate` takes beside the ids."""
        ids = torch.tensor([self.expanded.token_ids])
        kinds = (ids == tokens.image).int() + 2 * (ids == tokens.video).int()
        inputs: dict[str, Any] = {}
        if self.images:
            inputs["pixel_values"], inputs["image_grid_thw"] = stacked(self.images)
        if self.videos:
            patches = [item for video in self.videos for item in video.items]
            grids = [(len(video.items), *_grid(video.items[0])[1:]) for video in self.videos]
            inputs["pixel_values_videos"] = stacked(patches)[0]
            inputs["video_grid_thw"] = torch.tensor(grids)
        return inputs | {"mm_token_type_ids": kinds} if inputs else inputs


def stacked(items: Sequence[EncoderItem]) -> tuple[Tensor, Tensor]:
    """All patches float32 [patches, values], and the grids [items, 3]."""
    arrays = [np.frombuffer(item.features.data, "<f4").reshape(item.features.shape) for item in items]
    return torch.from_numpy(np.concatenate(arrays)), torch.tensor([_grid(item) for item in items])


def make_prompt(
    kind: Kind, rng: random.Random, text: TextTokenizer, tokens: VisionTokens, config: VisionConfig
) -> VlPrompt:
    """A prompt of a kind, with pictures and words by chance, of two blocks at least."""
    images: list[EncoderItem] = []
    videos: list[MediaItems] = []
    parts = [_words(rng)]
    for place in _PLACES[kind]:
        height, width, seed = rng.randint(9, 60), rng.randint(9, 60), rng.randrange(10**6)
        if place == "i":
            images.append(image_item(picture(height, width, seed), config.image))
            parts.append(IMAGE_PLACE)
        else:
            frames = [picture(height, width, seed + index) for index in range(rng.randint(1, 7))]
            times = [index * 0.5 + 0.2 for index in range(len(frames))]
            videos.append(prepare_frames(frames, times, config.video))
            parts.append(VIDEO_PLACE)
        parts.append(_words(rng) if rng.random() < 0.7 else "")  # else the next picture follows at once
    parts.append(_words(rng))
    whole = "".join(parts)
    return expand(whole, text, tokens, images, videos)


def expand(
    whole: str,
    text: TextTokenizer,
    tokens: VisionTokens,
    images: Sequence[EncoderItem] = (),
    videos: Sequence[MediaItems] = (),
) -> VlPrompt:
    """A text with the media of its places."""

    def encode(plain: str) -> tuple[int, ...]:
        return text.encode(plain, allow_special=False)

    ids = text.encode(whole, allow_special=True)
    expanded = expand_vision(
        ids, tokens, encode, [*(MediaItems("image", (each,)) for each in images), *videos]
    )
    return VlPrompt(whole, expanded, tuple(images), tuple(videos))


def with_other_pictures(
    prompt: VlPrompt, rng: random.Random, text: TextTokenizer, tokens: VisionTokens, config: VisionConfig
) -> VlPrompt:
    """The same tokens, other images of the same sizes."""

    def other(item: EncoderItem) -> EncoderItem:
        height, width = (side * config.image.patch_size for side in _grid(item)[1:])
        fixed = replace(config.image, do_resize=False)
        return image_item(picture(height, width, rng.randrange(10**6)), fixed)

    return expand(prompt.text, text, tokens, [other(item) for item in prompt.images], prompt.videos)


def _grid(item: EncoderItem) -> tuple[int, int, int]:
    assert item.features.grid is not None
    return item.features.grid


def _words(rng: random.Random) -> str:
    words = rng.choice(SENTENCES).split()
    start = rng.randrange(len(words))
    return " ".join(words[start : start + rng.randint(2, 7)])


def reference_positions(reference: Any, prompt: VlPrompt, tokens: VisionTokens) -> Tensor:  # noqa: ANN401
    """`get_rope_index` of transformers: int64 [3, tokens]."""
    inputs = prompt.inputs(tokens)
    if not inputs:
        return torch.arange(len(prompt.expanded.token_ids)).expand(3, -1)
    grids = {name: grid for name, grid in inputs.items() if name.endswith("_thw")}
    ids = torch.tensor([prompt.expanded.token_ids])
    positions, _ = reference.model.get_rope_index(ids, inputs["mm_token_type_ids"], **grids)
    found: Tensor = positions[:, 0]
    return found
