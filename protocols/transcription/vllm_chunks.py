"""A streamed transcript in vLLM's frames, `transcription.chunk`, which its own tools read.

Asked for by `?dialect=vllm`, or by vLLM's fields of a form. OpenAI's events are in
`protocols/transcription/rest.py`.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..shared.generation import sse
from .transcript import Task, Transcript

ChunkKind = Literal["transcription.chunk", "translation.chunk"]
_KINDS: Final[dict[Task, ChunkKind]] = {
    "transcribe": "transcription.chunk",
    "translate": "translation.chunk",
}


class ChunkDelta(Struct, frozen=True):
    """Text that follows what was sent before."""

    content: str


class ChunkChoice(Struct, frozen=True):
    """The one of a chunk."""

    delta: ChunkDelta
    finish_reason: Literal["stop"] | UnsetType = UNSET


class ChunkUsage(Struct, frozen=True):
    """Tokens of the whole transcript."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class TranscriptionChunk(Struct, frozen=True, kw_only=True):
    """SSE: more text, its end, or what it took, which has no choices."""

    id: str
    object: ChunkKind
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: ChunkUsage | UnsetType = UNSET


class ChunkFrames:
    """The frames of one transcript."""

    def __init__(self, task: Task, model: str, *, unique: str, created: int, with_usage: bool) -> None:
        """`unique` makes the id, `created` is in Unix seconds."""
        self._with_usage = with_usage
        self._chunk = TranscriptionChunk(
            id=f"{task}-{unique}", object=_KINDS[task], created=created, model=model, choices=[]
        )

    def delta(self, text: str) -> bytes:
        """The frame with new text."""
        return self._frame(choices=[ChunkChoice(ChunkDelta(str(text)))])

    def done(self, transcript: Transcript) -> bytes:
        """The last frames before `DONE`."""
        end = self._frame(choices=[ChunkChoice(ChunkDelta(""), "stop")])
        if not self._with_usage:
            return end
        read, written = transcript.num_input_tokens, transcript.num_output_tokens
        return end + self._frame(usage=ChunkUsage(read, written, read + written))

    def _frame(self, **fields: object) -> bytes:
        return sse(msgspec.structs.replace(self._chunk, **fields))
