"""What is asked of a text model without running it: its tokenizer."""

from __future__ import annotations

from ...text.tokenizer import TextTokenizer
from ..info import ModelInfo
from ..prompts import TextPrompts
from ..side import ModelSide

INFO = ModelInfo


def open_side(info: ModelInfo) -> ModelSide:
    """Read the tokenizer. Raises ModelLoadError naming the file at fault."""
    return side_of(TextTokenizer.from_folder(info.folder), generates=not info.is_bidirectional)


def side_of(text: TextTokenizer, *, generates: bool = True) -> ModelSide:
    """It answers prompts of text if it `generates` text, and embeds texts if its folder says how."""
    return ModelSide(text=text, prompts=TextPrompts(text) if generates else None, embeds=text)
