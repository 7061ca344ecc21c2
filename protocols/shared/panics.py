"""Panics of native libraries, as errors of the work that met them.

A Rust library that panics raises `pyo3_runtime.PanicException`, which is no `Exception`: an `except
Exception` lets it pass, and with it ends every task above. Here is the one place that turns such an exception
into an ordinary one. What ends work on purpose (`CONTROL`, and what a caller adds) passes unchanged, also in
groups.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final

CONTROL: Final[tuple[type[BaseException], ...]] = (KeyboardInterrupt, SystemExit, GeneratorExit)


class PanicError(Exception):
    """Something raised an exception that is no `Exception`; its cause, where known, is that exception."""


def as_error(error: BaseException, passing: tuple[type[BaseException], ...] = CONTROL) -> BaseException:
    """`error` with every panic in it, or in the groups it holds, as a PanicError.

    The very same object where there is none. Instances of `passing` are left alone.
    """
    if isinstance(error, (Exception, *passing)):
        return error
    if not isinstance(error, BaseExceptionGroup):
        panic = PanicError(f"{type(error).__name__}: {error}")
        panic.__cause__ = error
        return panic
    parts = [as_error(each, passing) for each in error.exceptions]
    if all(new is old for new, old in zip(parts, error.exceptions, strict=True)):
        return error
    group = error.derive(parts)
    group.__cause__, group.__context__ = error.__cause__, error.__context__
    return group.with_traceback(error.__traceback__)


class PanicsAsErrors:
    """A context that raises `as_error` of what leaves it. Reusable and reentrant: it keeps no state."""

    __slots__ = ("_passing",)

    def __init__(self, passing: tuple[type[BaseException], ...] = CONTROL) -> None:
        self._passing = passing

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, Exception):
            return
        found = as_error(error, self._passing)
        try:
            if found is not error:
                raise found
        finally:  # else this frame, which its traceback holds, would hold it
            del error, found, where


native_call: Final = PanicsAsErrors()
"""Around a call of a native library by code that knows no event loop."""
contained_job: Final = PanicsAsErrors(())
"""Around a job of a thread or process of its own, in which nothing is there to take even an exit."""
