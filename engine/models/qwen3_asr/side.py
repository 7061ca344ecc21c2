"""What is asked of a Qwen3-ASR checkpoint without running it."""

from __future__ import annotations

from ...text.tokenizer import TextTokenizer
from ..info import SpeechEntry
from ..side import ModelSide
from .info import Qwen3AsrInfo
from .prompts import Qwen3AsrPrompts
from .text import Qwen3AsrText

INFO = Qwen3AsrInfo


def open_side(info: Qwen3AsrInfo) -> ModelSide:
    """Read the tokenizer. Raises ModelLoadError naming the file or token at fault."""
    return side_of(TextTokenizer.from_folder(info.folder), info)


def side_of(text: TextTokenizer, info: Qwen3AsrInfo) -> ModelSide:
    """It transcribes, and answers prompts that hold audio."""
    asr = Qwen3AsrText(text, info)
    return ModelSide(text=text, prompts=Qwen3AsrPrompts(asr), speech=SpeechEntry(".qwen3_asr", asr))
