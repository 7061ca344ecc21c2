"""The scheduler under random histories (`tests/support/scheduler_machine.py`), all layers alike."""

from __future__ import annotations

from hypothesis import settings
from support.scheduler_machine import SchedulerMachine

TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
