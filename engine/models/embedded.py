"""Where the embedded models lie: beside the source in a clone, else in the package `sensorium_checkpoints`.

`engine/checkpoints` is that package's source. `engine/models/weights.py` takes names from here.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Final

from ...protocols.errors import ModelLoadError


def _find_checkpoints() -> Path:
    folder = Path(__file__).parents[1] / "checkpoints"
    if folder.is_dir():
        return folder
    try:
        return Path(import_module("sensorium_checkpoints").FOLDER)
    except ModuleNotFoundError:
        return folder


CHECKPOINTS = _find_checkpoints()
"""Embedded models, one folder each. It is missing where only the code is installed."""

NOT_INSTALLED: Final = (
    "sensorium-checkpoints is not installed: pip install ./engine/checkpoints in sensorium's sources"
)

A_CHECKPOINT: Final = (
    "a model is a folder of config.json, tokenizer and *.safetensors (no GGUF, no GGML, no adapter by itself)"
)


def embedded_models() -> tuple[str, ...]:
    """Names of the models that come with the server; none where `sensorium-checkpoints` is missing."""
    return tuple(sorted(path.parent.name for path in CHECKPOINTS.glob("*/config.json")))


def embedded_folder(name: str) -> Path | None:
    """The folder of an embedded model; None if none is called so."""
    return CHECKPOINTS / name if name in embedded_models() else None


def not_embedded(name: str) -> ModelLoadError:
    """What to say of a name that is nothing, with what to install if that is why."""
    known = ", ".join(embedded_models()) or f"none: {NOT_INSTALLED}"
    return ModelLoadError(f"{name}: no such folder, nor a hub id, nor an embedded model ({known})")
