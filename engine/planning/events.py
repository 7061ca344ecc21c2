"""What the scheduler reports besides the outcomes of requests: encodes that ended.

Plain values; `TokensSampled` and other outcomes are in `protocols/engine/messages.py`. Read
`engine/planning/scheduler.py` for when each happens.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...protocols.engine.messages import Outcome, TokensSampled, TransduceEvent
from .plan import Slot


@dataclass(frozen=True, slots=True)
class WindowEncoded:
    """The encode of `slot` is done and takes `num_bytes`."""

    slot: Slot
    num_bytes: int


@dataclass(frozen=True, slots=True)
class EncodeFailed:
    """The encode of `slot` failed; requests that used it have ended with the same error."""

    slot: Slot
    error: str


@dataclass(frozen=True, slots=True)
class EncodeDropped:
    """The encode of `slot` was dropped before it was planned."""

    slot: Slot


SchedulerEvent = TokensSampled | Outcome | TransduceEvent | WindowEncoded | EncodeFailed | EncodeDropped
