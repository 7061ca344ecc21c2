"""What the operator decides about sessions that answer, beside `realtime/config.py`."""

from __future__ import annotations

import msgspec

from ...protocols.engine.messages import MediaKind
from ...protocols.realtime.conversation_session import DialoguePatch


class VideoConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of live video; what a client may change begins as it is here."""

    max_fps: float = 0.0
    """Frames of a second; 0: the model takes no live frames."""
    max_frame_bytes: int = 4 * 1024 * 1024
    max_waiting: int = 16
    """Frames that wait to be looked at."""
    retention_s: float = 60.0
    retention_tokens: int = 4096
    min_change: float = 0.004
    """About one shade of grey in 256, all over the picture: less is a camera's noise."""

    @property
    def num_frames(self) -> int:
        """That are remembered at most, unless the client says otherwise: it settles their size."""
        return max(2, round(self.max_fps * self.retention_s))


class DialogueConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The model that answers, and the bounds of one conversation, which `session.created` announces."""

    model: str
    aliases: tuple[str, ...] = ()
    """Other names that mean it."""
    kinds: frozenset[MediaKind] = frozenset()
    """Media that the model takes."""
    calls_tools: bool = False
    """The model has a way to call tools."""
    initial: DialoguePatch = DialoguePatch()
    """What the session begins with, as if it were the client's first update."""
    video: VideoConfig = VideoConfig()
    max_context: int = 32_768
    """Tokens of a prompt and its answer."""
    max_items: int = 2048
    max_media_bytes: int = 64 * 1024 * 1024
    """Pictures and sounds in the conversation, as they came."""
    max_chars: int = 4_000_000
    """Text in the conversation."""
    max_item_chars: int = 1_000_000
    """Text in an item, which is told twice when it is added: more would not fit what waits for a client."""
    max_responses: int = 4
    """Answers being made at a time, one of them in the conversation."""

    @property
    def max_retention_tokens(self) -> int:
        """Of live video that is remembered: half of the context is for questions and answers."""
        return self.max_context // 2
