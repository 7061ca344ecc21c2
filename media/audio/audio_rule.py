"""How recordings become encoder items: by windows of Whisper's features, or by a rule of a family's own.

Read `engine/models/prompts.py` for what a family says of it, `actors/text/media_opening.py` for who asks.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from ...protocols.engine.messages import EncoderItem
from .features import FloatArray


class AudioRule(Protocol):
    """Makes items of whole recordings. Equal rules have equal `repr`."""

    def items(self, samples: FloatArray, num_tokens: Callable[[int], int]) -> tuple[EncoderItem, ...]:
        """Of samples [n], mono at 16 kHz; `num_tokens` says what features of so many rows become."""


class _RuleModule(Protocol):
    def open_rule(self, folder: Path) -> AudioRule: ...


def open_audio_rule(module: str, folder: Path) -> AudioRule:
    """The rule of a `module`, a name in this package (".rules.granite_speech") or an absolute one, for the
    checkpoint in `folder`. Raises ModelLoadError naming the file and the field at fault."""
    return cast(_RuleModule, import_module(module, __package__)).open_rule(folder)
