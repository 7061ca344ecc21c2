"""How long a task keeps the network loop to itself: the thread's own CPU time between two of its waits.

Lag (`Metrics.loop_lag`) also grows when other processes or threads take the core; this does not, so it says
whose code it was. Read next: `actors/telemetry/metrics.py`.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import trio


@dataclass(frozen=True, slots=True)
class Hold:
    """One task's step of the loop."""

    seconds: float = 0.0
    task: str = ""
    waits_in: str = ""
    """The file and function the task went to wait in when the step was over."""


class LoopHold(trio.abc.Instrument):
    """Remembers the longest steps. Add it to a loop with `trio.lowlevel.add_instrument`."""

    def __init__(self, *, above_s: float = 1.0) -> None:
        self.longest = Hold()
        """Since the last `take`."""
        self.above: list[Hold] = []
        """Steps longer than `above_s`, the last hundred of them."""
        self._above_s = above_s
        self._began = self._began_cpu = math.inf  # added in the middle of a step, which is not seen whole

    def before_task_step(self, task: trio.lowlevel.Task) -> None:  # noqa: ARG002 (trio's signature)
        """A step begins."""
        self._began_cpu = time.thread_time()
        self._began = time.perf_counter()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """A step is over."""
        # A thread has no more CPU time than time passes, and asking for that costs a tenth: no system call.
        if time.perf_counter() - self._began <= min(self.longest.seconds, self._above_s):
            return
        held = time.thread_time() - self._began_cpu
        if held <= self.longest.seconds and held <= self._above_s:
            return
        hold = Hold(held, task.name, _innermost(task))
        if held > self.longest.seconds:
            self.longest = hold
        if held > self._above_s:
            self.above = [*self.above[-99:], hold]

    def take(self) -> float:
        """Seconds of the longest step since the last call."""
        longest, self.longest = self.longest, Hold()
        return longest.seconds


def _innermost(task: trio.lowlevel.Task) -> str:
    """Where the task waits now; empty once it has ended."""
    place = ""
    for frame, _ in task.iter_await_frames():
        if frame.f_globals.get("__name__", "").startswith(("trio.", "outcome")):
            break
        place = f"{frame.f_code.co_filename.rsplit('/', 1)[-1]}:{frame.f_lineno} {frame.f_code.co_qualname}"
    return place
