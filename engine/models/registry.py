"""From a model's name to a checked `ModelSource`: finds the folder and the file that knows its family.

The only way in to a checkpoint. A family's file is imported when a checkpoint asks for it. No code of a
checkpoint is ever run.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast, get_args

from ...kernels.attention.kv_quantization import KvDtype
from ...kernels.linear.weight_codes import GRIDS, Quantization
from ...protocols.errors import ModelLoadError
from ...protocols.shared.json_file import read_json
from . import families, media_families
from .embedded import A_CHECKPOINT, embedded_models
from .info import check_numbers
from .media_refusals import REASONS
from .quantization_config import read_published
from .source import ModelSource, Opening
from .weights import DtypeName, choose_device, choose_dtype, find_folder

__all__ = ["ModelSource", "embedded_models", "open_model"]


class _Family(Protocol):
    """What a family's module has."""

    def open_source(self, opening: Opening) -> ModelSource:
        """Check configs, tokenizer, tensor names and shapes; read no tensor."""


def open_model(
    model: str | Path,
    *,
    device: str = "auto",
    dtype: DtypeName | str = "auto",
    quantization: Quantization | str = "none",
    kv_dtype: KvDtype | str = "auto",
    adaptable: bool = False,
) -> ModelSource:
    """Open an embedded name, a local folder or a Hugging Face id; its tensors are not read yet.

    `auto` is CUDA where there is one, and bfloat16 where the device computes in it. `quantization` rounds
    the weights of products when they are read, `kv_dtype` keys and values when they are kept. Adapters may
    change products of an `adaptable` model (`kernels/linear/row_adapters.py`). Raises ModelLoadError naming
    the folder, file, field, option or tensors at fault.
    """
    chosen_device = choose_device(device)
    chosen_dtype = choose_dtype(dtype, chosen_device)
    if quantization not in GRIDS:
        raise ModelLoadError(f"quantization {quantization!r} is not one of {', '.join(GRIDS)}")
    if quantization != "none" and chosen_device.type != "cpu":
        raise ModelLoadError(
            f"quantization {quantization} is computed on CPUs only; device is {chosen_device.type}"
        )
    _check_kv_dtype(kv_dtype, chosen_device.type)
    folder = find_folder(model)
    path = folder / "config.json"
    if not path.exists():
        raise ModelLoadError(f"{path}: missing; {A_CHECKPOINT}")
    config = read_json(path)
    check_numbers(config, path)
    opening = Opening(
        name=str(model),
        folder=folder,
        config=config,
        device=chosen_device,
        dtype=chosen_dtype,
        quantization=quantization,
        kv_dtype=cast(KvDtype, kv_dtype),
        published=read_published(config, path),
        adaptable=adaptable,
    )
    return replace(_family(path, config).open_source(opening), kv_dtype=opening.kv_dtype)


def _check_kv_dtype(kv_dtype: str, device: str) -> None:
    if kv_dtype == "fp8":
        raise ModelLoadError(
            "kv_dtype fp8 takes as many bytes as int8, is coarser, and no faster on CPUs; take int8"
        )
    if kv_dtype not in get_args(KvDtype):
        raise ModelLoadError(f"kv_dtype {kv_dtype!r} is not one of {', '.join(get_args(KvDtype))}")
    if kv_dtype != "auto" and device != "cpu":
        raise ModelLoadError(f"kv_dtype {kv_dtype} is computed on CPUs only; device is {device}")


def _family(path: Path, config: dict[str, Any]) -> _Family:
    """The file that knows a config, by its architecture or else its model type."""
    entry = families.entry_of(config)
    if entry is not None:
        return cast(_Family, import_module(entry.module, __package__))
    architecture, model_type = families.architecture_of(config), config.get("model_type")
    if isinstance(architecture, str) and architecture in REASONS:
        raise ModelLoadError(
            f"{path}: architecture {architecture!r} is not supported: {REASONS[architecture]}"
        )
    fallback = import_module(families.FALLBACK.module, __package__)
    if not fallback.is_causal_lm(architecture, model_type):
        encoders = import_module(families.ENCODERS.module, __package__)
        if encoders.is_text_encoder(architecture, model_type):
            return cast(_Family, encoders)
        what = f"architecture {architecture!r}" if architecture else f"model_type {model_type!r}"
        if (path.parent / "model.bin").is_file() and not architecture and model_type is None:
            raise ModelLoadError(
                f"{path.parent}: a folder of CTranslate2, as faster-whisper has it; give the one it came from"
            )
        own = [entry.architecture for entry in families.FAMILIES]
        num_others = len({entry.model_type for entry in media_families.ENTRIES})
        raise ModelLoadError(
            f"{path}: {what} is not supported; supported are {', '.join(own)}, {num_others} types of "
            "transformers with images or audio (docs/media_models.md), and its causal language models "
            "(docs/models.md) and text encoders (no code of a checkpoint is run)"
        )
    if fallback.has_towers(architecture, model_type):
        raise ModelLoadError(
            f"{path}: {architecture or model_type!r} takes pictures or sound, too, and is not served yet, "
            "nor as a model of text with its encoders in memory; give a folder of its language model alone"
        )
    return cast(_Family, fallback)
