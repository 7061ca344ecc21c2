"""What is no `Exception` becomes one, but for what ends work on purpose."""

from __future__ import annotations

import asyncio
import traceback

import pytest
import trio
from sensorium.protocols.shared.panics import CONTROL, PanicError, as_error, contained_job, native_call


class Panic(BaseException):
    """As `pyo3_runtime.PanicException`."""


def cancelled() -> trio.Cancelled:
    return trio.Cancelled._create(source="unknown")


def test_a_panic_is_an_error_whose_cause_it_is() -> None:
    with pytest.raises(PanicError, match=r"^Panic: index out of bounds$") as caught, native_call:
        raise Panic("index out of bounds")
    assert isinstance(caught.value.__cause__, Panic)
    assert "test_panics.py" in "".join(traceback.format_exception(caught.value.__cause__))


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, ValueError, MemoryError])
def test_what_ends_work_on_purpose_and_errors_pass_as_they_are(kind: type[BaseException]) -> None:
    raised = kind("x")
    for error in (raised, BaseExceptionGroup("g", [raised]), BaseExceptionGroup("g", [raised, ValueError()])):
        with pytest.raises(BaseException) as caught, native_call:  # noqa: PT011 (which one is compared)
            raise error
        assert caught.value is error


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError])
def test_a_job_that_nothing_can_take_an_exit_from_has_none(kind: type[BaseException]) -> None:
    with pytest.raises(PanicError, match=kind.__name__), contained_job:
        raise kind


def test_in_groups_only_the_panics_change() -> None:
    cancel, wrong = cancelled(), ValueError("wrong")
    inner = BaseExceptionGroup("inner", [cancel, Panic("deep")])
    group = BaseExceptionGroup("outer", [wrong, inner])
    found = as_error(group, (*CONTROL, trio.Cancelled))
    assert isinstance(found, BaseExceptionGroup)
    assert found.message == "outer"
    first, second = found.exceptions
    assert first is wrong
    assert isinstance(second, BaseExceptionGroup)
    assert second.exceptions[0] is cancel
    assert isinstance(second.exceptions[1], PanicError)
    whole = as_error(BaseExceptionGroup("only", [Panic(), wrong]))
    assert isinstance(whole, ExceptionGroup), "nothing is left that is no Exception"
