"""What must hold in every simulated run. A new part of the server, or a new state of the engine, joins here.

Three kinds: `always`, looked at after everything that happens; `at_rest`, when everybody has left and the
graces are over: nothing of them is kept; and `of_clients`, what each was answered. Each is a function that
yields what is wrong, in words; its name is the name of the violation.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio
from sensorium.actors.inference.engine import Engine
from sensorium.protocols.engine.statistics import EngineStatistics
from simulation.clients import Ending
from simulation.scenario import Client, Scenario
from simulation.server import CONFIG, MODELS, Simulated

SLACK_S: Final = 0.5
"""Around an outage: what was asked just before may fail with it, and what comes just behind."""


@dataclass(frozen=True)
class Outage:
    """A model was not there."""

    model: str
    began: float
    ended: float


@dataclass
class Run:
    """What there is to look at."""

    scenario: Scenario
    server: Simulated
    expected: dict[str, str]
    """By client, what it is answered in an undisturbed run."""
    endings: dict[str, Ending] = field(default_factory=dict)
    outages: list[Outage] = field(default_factory=list)
    held: list[tuple[float, float]] = field(default_factory=list)
    """When the loop was held up."""
    stopped_at: float = float("inf")
    checked: dict[str, int] = field(default_factory=dict)
    """The step of each model's scheduler that was looked at last."""
    num_tasks: int = 0
    num_descriptors: int = 0
    """Before the first client came."""

    def is_touched(self, client: Client, ending: Ending) -> bool:
        """Whether a fault may have changed what a client was answered."""
        began, ended = ending.began - SLACK_S, ending.ended + SLACK_S
        if client.name in self.server.machine.faults.touched or ended >= self.stopped_at:
            return True
        if any(began <= end and start <= ended for start, end in self.held):
            return True
        away = [
            each
            for each in self.outages
            if each.model == client.model and began <= each.ended and each.began <= ended
        ]
        # The end of a turn waits for a model that comes back; one that was lost twice may be why.
        return len(away) > (1 if client.kind == "live" else 0)


Check = Callable[[Run], Iterable[str]]
ALWAYS: Final[list[Check]] = []
AT_REST: Final[list[Check]] = []
OF_CLIENTS: Final[list[Check]] = []


def always(check: Check) -> Check:
    """To be looked at after everything that happens: let it be cheap."""
    ALWAYS.append(check)
    return check


def at_rest(check: Check) -> Check:
    """To be looked at when everybody has left."""
    AT_REST.append(check)
    return check


def of_clients(check: Check) -> Check:
    """To be looked at with all endings."""
    OF_CLIENTS.append(check)
    return check


def broken(checks: Iterable[Check], run: Run) -> Iterator[str]:
    """What is wrong, each with the name of its invariant in front."""
    for check in checks:
        for problem in check(run):
            yield f"{check.__name__}: {problem}"


def _engines(run: Run) -> Iterator[tuple[str, Engine, EngineStatistics]]:
    for name, engine in run.server.engines.items():
        yield name, engine, engine.statistics()


@always
def schedulers_are_consistent(run: Run) -> Iterator[str]:
    """After every plan: whose blocks are whose, what is findable, what waits and runs, what is in flight."""
    for name, engine in run.server.engines.items():
        group = engine._group
        scheduler = None if group is None else group.scheduler._scheduler
        if group is None or scheduler is None or run.checked.get(name) == scheduler._step:
            continue
        run.checked[name] = scheduler._step
        try:
            scheduler.check()
            group._ledger.check()
        except AssertionError as error:
            yield f"{name}: {error!r} at {_place_of(error)}"
        if len(scheduler._queues.running) > scheduler.config.max_running:
            yield f"{name}: {len(scheduler._queues.running)} running"
        for inbox in engine.inboxes():
            if inbox.depth > inbox.capacity:
                yield f"{name}: {inbox.depth} messages wait for the {inbox.name}"


@always
def media_memory_is_within_its_bounds(run: Run) -> Iterator[str]:
    budget = _service(run).budget
    if not 0 <= budget.num_bytes <= budget.max_bytes:
        yield f"{budget.num_bytes} bytes of {budget.max_bytes}"


@always
def sessions_and_requests_belong_to_somebody(run: Run) -> Iterator[str]:
    service = _service(run)
    if service.sessions.num_detached > len(service.sessions):
        yield f"{service.sessions.num_detached} wait, there are {len(service.sessions)}"
    if not 0 <= service.num_requests <= run.server.connections.num_open:
        yield f"{service.num_requests} requests on {run.server.connections.num_open} connections"


