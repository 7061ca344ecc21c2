"""An engine some of whose answers a test makes up or changes; everything else is the engine's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from sensorium.actors.inference.client import EngineClient, OutcomeRun, Place, Run
from sensorium.protocols.engine.messages import AnyRequest, Sample, SampleRequest, TextGenerated

Ask = Callable[[], Awaitable[TextGenerated]]
Runs = Callable[[Place, SampleRequest], AbstractAsyncContextManager[Run[TextGenerated]]]
Change = Callable[[SampleRequest, Ask], Awaitable[TextGenerated]]


@dataclass(frozen=True)
class _PatchedPlace:
    place: Place
    runs: Runs

    def run(self, request: Any) -> Any:  # noqa: ANN401 (two kinds in, two kinds out)
        return self.runs(self.place, request) if isinstance(request.task, Sample) else self.place.run(request)


def patch_runs(engine: EngineClient, runs: Runs) -> None:
    """Have `runs` answer whatever samples."""
    placed = engine.placed

    @asynccontextmanager
    async def patched(*args: Any, **options: Any) -> AsyncIterator[_PatchedPlace]:  # noqa: ANN401
        async with placed(*args, **options) as place:
            yield _PatchedPlace(place, runs)

    anything: Any = engine
    anything.placed = patched


def patch_whole_answers(engine: EngineClient, change: Change) -> None:
    """Have `change` answer what samples and is asked for in one message; it may ask the engine."""

    @asynccontextmanager
    async def runs(place: Place, request: SampleRequest) -> AsyncIterator[Run[TextGenerated]]:
        async with place.run(request) as run:
            is_whole = request.task.tokens_a_message is None
            yield OutcomeRun(partial(change, request, run.outcome)) if is_whole else run

    patch_runs(engine, runs)


def note_requests(engine: EngineClient, noted: list[AnyRequest]) -> None:
    """Add to `noted` whatever the engine is asked to run."""
    placed = engine.placed

    @asynccontextmanager
    async def patched(*args: Any, **options: Any) -> AsyncIterator[Any]:  # noqa: ANN401
        async with placed(*args, **options) as place:
            yield _NotingPlace(place, noted)

    anything: Any = engine
    anything.placed = patched


@dataclass(frozen=True)
class _NotingPlace:
    place: Place
    noted: list[AnyRequest]

    def run(self, request: Any) -> Any:  # noqa: ANN401
        self.noted.append(request)
        return self.place.run(request)
