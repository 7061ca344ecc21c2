"""The slots that one running request holds of those of `engine/planning/kv/states.py`."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class HeldState:
    """The slots of one running request."""

    slot: int
    position: int
    """Tokens that the state in `slot` is behind, once all that is planned is done."""
    checkpoint: int | None = None
    """The state in front of the draft in flight, and the position it is behind."""
    checkpoint_position: int = 0
    unproven: list[tuple[int, int]] = field(default_factory=list)
    """Snapshots behind so many blocks, whose steps are not back."""

    @property
    def slots(self) -> tuple[int, ...]:
        """All of them."""
        checkpoint = () if self.checkpoint is None else (self.checkpoint,)
        return (self.slot, *checkpoint, *(slot for _, slot in self.unproven))
