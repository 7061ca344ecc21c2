"""What is asked of a Qwen3-VL checkpoint without running it."""

from __future__ import annotations

from pathlib import Path

from ...text.tokenizer import TextTokenizer
from ..info import ModelInfo
from ..side import ModelSide
from .text import VisionPrompts, read_vision_tokens

INFO = ModelInfo


def open_side(info: ModelInfo) -> ModelSide:
    """Read the tokenizer. Raises ModelLoadError naming the file or field at fault."""
    return side_of(TextTokenizer.from_folder(info.folder), info.folder)


def side_of(text: TextTokenizer, folder: Path) -> ModelSide:
    """It answers prompts of text, images and videos."""
    return ModelSide(text=text, prompts=VisionPrompts(text, read_vision_tokens(folder)))
