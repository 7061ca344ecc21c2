"""What others may know of a checkpoint; for Whisper read here from the JSON files of its folder.

Torch-free. `engine/models/whisper/text.py` adds the tokenizer's side, `engine/models/weights.py` the tensors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from ...protocols.errors import ModelLoadError
from ...protocols.transcript import Task

_LANGUAGE_TOKEN: Final = re.compile(r"<\|([a-z]{2,3})\|>")
_ENGLISH_ONLY_VOCAB_SIZE: Final = 51864  # openai/whisper-*.en, whose tokenizer still lists languages
_FRAMES_PER_POSITION: Final = 2  # the encoder's second convolution has stride 2


Family = Literal["whisper", "qwen3", "qwen3_asr", "qwen3_vl", "transformers"]
"""`transformers` is any other causal language model, run through its own code on our paged cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What others may know of a loaded model."""

    name: str
    folder: Path
    family: Family
    vocab_size: int
    """Rows of the logits; may exceed the tokenizer's ids."""
    max_context: int
    """Prompt plus answer are at most this many tokens."""
    stop_token_ids: tuple[int, ...] = ()
    """What ends an answer unless the request says otherwise (`eos_token_id` of the generation config)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhisperInfo(ModelInfo):
    """What others may know of a loaded Whisper model; its folder holds `preprocessor_config.json`."""

    window_s: float
    """Seconds of audio the encoder takes at once."""
    num_mel_bins: int
    num_positions: int
    """Encoder positions per window."""
    position_s: float
    """Seconds per encoder position (0.02)."""
    languages: tuple[str, ...]
    """ISO-639-1 codes the model can be told; empty for an English-only model."""
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AsrInfo(ModelInfo):
    """What others may know of a Qwen3-ASR model; its folder holds the feature extractor's config."""

    num_mel_bins: int
    n_window: int
    """Half a convolution chunk, in mel frames."""
    window_frames: int
    """Mel frames of a whole encoder window."""
    audio_token_id: int
    """The placeholder of a row of an encoding."""
    languages: tuple[str, ...]
    """ISO codes the model can be told."""


def read_json(path: Path) -> dict[str, Any]:
    """One JSON object. Raises ModelLoadError naming the file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelLoadError(f"{path}: missing") from None
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"{path}: not readable JSON ({error})") from error
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path}: not a JSON object")
    return value


def generation_config(folder: Path) -> dict[str, Any]:
    """`generation_config.json`; checkpoints without one keep its fields in `config.json`."""
    path = folder / "generation_config.json"
    return read_json(path if path.is_file() else folder / "config.json")


def read_info(
    folder: Path, name: str, generation: dict[str, Any], added_tokens: Iterable[str]
) -> WhisperInfo:
    """Read and check the configs. Raises ModelLoadError naming the file or field at fault."""
    config = read_json(folder / "config.json")
    added = set(added_tokens)
    fields = ("max_source_positions", "max_target_positions", "num_mel_bins", "vocab_size")
    absent = [field for field in fields if not isinstance(config.get(field), int)]
    if absent:
        raise ModelLoadError(f"{folder / 'config.json'}: no {', '.join(absent)}")
    features_path = folder / "preprocessor_config.json"
    features = read_json(features_path) if features_path.is_file() else {}
    position_s = (
        _FRAMES_PER_POSITION * features.get("hop_length", 160) / features.get("sampling_rate", 16_000)
    )
    return WhisperInfo(
        name=name,
        folder=folder,
        family="whisper",
        window_s=config["max_source_positions"] * position_s,
        num_mel_bins=config["num_mel_bins"],
        num_positions=config["max_source_positions"],
        position_s=position_s,
        max_context=config["max_target_positions"],
        vocab_size=config["vocab_size"],
        languages=_languages(config, generation, added),
        tasks=_tasks(generation, added),
    )


def _languages(config: dict[str, Any], generation: dict[str, Any], added: set[str]) -> tuple[str, ...]:
    if generation.get("is_multilingual") is False:
        return ()
    tokens = generation.get("lang_to_id")
    if tokens is None and config["vocab_size"] != _ENGLISH_ONLY_VOCAB_SIZE:
        tokens = sorted(added)
    matches = (_LANGUAGE_TOKEN.fullmatch(token) for token in tokens or ())
    return tuple(match[1] for match in matches if match)


def _tasks(generation: dict[str, Any], added: set[str]) -> tuple[Task, ...]:
    named = generation.get("task_to_id")
    known: tuple[Task, ...] = ("transcribe", "translate")
    if generation.get("is_multilingual") is False:
        return known[:1]
    if named is not None:
        return tuple(task for task in known if task in named)
    return tuple(task for task in known if f"<|{task}|>" in added)
