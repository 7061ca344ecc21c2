"""Which family a checkpoint is of: one line for each, and what a config calls it.

Torch-free, so that a process that runs no model can know a model's text side. `engine/models/registry.py`
opens a checkpoint for running it; read `engine/models/side.py` for what every process may ask.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from . import media_families


class FamilyEntry(NamedTuple):
    """What a config calls a family, and its modules (here, or absolute)."""

    architecture: str
    model_type: str
    """For a config that names no architecture."""
    module: str
    """Has its `open_source`; imports torch."""
    side: str
    """Has its `INFO` and `open_side`; imports no torch."""


_NEMOTRON_ASR: Final = (".nemotron_asr.source", ".nemotron_asr.side")
FAMILIES: tuple[FamilyEntry, ...] = (
    FamilyEntry("WhisperForConditionalGeneration", "whisper", ".whisper.source", ".whisper.side"),
    FamilyEntry("LlamaForCausalLM", "llama", ".dense.model", ".dense.side"),
    FamilyEntry("MinistralForCausalLM", "ministral", ".dense.model", ".dense.side"),
    FamilyEntry("MistralForCausalLM", "mistral", ".dense.model", ".dense.side"),
    FamilyEntry("Qwen2ForCausalLM", "qwen2", ".dense.model", ".dense.side"),
    FamilyEntry("Qwen3ForCausalLM", "qwen3", ".dense.model", ".dense.side"),
    FamilyEntry("SmolLM3ForCausalLM", "smollm3", ".dense.model", ".dense.side"),
    FamilyEntry("NemotronAsrStreamingForRNNT", "nemotron_asr_streaming", *_NEMOTRON_ASR),
    FamilyEntry("Nemotron3_5AsrForRNNT", "nemotron3_5_asr", *_NEMOTRON_ASR),
    FamilyEntry("ParakeetForCTC", "parakeet_ctc", ".parakeet.model", ".parakeet.side"),
    FamilyEntry("Qwen3ASRForConditionalGeneration", "qwen3_asr", ".qwen3_asr.model", ".qwen3_asr.side"),
    FamilyEntry("Qwen3VLForConditionalGeneration", "qwen3_vl", ".qwen3_vl.model", ".qwen3_vl.side"),
)
"""One line an architecture; `transformers` stands for all others."""

FALLBACK: Final = FamilyEntry("", "", ".transformers.source", ".dense.side")
"""Causal language models of `transformers`."""
ENCODERS: Final = FamilyEntry("", "", ".encoders.model", ".dense.side")
"""Its base models and masked language models of texts."""

MULTIMODAL: Final = FamilyEntry("", "", ".multimodal.model", ".multimodal.side")
"""Its models that see and hear, of the types in `media_families.py`."""


def architecture_of(config: Mapping[str, Any]) -> str | None:
    """The first of the architectures that a config names."""
    named = config.get("architectures")
    return named[0] if isinstance(named, list) and named else None


def entry_of(config: Mapping[str, Any]) -> FamilyEntry | None:
    """The family of a config, by its architecture or else its model type; None: no family of ours."""
    architecture, model_type = architecture_of(config), config.get("model_type")
    for entry in FAMILIES:
        if architecture == entry.architecture or (architecture is None and model_type == entry.model_type):
            return entry
    return None if media_families.entry_of(config) is None else MULTIMODAL
