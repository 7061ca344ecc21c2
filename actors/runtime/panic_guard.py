"""The fence of one request: whatever its work raises, except what ends work on purpose, is an `Exception`.

`with contained:` stands around work whose failure a handler of `Exception` reports. Cancellation passes.
"""

from __future__ import annotations

from typing import Final

import trio

from ...protocols.shared.panics import CONTROL, PanicsAsErrors, as_error

_PASSING: Final[tuple[type[BaseException], ...]] = (*CONTROL, trio.Cancelled)

contained: Final = PanicsAsErrors(_PASSING)


def defused(error: BaseExceptionGroup[BaseException]) -> BaseExceptionGroup[BaseException]:
    """The group with panics as errors; the same object where it holds none."""
    found = as_error(error, _PASSING)
    assert isinstance(found, BaseExceptionGroup), "a group stays one"
    return found
