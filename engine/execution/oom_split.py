"""How much of a step goes into one forward pass: all of it, or less for a while after one that was too much.

Finding out what the device has memory for costs a forward pass each time; a step like the last one that
failed is cut to what is known to be hopeful instead. Read `engine/execution/runner.py` for who runs the
parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

import torch

from ...protocols.engine.messages import Fault
from .faults import NO_KERNELS, first_line, out_of_memory, spoils_thread

_MEMORY_STEPS: Final = 64
"""Steps that keep to what the last failure taught; memory comes and goes with what else is on the device."""


class HasRows(Protocol):
    """What a step has several of, such as sequences."""

    @property
    def num_rows(self) -> int:
        """Of a forward pass, those that it feeds."""


PartT = TypeVar("PartT", bound=HasRows)
InputT = TypeVar("InputT")


def run_in_halves(
    inputs: Sequence[InputT],
    run: Callable[[Sequence[InputT]], object],
    failed: Callable[[InputT, str, Fault], object],
    *,
    release_memory: Callable[[], None],
    too_large: Callable[[Sequence[InputT]], object] = lambda _: None,
) -> None:
    """`run` all at once; what fails so is run in halves, and for what fails alone `failed` gets the reason.

    `too_large` gets several that the device had no memory for. An error after which nothing works, on the
    device or in the thread, is raised.
    """
    try:
        run(inputs)
        return
    except torch.AcceleratorError:  # nothing works on the device after one
        raise
    except Exception as error:  # a model that trips over one input must not take the others along
        if spoils_thread(error):
            raise RuntimeError(NO_KERNELS) from error
        memory = out_of_memory(error)
        reason = memory or f"this input cannot be encoded ({first_line(error)})"
    if memory is not None:
        release_memory()
    if len(inputs) == 1:
        failed(inputs[0], reason, "not_encoded" if memory is None else "out_of_memory")
        return
    if memory is not None:
        too_large(inputs)
    half = len(inputs) // 2
    for part in (inputs[:half], inputs[half:]):
        run_in_halves(part, run, failed, release_memory=release_memory, too_large=too_large)


class BatchSplitter:
    """Bounds the rows of one forward pass. One sequence is never divided, however many rows it feeds."""

    def __init__(self) -> None:
        self._max_rows: int | None = None
        self._num_left = 0

    def split(self, fed: Sequence[PartT]) -> Iterator[Sequence[PartT]]:
        """Neighbours of one step that may go together, in order. Call once per step."""
        if self._num_left:
            self._num_left -= 1
        else:
            self._max_rows = None
        first = num_rows = 0
        for index, each in enumerate(fed):
            rows = each.num_rows
            if self._max_rows is not None and index > first and num_rows + rows > self._max_rows:
                yield fed[first:index]
                first, num_rows = index, 0
            num_rows += rows
        yield fed[first:]

    def fail(self, fed: Sequence[HasRows]) -> None:
        """These several were too much at once."""
        half = sum(each.num_rows for each in fed) // 2
        self._max_rows = half if self._max_rows is None else min(self._max_rows, half)
        self._num_left = _MEMORY_STEPS
