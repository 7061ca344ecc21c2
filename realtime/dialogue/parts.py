"""What an item of a conversation consists of beside what clients create: sounds and live video.

Text is `TextPart` of `protocols/chat/content.py`, pictures and calls are as they came
(`protocols/realtime/items.py`). Used by `realtime/dialogue/items.py` and whoever looks into
an item; knows no item.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...protocols.chat.content import TextPart
from ...protocols.realtime.items import Call, CallOutput, Picture


@dataclass(frozen=True, slots=True)
class Sound:
    """Speech: as a file where the model hears it, else by its transcript. `data` None: it was a turn."""

    data: bytes | None
    transcript: str | None


@dataclass(slots=True)
class Pair:
    """Frames of live video that are looked at together: two, or a last one by itself."""

    id: str
    data: tuple[bytes, ...]
    timestamps_ms: tuple[int, ...]
    num_tokens: int = 0
    """0: it is not ready yet."""
    is_referred: bool = False
    """A question came right behind it."""
    is_leaving: bool = False
    """It is forgotten as soon as what stays was read without it."""


@dataclass(slots=True)
class Clip:
    """Live video, oldest first."""

    pairs: list[Pair]

    @property
    def timestamps_ms(self) -> list[int]:
        """Of all its frames."""
        return [each for pair in self.pairs for each in pair.timestamps_ms]

    @property
    def num_bytes(self) -> int:
        """Of all its frames."""
        return sum(len(data) for pair in self.pairs for data in pair.data)

    @property
    def is_leaving(self) -> bool:
        """None of its pairs that are ready stays."""
        return all(pair.is_leaving for pair in self.pairs if pair.num_tokens)

    def emptied(self) -> tuple[str, ...]:
        """The ids of its pairs. It has none any more, wherever it is still referred to."""
        gone, self.pairs = self.pairs, []
        return tuple(pair.id for pair in gone)


ItemPart = TextPart | Picture | Sound | Clip | Call | CallOutput
