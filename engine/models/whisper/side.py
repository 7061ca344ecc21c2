"""What is asked of a Whisper checkpoint without running it."""

from __future__ import annotations

from ..info import SpeechEntry
from ..side import ModelSide
from .info import WhisperInfo
from .text import WhisperText

INFO = WhisperInfo


def open_side(info: WhisperInfo) -> ModelSide:
    """Read the tokenizer. Raises ModelLoadError naming the file or token at fault."""
    return side_of(WhisperText.from_folder(info.folder, name=info.name))


def side_of(text: WhisperText) -> ModelSide:
    """It transcribes, and takes no prompts of clients."""
    return ModelSide(text=text, speech=SpeechEntry(".whisper", text))
