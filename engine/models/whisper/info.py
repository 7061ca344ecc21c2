"""What others may know of a Whisper checkpoint, read from the JSON files of its folder.

Torch-free. `engine/models/whisper/text.py` adds the tokenizer's side, `source.py` the tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from ....protocols.errors import ModelLoadError
from ....protocols.shared.audio_format import INTERNAL_RATE
from ....protocols.shared.json_file import read_json
from ....protocols.transcription.transcript import Task
from ..info import ModelInfo

_LANGUAGE_TOKEN: Final = re.compile(r"<\|([a-z]{2,3})\|>")
_ENGLISH_ONLY_VOCAB_SIZE: Final = 51864  # openai/whisper-*.en, whose tokenizer still lists languages
_FRAMES_PER_POSITION: Final = 2  # the encoder's second convolution has stride 2


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
    alignment_is_rough: bool = False
    """Whether its alignment heads are as often late as early; those of published checkpoints are not."""
    extractors: ClassVar = {"WhisperFeatureExtractor": 80}

    @property
    def window_frames(self) -> int:
        """Feature frames of a window."""
        return _FRAMES_PER_POSITION * self.num_positions

    def describe(self) -> str:
        """What it can do, for people."""
        return f"{', '.join(self.tasks)} · {', '.join(self.languages) or 'en'} · {self.window_s:g} s window"


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
    hop = features.get("hop_length", 160)
    if type(hop) is not int or hop <= 0:
        raise ModelLoadError(f"{features_path}: hop_length must be a positive whole number, not {hop!r}")
    position_s = _FRAMES_PER_POSITION * hop / INTERNAL_RATE  # all that is read is at that rate
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
        alignment_is_rough=generation.get("alignment_is_rough") is True,
        attended_shape=(config["num_mel_bins"], _FRAMES_PER_POSITION * config["max_source_positions"]),
        attended_tokens=config["max_source_positions"],
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
