"""`session.video` of a session that answers: how long live frames are remembered, and which are worth it.

An extension of OpenAI's session object; frames themselves are `protocols/realtime_video.py`.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType


class VideoPatch(Struct, frozen=True, forbid_unknown_fields=True):
    """`session.video` of an update: how long frames are remembered, and which are worth it.

    `min_change` is how much a frame must differ from the last one that was kept, from 0 (keep all) to 1.
    """

    retention_s: Annotated[float, Meta(ge=1.0, le=86_400.0)] | UnsetType | None = UNSET
    retention_tokens: Annotated[int, Meta(ge=1, lt=2**31)] | UnsetType | None = UNSET
    min_change: Annotated[float, Meta(ge=0.0, le=1.0)] | UnsetType | None = UNSET


class VideoView(Struct, frozen=True):
    """`session.video` in force."""

    retention_s: float
    retention_tokens: int
    min_change: float
