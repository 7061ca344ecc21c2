"""All live sessions of a server, with and without a client: who may resume which, and for how long.

A session runs in a task of its own here, so that it outlives its socket. When the socket ends without the
client's goodbye (a closing handshake with code 1000 or none), the session is *detached*: it answers what it
was asked, keeps the events, and waits `grace_s`, or 5 s where it was told 1001. A connection of its caller
whose first event is `session.resume` with its token takes it over, also from another socket that is still
open: the newest wins. Detached sessions count as sessions; at most `max_detached` wait, and with more, of the
caller with most of them the one that has waited longest ends. A session that ends by itself while detached (a
limit, a drain) is kept as long, so that its last words can be read.

Read next: `actors/http/realtime/websocket.py`, where sessions begin.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import trio

from ...protocols.engine.messages import Lane
from ...protocols.errors import ClientError
from ...protocols.realtime.lifecycle import SessionResume
from ..callers import Caller, greediest
from ..runtime.compute_pool import LANE
from ..telemetry.metrics import Metrics
from .connection import Line, refusal
from .session import SessionActor, no_such_session

logger = logging.getLogger(__name__)

_GOING_S: Final = 5.0
"""The longest wait where a page was left or a proxy begins anew: whoever comes back does so at once."""


class SessionRegistry:
    """Sessions by id. `on_end` is called whenever one is gone."""

    def __init__(
        self, metrics: Metrics, *, grace_s: float, max_detached: int, on_end: Callable[[], object]
    ) -> None:
        self._metrics = metrics
        self._grace_s = grace_s
        self._max_detached = max_detached
        self._on_end = on_end
        self._sessions: dict[str, SessionActor] = {}
        self._detached: dict[str, trio.CancelScope] = {}
        """In the order in which they were detached, each with the scope of its wait."""
        self._nursery: trio.Nursery | None = None
        metrics.sessions_detached.set_function(lambda: self.num_detached)
        metrics.partial_interval.set_function(lambda: max((s.pace.factor for s in self), default=1.0))
        metrics.partial_lag.set_function(lambda: max((s.pace.lag_s for s in self), default=0.0))

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session_id: object) -> bool:
        """Whether that session is still there, with or without a client."""
        return session_id in self._sessions

    def __iter__(self) -> Iterator[SessionActor]:
        return iter(tuple(self._sessions.values()))

    @property
    def num_places(self) -> int:
        """That sessions take: one for each channel."""
        return sum(session.num_channels for session in self._sessions.values())

    def held_by(self, caller: Caller) -> int:
        """Places of sessions that a caller began."""
        return sum(session.num_channels for session in self._sessions.values() if session.caller == caller)

    @property
    def num_detached(self) -> int:
        """Sessions that wait for their client."""
        return len(self._detached)

    @property
    def may_resume(self) -> bool:
        """Whether a new connection could want one of the sessions."""
        return self._grace_s > 0 and bool(self._sessions)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the sessions' tasks; cancelling ends every session at once."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._nursery = None  # a line that ends now must not begin a wait

    async def serve(self, line: Line) -> None:
        """Begin `line.session` and serve the line to its end."""
        session = line.session
        assert self._nursery is not None
        assert session is not None
        self._sessions[session.id] = session
        self._metrics.sessions_active.inc()
        session.delivery.line = line
        self._nursery.start_soon(self._live, session)
        await self._carry(line)

    async def serve_resumed(self, resumption: SessionResume, line: Line) -> None:
        """Serve a line that has no session of its own, and gets one by `wish` or none."""
        await self.resume(resumption, line)
        await self._carry(line)

    async def resume(self, resumption: SessionResume, line: Line) -> None:
        """Put the session that is to be resumed on `line`; refuse and close the line if that cannot be. A
        session of another server goes on there, until the line ends."""
        begun = line.session
        if (relay := line.relay_of(resumption)) is not None:
            if begun is not None:
                begun.delivery.line = line.session = None
                self._remove(begun, None)
            await relay(line)
            return
        try:
            session = self._sessions.get(resumption.session_id)
            if session is None or session is begun or not line.caller.may_resume(session.caller):
                raise no_such_session()
            await session.resume(resumption, line)
        except ClientError as error:
            line.outbox.put(refusal(error, resumption=resumption))
            line.outbox.close(1008, error.message)
            line.session = None
            return
        finally:
            if begun is not None:  # it was only begun because nobody knew better
                begun.delivery.line = None
                self._remove(begun, None)
        self._stop_waiting(session)
        self._metrics.sessions_resumed.inc()
        await session.returned()

    async def _carry(self, line: Line) -> None:
        try:
            await line.run(self.resume)
        finally:
            if line.session is not None and line.session.delivery.line is line:
                self._detach(line.session, line)

    async def _live(self, session: SessionActor) -> None:
        # Not after the long prompts of the same key; what is spoken is live where it is transcribed.
        LANE.set(Lane("interactive", caller=f"live {session.turns.caller}"))
        await session.run()
        has_last_words = session.delivery.closing is not None and session.can_resume
        if session.delivery.line is None and not (has_last_words and session.id in self._detached):
            self._remove(session, "lost")

    def _detach(self, session: SessionActor, line: Line) -> None:
        session.detach()
        if line.closed_cleanly or self._grace_s <= 0 or not session.can_resume or self._nursery is None:
            self._remove(session, "client")
            return
        if len(self._detached) >= self._max_detached:
            self._remove(self._to_give_way(session.caller), "lost")
        grace_s = min(self._grace_s, _GOING_S) if line.went_away else self._grace_s
        scope = trio.CancelScope(deadline=trio.current_time() + grace_s)
        self._detached[session.id] = scope
        self._nursery.start_soon(self._wait, session, scope)

    def _to_give_way(self, caller: Caller) -> SessionActor:
        """Which of the detached sessions ends when one more of `caller` is to wait."""
        waiting = [self._sessions[session_id] for session_id in self._detached]
        held = Counter([caller, *(session.caller for session in waiting)])
        loser = greediest(held, caller)
        return next((session for session in waiting if session.caller == loser), waiting[0])

    async def _wait(self, session: SessionActor, scope: trio.CancelScope) -> None:
        with scope:
            await trio.sleep_forever()
        if self._detached.get(session.id) is scope:
            logger.info("session %s: the client did not come back", session.id)
            self._remove(session, "lost")

    def _stop_waiting(self, session: SessionActor) -> None:
        scope = self._detached.pop(session.id, None)
        if scope is not None:
            scope.cancel()

    def _remove(self, session: SessionActor, why: str | None) -> None:
        """Drop a session. `why` counts it where it did not close by itself; None does not count it."""
        self._stop_waiting(session)
        session.end()
        if self._sessions.pop(session.id, None) is None:
            return
        self._metrics.sessions_active.dec()
        if why is not None:
            code = why if session.delivery.closing is None else str(session.delivery.closing[0])
            self._metrics.sessions.labels(code).inc()
        self._on_end()
