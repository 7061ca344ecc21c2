"""The tensors of recurrent states by slot: cleared where a sequence begins, copied as a plan says.

Which slot is whose, and which are snapshots, the scheduler knows (`engine/planning/kv/states.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor

from ..models.base import Model, RecurrentModel
from ..planning.plan import Copy


class StateMemory:
    """The states of one model; none, and nothing to do, for a model without."""

    def __init__(self, model: Model, num_slots: int) -> None:
        """Raises ValueError if slots are given to a model without states, or a model with states has none."""
        self._tensors: Sequence[Tensor] = ()
        if isinstance(model, RecurrentModel) != (num_slots > 0):
            raise ValueError(
                f"num_state_slots is {num_slots}; allowed: 0 for a model without states, at least 1 for "
                "one with states"
            )
        if isinstance(model, RecurrentModel):
            self._tensors = model.make_states(num_slots)

    def __bool__(self) -> bool:
        return bool(self._tensors)

    def copy(self, copies: Iterable[Copy]) -> None:
        """Make them in their order: a later one may read what an earlier one wrote."""
        if not self._tensors:
            raise RuntimeError("a plan copies states, and the model has none")
        for copy in copies:
            for tensor in self._tensors:
                tensor[copy.target].copy_(tensor[copy.source])

    def clear(self, slots: Iterable[int | None]) -> None:
        """Of those that begin: whatever their slots hold is another's."""
        for slot in slots:
            for tensor in self._tensors:
                tensor[slot].zero_()
