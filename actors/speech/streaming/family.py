"""What the streaming recipe asks of a model: its delays, its features, its task and its tokens as text.

A file of `actors/speech/families/` fills it in. Torch-free. Read `actors/speech/streaming/turn.py` next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from ....media.transcript.range_answer import Samples
from ....protocols.engine.messages import Transduce
from ....protocols.transcription.streaming import ChunkDelay
from ...inference.client import EngineClient

Frames = npt.NDArray[np.float32]
"""Features [bins, frames]."""


class ChunkedFeatures(Protocol):
    """The features of one stream while its audio arrives, cut into the model's chunks. Blocks for
    milliseconds."""

    def append(self, samples: Samples, /) -> Sequence[Frames]:
        """The next samples [n]; the chunks that became full."""
        ...

    def rest(self) -> Frames:
        """The frames behind the last full chunk, maybe none, if the audio ends here. Changes nothing."""
        ...

    def copy(self) -> Self:
        """One that goes on from here by itself."""
        ...


class TokenText(Protocol):
    """The tokens of a streaming model as text."""

    @property
    def tags(self) -> dict[int, str]:
        """The locale of each token that names a language, by its id. It has no text."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of ids, without tags, and without a space in front."""
        ...

    def bytes_of(self, token_id: int) -> bytes:
        """Of one token, without a space in front: maybe a part of a character."""
        ...

    def begins_word(self, token_id: int) -> bool:
        """Whether there is a space in front of it."""
        ...


class TokenFamily(Protocol):
    """What is known of any model that gives tokens with frames."""

    @property
    def text(self) -> TokenText:
        """Its tokens as text."""
        ...

    @property
    def languages(self) -> tuple[str, ...]:
        """ISO codes that may be asked for, at least one."""
        ...

    @property
    def row_samples(self) -> int:
        """Audio of one frame of the encoder."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingFamily:
    """One served model that streams. Holds no state of any request."""

    engine: EngineClient
    text: TokenText
    languages: tuple[str, ...]
    """ISO codes that may be asked for, at least one."""
    delays: tuple[ChunkDelay, ...]
    """Of which a session chooses, the default first."""
    row_samples: int
    """Audio of one frame of the encoder."""
    task: Callable[[ChunkDelay, str | None], Transduce]
    """What is asked of the engine at a delay, in a language; None: the model recognises it."""
    features: Callable[[ChunkDelay], ChunkedFeatures]
    """Of a stream that begins."""

    def delay(self, delay_ms: int | None) -> ChunkDelay:
        """The one that is named, or the default."""
        return next((each for each in self.delays if each.delay_ms == delay_ms), self.delays[0])
