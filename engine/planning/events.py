"""What the scheduler reports besides tokens: encodes that ended, alignments that failed.

Plain values; `TokensSampled` and `TokensAligned` are in `protocols/engine/messages.py`. Read
`engine/planning/scheduler.py` for when each happens.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...protocols.engine.messages import RequestId, TokensAligned, TokensSampled
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


@dataclass(frozen=True, slots=True)
class AlignFailed:
    """One alignment failed alone."""

    request_id: RequestId
    error: str


SchedulerEvent = TokensSampled | TokensAligned | AlignFailed | WindowEncoded | EncodeFailed | EncodeDropped
