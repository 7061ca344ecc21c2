"""Two or more engines of one model behind one client: what the seam has to carry for that, and no more.

A key stays where it was first placed until its session is closed; a prompt without one goes where the longest
beginning of it was, and what is new to all where the fewest requests are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import reduce
from operator import add

from sensorium.actors.inference.client import EngineClient, Fetch, Place
from sensorium.actors.runtime.actor import InboxStatistics
from sensorium.actors.runtime.supervisor import Health
from sensorium.engine.models.info import ModelInfo
from sensorium.engine.planning.kv.parked import shared_length
from sensorium.protocols.engine.messages import INTERACTIVE, EncoderItem, Lane, MediaSpan, SessionKey
from sensorium.protocols.engine.statistics import EngineStatistics


class Replicas(EngineClient):
    """One client of several engines."""

    def __init__(self, engines: Sequence[EngineClient]) -> None:
        self.engines = engines
        self.by_key: dict[str, int] = {}
        self._prompts: list[list[tuple[int, ...]]] = [[] for _ in engines]
        self._num_placed: Counter[int] = Counter()

    @property
    def info(self) -> ModelInfo:
        return self.engines[0].info

    @property
    def health(self) -> Health:
        return "ready" if any(each.health == "ready" for each in self.engines) else self.engines[0].health

    def statistics(self) -> EngineStatistics:
        return reduce(add, (each.statistics() for each in self.engines))

    def inboxes(self) -> Iterable[InboxStatistics]:
        return [inbox for each in self.engines for inbox in each.inboxes()]

    async def refresh(self) -> None:
        for each in self.engines:
            await each.refresh()

    @asynccontextmanager
    async def placed(
        self,
        items: Sequence[EncoderItem] = (),
        key: str | None = None,
        prompt_token_ids: Sequence[int] = (),
        *,
        spans: Sequence[MediaSpan] = (),  # noqa: ARG002
        lane: Lane = INTERACTIVE,
        fetch: Fetch | None = None,
    ) -> AsyncIterator[Place]:
        place = self._choose(key, tuple(prompt_token_ids))
        self._num_placed[place] += 1
        try:
            engine = self.engines[place]
            async with engine.placed(items, key, prompt_token_ids, lane=lane, fetch=fetch) as there:
                yield there
        finally:
            self._num_placed[place] -= 1

    def close_session(self, session: SessionKey) -> None:
        place = self.by_key.pop(session, None)
        if place is not None:
            self.engines[place].close_session(session)

    def _choose(self, key: str | None, prompt: tuple[int, ...]) -> int:
        if key is None or key not in self.by_key:
            chosen = max(range(len(self.engines)), key=lambda place: self._worth(place, prompt))
            if key is not None:
                self.by_key[key] = chosen
        else:
            chosen = self.by_key[key]
        self._prompts[chosen].append(prompt)
        return chosen

    def _worth(self, place: int, prompt: tuple[int, ...]) -> tuple[int, int, int]:
        shared = max((shared_length(prompt, each) for each in self._prompts[place]), default=0)
        return shared, -self._num_placed[place], -len(self._prompts[place])
