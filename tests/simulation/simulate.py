"""Runs scenarios: a server, its clients and its faults on a simulated machine, watched by the invariants."""

from __future__ import annotations

import gc
import logging
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import Final
from unittest.mock import patch

import trio
from sensorium.protocols.errors import SensoriumError
from simulation.clients import Ending, attend
from simulation.faults import Fault, SimulatedError
from simulation.invariants import ALWAYS, AT_REST, OF_CLIENTS, Outage, Run, broken, num_descriptors
from simulation.machine import Machine
from simulation.scenario import Client, Scenario
from simulation.server import GRACE_S, MODELS, STEP_TIMEOUT_S, Simulated

_MAX_PROBLEMS: Final = 20
_REST_S: Final = max(GRACE_S, STEP_TIMEOUT_S) + 3.0
"""Behind the last client, until nothing may be left: a step that hangs is given up by then."""
_BACK_S: Final = 60
"""How much longer models may take to come back."""
_GIVEN_UP_S: Final = 3000.0
_FORESEEN: Final = (SimulatedError, SensoriumError, MemoryError)
_HOLDS_S: Final = 3.0
"""How long an actor is slow."""


@dataclass
class Outcome:
    """What came of a run."""

    scenario: Scenario
    problems: list[str]
    endings: dict[str, Ending]
    virtual_s: float
    digest: str
    """Of everything that happened, and when: equal for equal scenarios."""

    @property
    def kinds(self) -> frozenset[str]:
        """The invariants that were broken."""
        return frozenset(each.partition(":")[0] for each in self.problems)


_expected: Final[dict[tuple[str, int, str], str]] = {}
"""Of undisturbed runs."""


def simulate(scenario: Scenario) -> Outcome:
    """Run it; what every client should be answered is found first, in a run of its own, once."""
    wanted = {_key(client): client for client in scenario.clients if client.kind != "probe"}
    missing = [client for key, client in wanted.items() if key not in _expected]
    if missing:
        _expected.update(_undisturbed(missing))
    expected = {client.name: _expected.get(_key(client), "") for client in scenario.clients}
    return _run(scenario, expected)


def _key(client: Client) -> tuple[str, int, str]:
    return client.kind.removesuffix(" stream"), client.which, client.model


def _undisturbed(clients: Iterable[Client]) -> dict[tuple[str, int, str], str]:
    """What they are answered one after the other, each with the server to itself."""
    found: dict[tuple[str, int, str], str] = {}
    for number, client in enumerate(clients):
        kind = client.kind.removesuffix(" stream")
        alone = Client(f"alone{number}", kind, 0.0, client.which, client.model)  # type: ignore[arg-type]
        outcome = _run(Scenario(0, (alone,), num_blocks=160), {alone.name: ""}, is_reference=True)
        assert alone.name in outcome.endings, f"{client} alone: {outcome.problems}"
        ending = outcome.endings[alone.name]
        assert ending.how == "answered", f"{client} alone: {ending}"
        assert not outcome.problems, f"{client} alone: {outcome.problems}"
        found[_key(client)] = ending.text
    return found


def _run(scenario: Scenario, expected: dict[str, str], *, is_reference: bool = False) -> Outcome:
    machine = Machine(scenario.seed)
    server = Simulated(machine, scenario.is_apart, scenario.plans_in_flight, scenario.num_blocks)
    run = Run(scenario, server, expected)
    watch = _Watch(run)
    with _log_of(watch), _no_collection(), _own_temporary_folder():
        try:
            machine.run(partial(_live, run, watch))
        except BaseExceptionGroup as group:
            watch.add(f"server_ends_in_good_order: {_told(group)}")
    watch.problems += [f"applications_raise_nothing: {each}" for each in server.connections.failures]
    if not is_reference:
        watch.problems += broken(OF_CLIENTS, run)
    trace = repr((sorted(run.endings.items()), watch.num_turns, watch.ended_at))
    digest = blake2b(trace.encode(), digest_size=8).hexdigest()
    return Outcome(scenario, watch.problems, run.endings, watch.ended_at, digest)


async def _live(run: Run, watch: _Watch) -> None:
    """The server's life: it starts, everybody comes and goes, it rests, and is told to stop."""
    times = [*(each.at for each in run.scenario.clients), *(each.at for each in run.scenario.faults)]
    with trio.move_on_after(max(times, default=0.0) + _GIVEN_UP_S) as scope:
        async with trio.open_nursery() as nursery:
            await nursery.start(run.server.run)
            await trio.sleep(1.0)
            run.num_tasks = trio.lowlevel.current_statistics().tasks_living
            run.num_descriptors = num_descriptors()
            trio.lowlevel.add_instrument(watch)
            async with trio.open_nursery() as coming:
                for fault in run.scenario.faults:
                    coming.start_soon(_strike, fault, run)
                for client in run.scenario.clients:
                    coming.start_soon(_attend, client, run)
            await trio.sleep(_REST_S)
            for _ in range(_BACK_S):
                if not watch.is_all_ready and not run.server.stop.is_set():
                    await trio.sleep(1.0)
            if not run.server.stop.is_set():
                watch.problems += broken(AT_REST, run)
            trio.lowlevel.remove_instrument(watch)
            run.server.stop.set()
    watch.ended_at = trio.current_time()
    if scope.cancelled_caught:
        watch.add("server_ends_in_good_order: it never ends")


