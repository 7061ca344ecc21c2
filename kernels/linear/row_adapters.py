"""Adapters: what is added to some rows of a product, on top of the weight that all rows share.

A weight that adapters may change is an `AdaptedWeight` (`linear.py`) from its loading on, with the names of
the checkpoint's tensors it was made of. Which rows have which adapter is known of each step: its runner
enters `adapting`, in the thread that computes. A model that was loaded for no adapters has no such weight,
and asks nothing here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from torch import Tensor

RowChange = Callable[[Tensor], Tensor]
"""Inputs [rows, in] → what is added to the outputs [rows, out]."""

ALL_ROWS: Final = slice(None)


class Adapter(Protocol):
    """A fine-tune of some of a model's products."""

    def change_of(self, names: Sequence[str]) -> RowChange | None:
        """Its change of the product of the tensors `names`, whose outputs follow each other, before the
        activation; None: it leaves that product as it is."""


@dataclass(frozen=True, slots=True)
class AdaptedRows:
    """Rows that follow each other and have one adapter."""

    adapter: Adapter
    rows: slice


class _Thread(threading.local):
    """What the thread is computing."""

    adapted: Sequence[AdaptedRows] = ()
    num_rows: int | None = None


_thread: Final = _Thread()


@contextmanager
def adapting(adapted: Sequence[AdaptedRows], num_rows: int | None = None) -> Iterator[None]:
    """Products of this thread change their `adapted` rows until this is left. A product that an adapter
    changes must have `num_rows` rows (None: any number, where one adapter has `ALL_ROWS`)."""
    _thread.adapted, _thread.num_rows = adapted, num_rows
    try:
        yield
    finally:
        _thread.adapted, _thread.num_rows = (), None


def is_adapting() -> bool:
    """Whether some row of what this thread computes has an adapter."""
    return bool(_thread.adapted)


def add_changes(y: Tensor, x: Tensor, names: Sequence[str]) -> None:
    """Add to y [rows, out], in place, what adapters change for inputs x [rows, in]."""
    for each in _thread.adapted:
        change = each.adapter.change_of(names)
        if change is None:
            continue
        if _thread.num_rows not in (None, x.shape[0]):
            raise RuntimeError(
                f"an adapter changes {', '.join(names)}, which sees {x.shape[0]} rows of a step of "
                f"{_thread.num_rows}; allowed: products of all rows"
            )
        y[each.rows] += change(x[each.rows])
