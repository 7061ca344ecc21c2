"""How a checkpoint embeds texts, as the files of `sentence-transformers` in its folder say.

`modules.json` lists the modules behind the transformer; `1_Pooling/config.json` says which hidden states the
vector is made of, `2_Normalize` that its length is 1, `config_sentence_transformers.json` which text goes in
front of each input, `sentence_bert_config.json` how many tokens an input has at most. Torch-free.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ...protocols.engine.messages import Pooling
from ...protocols.errors import ModelLoadError
from ...protocols.shared.json_file import read_json

logger = logging.getLogger(__name__)

_POOLING_FOLDER: Final = "1_Pooling"
_MODES: Final[dict[str, Pooling]] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
_NAMED_MODES: Final[dict[str, Pooling]] = {"cls": "cls", "mean": "mean", "lasttoken": "last"}
_ALLOWED: Final = "cls, mean or lasttoken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding:
    """How one text becomes a vector."""

    pooling: Pooling
    size: int
    """Dimensions of the vector."""
    is_normalized: bool = True
    max_tokens: int | None = None
    """Of one input; None: as many as the model's context."""
    default_prompt: str = ""
    """What is put in front of every text."""


def read_embedding(folder: Path, size: int, *, default: Pooling) -> Embedding:
    """How `folder` embeds with hidden states of `size`; with `default`, normalized, where it does not say.

    Raises ModelLoadError naming the file and the field that is not served.
    """
    pooling, is_normalized = default, True
    modules = _modules(folder)
    if modules:
        is_normalized = "Normalize" in modules
    path = folder / modules.get("Pooling", _POOLING_FOLDER) / "config.json"
    if path.is_file():
        pooling = _pooling(read_json(path), path)
    path = folder / "sentence_bert_config.json"
    max_tokens = read_json(path).get("max_seq_length") if path.is_file() else None
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
        raise ModelLoadError(f"{path}: max_seq_length is {max_tokens!r}; allowed: a number of at least 1")
    return Embedding(
        pooling=pooling,
        size=size,
        is_normalized=is_normalized,
        max_tokens=max_tokens,
        default_prompt=_default_prompt(folder),
    )


def decoder_embedding(folder: Path, size: int) -> Embedding | None:
    """How a model that generates text embeds, too; None where its folder does not say that it does."""
    if not any((folder / name).is_file() for name in ("modules.json", f"{_POOLING_FOLDER}/config.json")):
        return None
    try:
        return read_embedding(folder, size, default="last")
    except ModelLoadError as error:
        logger.warning("%s; it is served without embeddings", error.message)
        return None


def _modules(folder: Path) -> dict[str, str]:
    """The modules of `modules.json` by the names of their classes, with their folders; empty without it."""
    path = folder / "modules.json"
    if not path.is_file():
        return {}
    listed = _listed(path)
    found: dict[str, str] = {}
    for each in listed:
        if not isinstance(each, dict):
            raise ModelLoadError(
                f"{path}: {str(each)[:40]!r} is not a module; allowed: objects with type and path"
            )
        name = str(each.get("type", "")).rpartition(".")[2]
        if name not in ("Transformer", "Pooling", "Normalize"):
            raise ModelLoadError(
                f"{path}: the module {name[:40]!r} is not supported; allowed: Transformer, Pooling, Normalize"
            )
        place = each.get("path", "")
        if not isinstance(place, str) or Path(place).name != place:
            raise ModelLoadError(f"{path}: path is {place!r}; allowed: the name of a folder next to the file")
        found[name] = place
    return found


def _listed(path: Path) -> list[Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path}: not readable JSON ({error})") from error
    if not isinstance(found, list):
        raise ModelLoadError(f"{path}: not a JSON list of modules")
    return found


def _pooling(config: Mapping[str, Any], path: Path) -> Pooling:
    if "pooling_mode" in config:  # of newer versions
        mode = config["pooling_mode"]
        names = list(mode) if isinstance(mode, list | tuple) else [mode]
    else:
        names = [name for name, is_on in config.items() if name.startswith("pooling_mode_") and is_on]
    modes = {**_NAMED_MODES, **_MODES}
    if len(names) != 1 or not isinstance(names[0], str) or names[0] not in modes:
        raise ModelLoadError(f"{path}: the pooling is {', '.join(map(str, names))}; allowed: {_ALLOWED}")
    return modes[names[0]]


def _default_prompt(folder: Path) -> str:
    path = folder / "config_sentence_transformers.json"
    config = read_json(path) if path.is_file() else {}
    prompts = config.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(each, str) for each in prompts.values()):
        raise ModelLoadError(f"{path}: prompts is {str(prompts)[:80]!r}; allowed: texts by their names")
    name = config.get("default_prompt_name")
    if name is not None and name not in prompts:
        allowed = ", ".join(prompts) or "none, without prompts"
        raise ModelLoadError(f"{path}: default_prompt_name is {name!r}; allowed: {allowed}")
    default: str = prompts.get(name, "")
    return default
