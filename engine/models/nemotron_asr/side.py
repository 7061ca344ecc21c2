"""What is asked of a Nemotron ASR checkpoint without running it: its tokenizer."""

from __future__ import annotations

from ...text.tokenizer import TextTokenizer
from ..side import ModelSide
from .info import NemotronAsrInfo
from .text import TransducerText

INFO = NemotronAsrInfo


def open_side(info: NemotronAsrInfo) -> ModelSide:
    """Read the tokenizer. Raises ModelLoadError naming the file at fault."""
    return side_of(TransducerText(TextTokenizer.from_folder(info.folder)))


def side_of(text: TransducerText) -> ModelSide:
    """It takes no prompts."""
    return ModelSide(text=text)
