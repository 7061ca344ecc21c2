"""What the ledger of encoder outputs (`engine/planning/encoder/cache.py`) wants done."""

from __future__ import annotations

from dataclasses import dataclass

from ....protocols.engine.messages import ContentHash, Features
from ..plan import Slot
from .admission_queue import Ticket


@dataclass(frozen=True, slots=True)
class Grant:
    """`ticket` holds `slots` (one per item it needs) from now on; their encodes are ordered before anything
    that will use them."""

    ticket: Ticket
    slots: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class FeaturesNeeded:
    """`ticket` is to `supply` the features of these, which nobody has sent yet."""

    ticket: Ticket
    missing: tuple[ContentHash, ...]


@dataclass(frozen=True, slots=True)
class Encode:
    """Encode `features` into `slot` before the first use of it; with no use it may stay undone."""

    slot: Slot
    features: Features


@dataclass(frozen=True, slots=True)
class Drop:
    """Forget the encode of `slot` if it has not started; answered by `dropped`, else by `encoded`."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class Free:
    """The content of `slot` is no longer needed."""

    slot: Slot


SlotEffect = Encode | Drop | Free
"""For the scheduler."""
CacheEffect = Grant | FeaturesNeeded | SlotEffect
