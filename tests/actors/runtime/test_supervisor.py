"""Groups of actors: start in order, restart together with back-off, drain, give up."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
import trio
from sensorium.actors.runtime.supervisor import Child, Health, RestartPolicy, Supervisor
from trio.testing import MockClock

POLICY = RestartPolicy(first_delay_s=1.0, max_delay_s=4.0, max_restarts=3, window_s=100.0)


class Group:
    """Two children whose fate is told from outside."""

    def __init__(self) -> None:
        self.starts: list[tuple[str, float]] = []
        self.failures: list[BaseException] = []
        self.crash = trio.Event()
        self.error: Exception = ValueError("boom")
        self.fails_at_start = False
        self.start_s = 0.5

    def children(self) -> Sequence[Child]:
        self.crash = trio.Event()
        return (Child("one", self.one), Child("two", self.two))

    async def one(self, *, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep(self.start_s)
        if self.fails_at_start:
            raise self.error
        self.starts.append(("one", trio.current_time()))
        task_status.started()
        await trio.sleep_forever()

    async def two(self, *, task_status: trio.TaskStatus[None]) -> None:
        self.starts.append(("two", trio.current_time()))
        task_status.started()
        async with trio.open_nursery() as nursery:  # so that the error comes beside a Cancelled
            nursery.start_soon(trio.sleep_forever)
            await self.crash.wait()
            raise self.error


def health(supervisor: Supervisor) -> Health:
    """A call, since mypy would think that the attribute stays what it was."""
    return supervisor.health


async def start(nursery: trio.Nursery, group: Group, policy: RestartPolicy = POLICY) -> Supervisor:
    supervisor = Supervisor("pair", group.children, policy=policy, on_crash=group.failures.append)
    assert health(supervisor) == "starting"
    await nursery.start(supervisor.run)
    return supervisor


async def test_children_start_in_order_and_ready_is_told(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    group = Group()
    supervisor = await start(nursery, group)
    assert health(supervisor) == "ready"
    assert group.starts == [("one", 0.5), ("two", 0.5)]


async def test_after_a_fatal_crash_there_is_no_restart_and_run_raises(autojump_clock: MockClock) -> None:
    group = Group()
    group.error = ZeroDivisionError("gone")
    reported: list[Health] = []
    supervisor = Supervisor(
        "pair",
        group.children,
        policy=POLICY,
        on_crash=lambda _: reported.append(supervisor.health),
        fatal=ZeroDivisionError,
    )
    with pytest.RaisesGroup(ZeroDivisionError):
        async with trio.open_nursery() as nursery:
            await nursery.start(supervisor.run)
            group.crash.set()
    assert reported == ["failed"]
    assert (health(supervisor), supervisor.num_restarts) == ("failed", 0)


async def test_a_crash_restarts_the_group_once_and_is_logged_once(
    nursery: trio.Nursery, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    group = Group()
    supervisor = await start(nursery, group)
    group.crash.set()
    await trio.sleep(0.1)
    assert health(supervisor) == "restarting"
    assert [str(error) for error in group.failures] == ["boom"]
    await trio.sleep(2.0)
    assert health(supervisor) == "ready"
    assert supervisor.num_restarts == 1
    assert group.starts[2:] == [("one", 2.0), ("two", 2.0)]
    crashes = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.getMessage() for record in crashes] == ["pair: two crashed"]
    assert crashes[0].exc_info is not None


async def test_the_delay_doubles_and_too_many_crashes_give_up(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    group = Group()
    supervisor = await start(nursery, group)
    for _ in range(4):
        group.crash.set()
        await trio.sleep(20.0)
    times = [time for name, time in group.starts if name == "one"]
    assert times == [0.5, 2.0, 23.0, 45.0]
    assert health(supervisor) == "failed"
    await trio.sleep(100.0)
    assert health(supervisor) == "failed"
    assert len(group.starts) == 8


async def test_old_crashes_are_forgotten(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    group = Group()
    supervisor = await start(nursery, group)
    for _ in range(10):
        group.crash.set()
        await trio.sleep(60.0)
    assert health(supervisor) == "ready"
    assert supervisor.num_restarts == 10


async def test_one_that_never_gets_ready_again_is_given_up_however_long_its_starts_take(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """By the clock its crashes are too far apart to be too many: no probe would ever say that it is over."""
    group = Group()
    supervisor = await start(nursery, group)
    group.fails_at_start, group.start_s = True, 2 * POLICY.window_s
    group.crash.set()
    await trio.sleep(10 * POLICY.window_s)
    assert health(supervisor) == "failed"
    assert supervisor.num_restarts == POLICY.max_restarts


async def test_a_crash_during_a_restart_backs_off_further(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    group = Group()
    supervisor = await start(nursery, group)
    group.fails_at_start = True
    group.crash.set()
    await trio.sleep(3.0)
    assert health(supervisor) == "restarting"
    group.fails_at_start = False
    await trio.sleep(3.0)
    assert health(supervisor) == "ready"
    assert supervisor.num_restarts == 2


async def test_a_group_that_never_started_raises_its_own_error(autojump_clock: MockClock) -> None:
    group = Group()
    group.fails_at_start = True
    supervisor = Supervisor("pair", group.children, policy=POLICY)
    with pytest.raises(ValueError, match="boom"):
        await supervisor.run()
    assert health(supervisor) == "failed"


async def test_a_child_that_just_ends_is_a_crash(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    failures: list[BaseException] = []

    async def brief(*, task_status: trio.TaskStatus[None]) -> None:
        task_status.started()
        await trio.sleep(1.0)

    supervisor = Supervisor("lone", lambda: [Child("brief", brief)], policy=POLICY, on_crash=failures.append)
    await nursery.start(supervisor.run)
    await trio.sleep(1.5)
    assert health(supervisor) == "restarting"
    assert "brief ended unexpectedly" in str(failures[0])


async def test_one_that_crashes_as_it_becomes_ready_leaves_the_group_restarting(
    autojump_clock: MockClock,
) -> None:
    at = iter(["stays", "crashes", "stays"])

    async def child(*, task_status: trio.TaskStatus[None]) -> None:
        does = next(at)
        task_status.started()
        if does == "crashes":
            raise ValueError("boom")
        await crash.wait()
        raise ValueError("boom")

    crash = trio.Event()
    async with trio.open_nursery() as nursery:
        supervisor = Supervisor("one", lambda: (Child("one", child),), policy=POLICY)
        await nursery.start(supervisor.run)
        crash.set()
        await trio.sleep(1.5)
        crash = trio.Event()
        assert health(supervisor) == "restarting", "while it waits to try again"
        await trio.sleep(2.0)
        assert health(supervisor) == "ready"
        nursery.cancel_scope.cancel()
