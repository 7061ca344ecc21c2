"""The text side of the tests' CTC family: one token a character, one for nothing, one for the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sensorium.engine.models.info import ModelInfo, SpeechEntry
from sensorium.engine.models.side import ModelSide

CHARACTERS = " abcdefghijklmnopqrstuvwxyz"
BLANK, FIRST = 0, 1
"""What is heard between characters, and also starts an answer; the first character."""
END = FIRST + len(CHARACTERS)
"""Ends an answer; is never heard."""
VOCAB_SIZE = END + 1


@dataclass(frozen=True)
class CtcText:
    """See `ModelText`."""

    grammar_json: str | None = None
    byte_table: tuple[bytes, ...] = (b"", *(each.encode() for each in CHARACTERS), b"")

    def decode(self, token_ids: Sequence[int]) -> str:
        """Characters of ids."""
        return b"".join(self.byte_table[token_id] for token_id in token_ids).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class CtcInfo(ModelInfo):
    """See `ModelInfo`."""

    extractors: ClassVar = {"WhisperFeatureExtractor": 80}


INFO = CtcInfo


def open_side(info: CtcInfo) -> ModelSide:
    """It transcribes."""
    text = CtcText()
    return ModelSide(text=text, speech=SpeechEntry("support.ctc_speech", text))
