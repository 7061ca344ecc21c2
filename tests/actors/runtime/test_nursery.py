"""What failed work held is given back at once, and not when the garbage collector comes by."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Iterator

import pytest
import trio
from sensorium.actors.http.error_bodies import shown
from sensorium.actors.runtime.actor import Reply
from sensorium.actors.runtime.nursery import all_of, open_work
from sensorium.protocols.errors import InternalError, OverloadedError, SensoriumError, UnavailableError


class Sound:
    """Something large."""


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def fail_with(sound: Sound) -> None:
    assert sound
    await trio.lowlevel.checkpoint()
    raise UnavailableError("it is gone")


async def test_a_child_that_failed_holds_nothing() -> None:
    sound = Sound()
    held = weakref.ref(sound)

    async def work(sound: Sound) -> None:
        async with open_work() as nursery:
            nursery.start_soon(fail_with, sound)
            nursery.start_soon(trio.sleep_forever)

    with pytest.raises(UnavailableError):
        await work(sound)
    del sound
    assert held() is None


async def test_of_many_that_worked_on_one_answer_none_holds_anything() -> None:
    sound = Sound()
    held = weakref.ref(sound)
    with pytest.raises(UnavailableError):
        await all_of(fail_with, [sound, sound])
    del sound
    assert held() is None


async def test_an_error_that_was_answered_holds_nothing() -> None:
    """The body's own error is in a cycle of trio's with the cancellation of its children."""

    async def work() -> None:
        sound = Sound()
        alive.append(weakref.ref(sound))
        async with open_work() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await fail_with(sound)

    alive: list[weakref.ref[Sound]] = []
    errors: list[SensoriumError] = []
    try:
        await work()
    except Exception as error:
        errors.append(shown(error, "a test"))
    assert isinstance(errors[0], UnavailableError)
    assert alive[0]() is None


async def test_who_asked_and_got_an_error_is_not_held_by_the_answer() -> None:
    async def fail() -> None:
        sound = Sound()
        alive.append(weakref.ref(sound))
        reply: Reply[None] = Reply()
        reply.fail(InternalError("no"))
        await reply.wait()
        del sound

    alive: list[weakref.ref[Sound]] = []
    with pytest.raises(InternalError):
        await fail()
    assert alive[0]() is None


def test_an_error_for_many_can_be_copied_for_each() -> None:
    for error in (
        OverloadedError("full", code="some_code", param="file", retry_after_s=7.0),
        UnavailableError("away", code="engine_lost"),
    ):
        same: SensoriumError = copy.copy(error)
        assert (same.message, same.code, same.param, same.retry_after_s) == (
            error.message,
            error.code,
            error.param,
            error.retry_after_s,
        )
        assert same is not error