def _service(run: Run):  # type: ignore[no-untyped-def]  # noqa: ANN202
    service = run.server.service
    assert service is not None
    return service


@at_rest
def no_session_and_no_request_is_left(run: Run) -> Iterator[str]:
    service = _service(run)
    found = len(service.sessions), service.num_requests, run.server.connections.num_open
    if any(found):
        yield f"{found[0]} sessions, {found[1]} requests, {found[2]} connections"


@at_rest
def engines_hold_nothing(run: Run) -> Iterator[str]:
    for name, engine, now in _engines(run):
        if engine.health != "ready":
            yield f"{name}: {engine.health}"
            continue
        if now.num_free_blocks != now.num_total_blocks:
            yield f"{name}: {now.num_free_blocks} of {now.num_total_blocks} blocks are free"
        held = now.num_running, now.num_waiting, now.num_cache_references, now.num_sessions_parked
        if any(held):
            yield f"{name}: {held} running, waiting, references to encodings, parked sessions"


@at_rest
def runners_hold_what_their_engines_know_of(run: Run) -> Iterator[str]:
    for name, engine, now in _engines(run):
        runner = run.server.runners[name]
        if engine.health == "ready" and runner.num_sequences:
            yield f"{name}: {runner.num_sequences} sequences"
        if engine.health == "ready" and runner.num_slots != now.num_cache_entries:
            yield f"{name}: {runner.num_slots} encodings, {now.num_cache_entries} known of"


@at_rest
def nothing_is_under_way_between_the_processes(run: Run) -> Iterator[str]:
    for link in run.server.links:
        if link._works:
            yield f"{len(link._works)} calls are worked on"
    process = run.server.process
    for engine in () if process is None else process.engines:
        if engine._line is not None and engine._line._calls:
            yield f"{len(engine._line._calls)} calls are open"


@at_rest
def models_are_back(run: Run) -> Iterator[str]:
    for name, model in _service(run).models.items():
        if model.engine.health != "ready":
            yield f"{name} is {model.engine.health}"


@at_rest
def media_hold_nothing(run: Run) -> Iterator[str]:
    service = _service(run)
    if service.budget.num_bytes or service.budget._held:
        yield f"{service.budget.num_bytes} bytes are reserved"
    actor = service.media._pool
    if actor._requests or actor.statistics().num_waiting or actor.statistics().num_running:
        yield f"{len(actor._requests)} files are worked on"
    if left := os.listdir(actor._folder):
        yield f"files are left: {left}"


@at_rest
def no_task_and_no_descriptor_is_left(run: Run) -> Iterator[str]:
    num_tasks = trio.lowlevel.current_statistics().tasks_living
    if num_tasks != run.num_tasks:
        yield f"{num_tasks} tasks, {run.num_tasks} before the first client"
    if (num := num_descriptors()) > run.num_descriptors:
        yield f"{num} descriptors, {run.num_descriptors} before the first client"
    if held := trio.to_thread.current_default_thread_limiter().borrowed_tokens:
        yield f"{held} threads are in use"


def _place_of(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return " < ".join(f"{Path(each.filename).name}:{each.lineno}" for each in reversed(frames[-3:]))


def num_descriptors() -> int:
    """Open files of this process."""
    return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").is_dir() else 0


@of_clients
def every_client_ends_once(run: Run) -> Iterator[str]:
    for client in run.scenario.clients:
        ending = run.endings.get(client.name)
        if ending is None or ending.how == "never":
            yield f"{client.kind} of {client.name} was never answered"
        elif ending.how == "wrong":
            yield f"{client.kind} of {client.name}: {ending.text}"


@of_clients
def answers_are_those_of_an_undisturbed_run(run: Run) -> Iterator[str]:
    for client in run.scenario.clients:
        ending = run.endings.get(client.name)
        if ending is not None and ending.how == "answered" and ending.text != run.expected[client.name]:
            yield f"{client.kind} of {client.name}: {ending.text!r}, not {run.expected[client.name]!r}"


@of_clients
def who_is_not_touched_is_answered(run: Run) -> Iterator[str]:
    for client in run.scenario.clients:
        ending = run.endings.get(client.name)
        if ending is not None and ending.how == "error" and not run.is_touched(client, ending):
            yield f"{client.kind} of {client.name}: {ending.text}"


assert set(MODELS) == set(CONFIG.models)