async def _attend(client: Client, run: Run) -> None:
    await trio.sleep(client.at)
    run.endings[client.name] = await attend(client, run.server.connections)


async def _strike(fault: Fault, run: Run) -> None:
    """Let something go wrong at its time."""
    await trio.sleep(fault.at)
    server, faults = run.server, run.server.machine.faults
    now = trio.current_time()
    match fault.kind:
        case "process dies":
            assert server.process is not None
            server.process.die()
        case "process stopped":
            assert server.process is not None
            server.process.stopped_until = now + fault.lasts_s
        case "clock set":
            server.machine.wall_jump_s += fault.lasts_s
        case "loop held":
            server.machine.clock.jump(fault.lasts_s)
            run.held.append((now, trio.current_time()))
        case "server stops":
            run.stopped_at = min(run.stopped_at, now)
            server.stop.set()
        case "threads refused" | "disk full" | "link slow" | "actor slow":
            key = fault.kind, fault.target
            faults.now[key] = fault.lasts_s / 10
            await trio.sleep(_HOLDS_S if fault.kind == "actor slow" else fault.lasts_s)
            faults.now.pop(key, None)
        case _:
            faults.next[fault.kind, fault.target] += 1


@dataclass(eq=False)
class _Watch(trio.abc.Instrument):
    """Looks at the invariants after everything that happens, and notes when models are not there."""

    run: Run
    problems: list[str] = field(default_factory=list)
    num_turns: int = 0
    ended_at: float = 0.0
    _ready_at: dict[str, float] = field(default_factory=dict)
    _is_ready: dict[str, bool] = field(default_factory=dict)

    def add(self, problem: str) -> None:
        """Note something, once."""
        if problem not in self.problems and len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(problem)

    @property
    def is_all_ready(self) -> bool:
        """Whether no model is away."""
        return all(self._is_ready.values())

    def before_io_wait(self, timeout: float) -> None:
        """Everything that could run has run."""
        self.num_turns += 1
        self._note_outages()
        try:
            for problem in broken(ALWAYS, self.run):
                self.add(problem)
        except Exception as error:  # trio would only drop the instrument
            self.add(f"invariants_can_be_read: {error!r}")

    def _note_outages(self) -> None:
        now, service = trio.current_time(), self.run.server.service
        assert service is not None
        for name in MODELS:
            is_there = service.models[name].engine.health == "ready"
            is_there = is_there and self.run.server.engines[name].health == "ready"
            was_there = self._is_ready.get(name, True)
            if is_there and not was_there:
                self.run.outages[:] = [
                    each for each in self.run.outages if each.ended < float("inf") or each.model != name
                ]
                self.run.outages.append(Outage(name, self._ready_at.get(name, 0.0), now))
            elif was_there and not is_there:
                self.run.outages.append(Outage(name, self._ready_at.get(name, 0.0), float("inf")))
            self._is_ready[name] = is_there
            if is_there:
                self._ready_at[name] = now


class _Log(logging.Handler):
    """What the server logs of errors that nobody has foreseen is a problem."""

    def __init__(self, watch: _Watch) -> None:
        super().__init__(logging.WARNING)
        self._watch = watch

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        error = record.exc_info[1] if record.exc_info else None
        for each in _errors(error):
            is_foreseen = isinstance(each, (*_FORESEEN, OSError)) or "CUDA error" in str(each)
            if not is_foreseen and "can't start new thread" not in str(each):
                self._watch.add(f"no_unforeseen_error_is_logged: {record.getMessage()}: {each!r}")


def _errors(error: BaseException | None) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _errors(each)
    elif error is not None:
        yield error


def _told(group: BaseExceptionGroup[BaseException]) -> str:
    return "; ".join(repr(each) for each in _errors(group))


@contextmanager
def _log_of(watch: _Watch) -> Iterator[None]:
    logger, handler = logging.getLogger("sensorium"), _Log(watch)
    before = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate, _ = before


@contextmanager
def _own_temporary_folder() -> Iterator[None]:
    """Servers remove old folders of others, and a clock that is set makes any folder old."""
    with tempfile.TemporaryDirectory() as folder, patch.object(tempfile, "tempdir", folder):
        yield


@contextmanager
def _no_collection() -> Iterator[None]:
    """When cycles are collected depends on what ran before; here it is done between runs."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
