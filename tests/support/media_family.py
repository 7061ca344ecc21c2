"""Random checkpoints of models that see or hear, of any family, and prompts for them as `generate` takes
them.

Weights are made by `transformers` (names and shapes are its own). Features are what our own rules of
pixels make of pictures: those equal the processors of `transformers`
(`tests/media/vision/rules/test_rules.py`), which need torchvision.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from sensorium.media.audio.features import FloatArray
from sensorium.protocols.engine.messages import EncoderItem
from support.text_folder import END, END_OF_MESSAGE, byte_level_tokenizer, randomise, write_tokenizer
from tokenizers import Tokenizer
from torch import Tensor
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES

SIDE = 32
"""Pixels of the squares that towers of this file take; a patch has a quarter of it."""
CLIP = {"model_type": "clip_vision_model", "projection_dim": 8}
SIGLIP = {"model_type": "siglip_vision_model"}
TOWER: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "image_size": SIDE,
    "patch_size": SIDE // 4,
}
PINPOINTS = [[32, 64], [64, 32], [64, 64]]
SQUARE = {"height": SIDE, "width": SIDE}


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
    has_parts: bool = True
    """Its config has one for the decoder; False: the decoder's fields are its own."""
    has_text_inputs: bool = False
    """`generate` takes some for prompts without media, too."""


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
        **deepcopy(dict(family.text)),  # configs write into what they are given
    }
    fields = {
        name: _with_ids(value, family, tokenizer) for name, value in deepcopy(dict(family.config)).items()
    }
    text = {"text_config": text} if family.has_parts else text
    config = CONFIG_MAPPING[family.model_type](tie_word_embeddings=False, **text, **fields)
    model = model_class(family)(config)
    randomise(model, seed)
    model.generation_config.eos_token_id = [end, tokenizer.token_to_id(END)]
    model.generation_config.pad_token_id = tokenizer.token_to_id(END)
    model.save_pretrained(path)
    write_tokenizer(path, tokenizer)
    (path / "chat_template.jinja").write_text(_template(family.place))
    (path / "preprocessor_config.json").write_text(json.dumps(dict(family.processor), indent=2))
    return path


def _with_ids(value: Any, family: Family, tokenizer: Tokenizer) -> Any:  # noqa: ANN401 (of JSON)
    """Tokens' ids for their names."""
    if isinstance(value, dict):
        return {name: _with_ids(each, family, tokenizer) for name, each in value.items()}
    if isinstance(value, tuple):
        return [_with_ids(each, family, tokenizer) for each in value]
    if isinstance(value, dict):
        return {name: _with_ids(each, family, tokenizer) for name, each in value.items()}
    return tokenizer.token_to_id(value) if isinstance(value, str) and value in family.tokens else value


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
