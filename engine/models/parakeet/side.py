"""What is asked of a Parakeet checkpoint without running it: its tokenizer."""

from __future__ import annotations

from ...text.tokenizer import TextTokenizer
from ..info import SpeechEntry
from ..nemotron_asr.text import TransducerText
from ..side import ModelSide
from .info import ParakeetInfo

__all__ = ["INFO", "TransducerText", "open_side", "side_of"]

INFO = ParakeetInfo


def open_side(info: ParakeetInfo) -> ModelSide:
    """Read the tokenizer. Raises ModelLoadError naming the file at fault."""
    return side_of(TransducerText(TextTokenizer.from_folder(info.folder)))


def side_of(text: TransducerText) -> ModelSide:
    """It takes no prompts."""
    return ModelSide(text=text, speech=SpeechEntry(".parakeet", text))
