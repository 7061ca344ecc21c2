"""What a scheduler was told, and the plans it makes when it is told the same again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.plan import Plan
from sensorium.engine.planning.scheduler import Scheduler

Call = tuple[str, tuple[Any, ...]]
_CALLS = (
    "submit",
    "feed",
    "fork",
    "take_events",
    "encode",
    "drop_encode",
    "free",
    "abort",
    "close_session",
    "schedule",
    "schedule_overlapped",
    "update",
)


def record(scheduler: Scheduler) -> list[Call]:
    """A list that grows with every call that is not refused."""
    calls: list[Call] = []

    def recorded(name: str) -> Any:  # noqa: ANN401 (any of its methods)
        method = getattr(scheduler, name)

        def call(*args: Any) -> Any:  # noqa: ANN401
            result = method(*args)
            calls.append((name, args))
            return result

        return call

    for name in _CALLS:
        setattr(scheduler, name, recorded(name))
    return calls


def replay(config: SchedulerConfig, calls: Iterable[Call]) -> Iterator[Plan]:
    """The plans a new scheduler makes of the same calls, falsy ones included."""
    scheduler = Scheduler(config)
    for name, args in calls:
        result = getattr(scheduler, name)(*args)
        if isinstance(result, Plan):
            yield result
