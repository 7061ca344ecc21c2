"""From a model's name to a checked `ModelSource`: finds the folder and the file that knows its family.

The only way in to a checkpoint. A family's file is imported when a checkpoint asks for it. No code of a
checkpoint is ever run.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, cast

from ...protocols.errors import ModelLoadError
from .info import check_numbers, read_json
from .source import ModelSource, Opening
from .weights import DtypeName, choose_device, choose_dtype, embedded_models, find_folder

__all__ = ["ModelSource", "embedded_models", "open_model"]


class FamilyEntry(NamedTuple):
    """What a config calls a family, and the module (here, or absolute) that has its `open_source`."""

    architecture: str
    model_type: str
    """For a config that names no architecture."""
    module: str


FAMILIES: tuple[FamilyEntry, ...] = (
    FamilyEntry("WhisperForConditionalGeneration", "whisper", ".whisper.source"),
    FamilyEntry("Qwen3ForCausalLM", "qwen3", ".qwen3.model"),
    FamilyEntry("Qwen3ASRForConditionalGeneration", "qwen3_asr", ".qwen3_asr.model"),
    FamilyEntry("Qwen3VLForConditionalGeneration", "qwen3_vl", ".qwen3_vl.model"),
)
"""One line a family; `transformers` stands for all others."""

_FALLBACK: Final = ".transformers.model"


class _Family(Protocol):
    """What a family's module has."""

    def open_source(self, opening: Opening) -> ModelSource:
        """Check configs, tokenizer, tensor names and shapes; read no tensor."""


def open_model(model: str | Path, *, device: str = "auto", dtype: DtypeName | str = "auto") -> ModelSource:
    """Open an embedded name, a local folder or a Hugging Face id; its tensors are not read yet.

    `auto` is CUDA where there is one, and bfloat16 where the device computes in it. Raises
    ModelLoadError naming the folder, file, field or tensors at fault.
    """
    chosen_device = choose_device(device)
    chosen_dtype = choose_dtype(dtype, chosen_device)
    folder = find_folder(model)
    path = folder / "config.json"
    config = read_json(path)
    check_numbers(config, path)
    if config.get("quantization_config") is not None:
        raise ModelLoadError(
            f"{path}: quantization_config: quantised checkpoints are not read; "
            "use the float32, bfloat16 or float16 one"
        )
    opening = Opening(name=str(model), folder=folder, config=config, device=chosen_device, dtype=chosen_dtype)
    return _family(path, config).open_source(opening)


def _family(path: Path, config: dict[str, Any]) -> _Family:
    """The file that knows a config, by its architecture or else its model type."""
    named, model_type = config.get("architectures"), config.get("model_type")
    architecture = named[0] if isinstance(named, list) and named else None
    for entry in FAMILIES:
        if architecture == entry.architecture or (architecture is None and model_type == entry.model_type):
            return cast(_Family, import_module(entry.module, __package__))
    fallback = import_module(_FALLBACK, __package__)
    if not fallback.is_causal_lm(architecture, model_type):
        what = f"architecture {architecture!r}" if architecture else f"model_type {model_type!r}"
        supported = ", ".join(entry.architecture for entry in FAMILIES)
        raise ModelLoadError(
            f"{path}: {what} is not supported; supported are {supported} "
            "and the causal language models that come with transformers (no code of a checkpoint is run)"
        )
    return cast(_Family, fallback)
