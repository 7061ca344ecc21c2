"""Qwen3-VL: the vision tower (`tower.py`) in front of Qwen3's decoder (`dense/model.py`).

An item is an image, or one temporal patch of a video: features [patches, patch values] and a grid
(1, height, width), as `media/vision/images.py` and `media/vision/video.py` make them. Where they lie in a
prompt is `engine/models/qwen3_vl/text.py`'s business, rotary positions are `positions.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from torch import Tensor
from transformers import PreTrainedConfig, Qwen3VLConfig

from ....kernels.activation import Activation
from ....kernels.rotary import interleaved_axes
from ....protocols.engine.messages import Features
from ....protocols.errors import ModelLoadError
from ...text.tokenizer import TextTokenizer
from ..base import is_whole, values_of
from ..dense.config import DecoderConfig, check_size, decoder_config, parse_config
from ..dense.model import Decoder, DecoderModel, EmbeddedRows
from ..dense.source import DECODER, decoder_facts, decoder_source
from ..info import ModelInfo
from ..source import ModelSource, Opening
from ..weights import Shape, TensorReader
from .positions import rotary_positions
from .side import side_of
from .tower import VisionTower, VisionTowerConfig

_VISION: Final = "visual."
_ACTIVATIONS: Final[dict[str, Activation]] = {"gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu"}
_SECTION: Final = (24, 20, 20)  # transformers' own default


class Qwen3VlModel(DecoderModel):
    """Tower and decoder of one checkpoint; see `engine/models/base.py` for what the methods promise."""

    rotary_axes = 3

    def __init__(
        self,
        info: ModelInfo,
        decoder: DecoderConfig,
        tower: VisionTowerConfig,
        axes: Tensor,
        tensors: TensorReader,
    ) -> None:
        self._tower = VisionTower(tower, tensors, prefix=_VISION)
        self.num_levels = tower.num_levels
        super().__init__(info, Decoder(decoder, tensors, prefix=DECODER, axes=axes), tensors)

    def check_input(self, features: Features) -> None:
        """See `DecoderModel`: patches of one picture, in merge order."""
        tower, grid, shape = self._tower.config, features.grid, features.shape
        if len(shape) != 2 or shape[1] != tower.patch_values or not shape[0]:
            raise ValueError(
                f"features have shape {list(shape)}; {self.info.name} takes [patches, {tower.patch_values}]"
            )
        if grid is None or grid[0] != 1 or min(grid) < 1 or grid[1] * grid[2] != shape[0]:
            raise ValueError(f"{shape[0]} patches do not fill a grid of {grid}")
        if grid[1] % tower.merge_size or grid[2] % tower.merge_size:
            raise ValueError(
                f"a grid of {grid[1]} x {grid[2]} patches does not divide by {tower.merge_size} on both sides"
            )
        if not is_whole(features):
            raise ValueError(f"{len(features.data)} bytes are not float32 values of shape {list(shape)}")

    def encode_inputs(self, items: Sequence[Features]) -> list[EmbeddedRows]:
        """See `DecoderModel`; pictures of any sizes in one batch."""
        grids = [item.grid for item in items if item.grid is not None]
        return self._tower.encode(list(map(values_of, items)), grids)


def open_source(opening: Opening) -> ModelSource:
    """Check a Qwen3-VL folder: config, tokenizer, names and shapes of its tensors."""
    path = opening.folder / "config.json"
    parsed = parse_config(opening.config, Qwen3VLConfig.from_dict, path)
    parts = (parsed.text_config, parsed.vision_config)
    decoder = decoder_config(parts[0], path, tied=bool(parsed.tie_word_embeddings))
    tower = _tower_config(parts[1], path)
    if tower.output_size != decoder.hidden_size:
        raise ModelLoadError(
            f"{path}: vision_config.out_hidden_size {tower.output_size} is not "
            f"text_config.hidden_size {decoder.hidden_size}"
        )
    axes = _axes(parts[0], path)
    text = TextTokenizer.from_folder(opening.folder)
    info = ModelInfo(
        family="qwen3_vl",
        purpose="chat · text, images, video",
        **decoder_facts(opening, decoder, text, getattr(parts[0], "eos_token_id", None)),
    )

    def activation_bytes(num_pixels: int) -> int:
        return tower.activation_bytes(num_pixels // parts[1].patch_size ** 2, opening.dtype.itemsize)

    return decoder_source(
        opening,
        decoder,
        info,
        side_of(text, opening.folder),
        lambda tensors: Qwen3VlModel(info, decoder, tower, axes, tensors),
        others=_tensor_shapes(tower, parts[1]),
        num_levels=tower.num_levels,
        activation_bytes=activation_bytes,
        positions=rotary_positions,
    )


def _tensor_shapes(tower: VisionTowerConfig, vision: PreTrainedConfig) -> dict[str, Shape]:
    shapes = {f"{_VISION}{name}": shape for name, shape in tower.tensor_shapes().items()}
    side = vision.patch_size
    kernel = (tower.hidden_size, vision.in_channels, vision.temporal_patch_size, side, side)
    return shapes | {f"{_VISION}patch_embed.proj.weight": kernel}


def _tower_config(vision: PreTrainedConfig, path: Path) -> VisionTowerConfig:
    sizes = {
        name: check_size(vision, name, path)
        for name in (
            *("depth", "hidden_size", "intermediate_size", "num_heads", "in_channels", "patch_size"),
            *("temporal_patch_size", "spatial_merge_size", "out_hidden_size", "num_position_embeddings"),
        )
    }
    if vision.hidden_act not in _ACTIVATIONS:
        raise ModelLoadError(f"{path}: vision_config.hidden_act {vision.hidden_act!r} is not supported")
    if sizes["hidden_size"] % (4 * sizes["num_heads"]):
        raise ModelLoadError(
            f"{path}: vision_config.hidden_size {sizes['hidden_size']} is not a multiple of 4 times "
            f"num_heads {sizes['num_heads']}"
        )
    layers = tuple(vision.deepstack_visual_indexes)
    if not all(type(layer) is int and 0 <= layer < sizes["depth"] for layer in layers) or list(
        layers
    ) != sorted(set(layers)):
        raise ModelLoadError(
            f"{path}: vision_config.deepstack_visual_indexes {list(layers)} are not rising layer numbers "
            f"below depth {sizes['depth']}"
        )
    return VisionTowerConfig(
        depth=sizes["depth"],
        hidden_size=sizes["hidden_size"],
        intermediate_size=sizes["intermediate_size"],
        num_heads=sizes["num_heads"],
        patch_values=sizes["in_channels"] * sizes["temporal_patch_size"] * sizes["patch_size"] ** 2,
        merge_size=sizes["spatial_merge_size"],
        output_size=sizes["out_hidden_size"],
        num_positions=sizes["num_position_embeddings"],
        deepstack_layers=layers,
        rotary_theta=_rotary_theta(vision.rope_parameters, path),
        activation=_ACTIVATIONS[vision.hidden_act],
    )


def _rotary_theta(rope: dict[str, Any] | None, path: Path) -> float:
    kind, theta = (rope or {}).get("rope_type", "axial"), (rope or {}).get("rope_theta", 10_000.0)
    if kind != "axial" or not isinstance(theta, int | float) or not theta > 0:
        raise ModelLoadError(f"{path}: vision_config.rope_parameters {rope} are not axial with a rope_theta")
    return float(theta)


def _axes(text: PreTrainedConfig, path: Path) -> Tensor:
    """Which position axis each rotary frequency follows; frequencies behind the sections follow time."""
    section = (text.rope_parameters or {}).get("mrope_section", _SECTION)
    if not isinstance(section, list | tuple) or [type(n) is int and n >= 0 for n in section] != [True] * 3:
        raise ModelLoadError(f"{path}: rope_parameters.mrope_section {section!r} are not three sizes")
    half = int(text.head_dim) // 2
    return interleaved_axes((half, section[1], section[2]))[:half]
