"""From a model's name to a checked `ModelSource`: finds the folder and the file that knows its family.

The only way in to a checkpoint. A family's file is imported when a checkpoint asks for it. No code of a
checkpoint is ever run.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol, cast

from ...protocols.errors import ModelLoadError
from .info import read_json
from .source import ModelSource, Opening
from .weights import DtypeName, choose_device, choose_dtype, embedded_models, find_folder

__all__ = ["ModelSource", "embedded_models", "open_model"]

_FAMILIES: Final = {
    "WhisperForConditionalGeneration": ".whisper.source",
    "Qwen3ForCausalLM": ".qwen3.model",
    "Qwen3ASRForConditionalGeneration": ".qwen3_asr.model",
    "Qwen3VLForConditionalGeneration": ".qwen3_vl.model",
}
"""Architecture → the file here that has its `open_source`."""

_OF_MODEL_TYPE: Final = {
    "whisper": "WhisperForConditionalGeneration",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_asr": "Qwen3ASRForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
}
"""For a config that names no architecture."""

_FALLBACK: Final = ".transformers.model"


class _Family(Protocol):
    """What a family's file has."""

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
    architecture = named[0] if isinstance(named, list) and named else _OF_MODEL_TYPE.get(str(model_type))
    if architecture in _FAMILIES:
        return cast(_Family, import_module(_FAMILIES[architecture], __package__))
    fallback = import_module(_FALLBACK, __package__)
    if not fallback.is_causal_lm(architecture, model_type):
        what = f"architecture {architecture!r}" if architecture else f"model_type {model_type!r}"
        raise ModelLoadError(
            f"{path}: {what} is not supported; supported are {', '.join(_FAMILIES)} "
            "and the causal language models that come with transformers (no code of a checkpoint is run)"
        )
    return cast(_Family, fallback)
