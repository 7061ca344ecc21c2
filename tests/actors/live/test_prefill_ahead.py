"""What is read while nobody asks: of each kind the newest wish, and what an answer stops of it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from sensorium.actors.inference.client import OutcomeRun, Run
from sensorium.actors.live.conversation_media import SessionMedia
from sensorium.actors.live.prefill_ahead import ReadingAhead
from sensorium.actors.live.responses import LiveAnswers
from sensorium.engine.models.prompts import Prompt
from sensorium.protocols.chat.request import Conversation
from sensorium.protocols.engine.messages import INTERACTIVE, AnyRequest, Outcome, Prefilled
from sensorium.protocols.errors import InternalError
from sensorium.realtime.dialogue.effects import HasReadAhead, ReadAhead, Warm
from trio.testing import wait_all_tasks_blocked


class Desk:
    """An engine that reads when it is told to, and what is asked of it."""

    def __init__(self) -> None:
        self.requests: list[AnyRequest] = []
        self.answers: dict[str, trio.Event] = {}
        self.reports: list[int] = []
        self.num_stops = 0
        self.broken = False
        media: Any = SimpleNamespace(placed=self.placed, video=SimpleNamespace(snapshot=lambda clips: clips))
        self.names = iter("abcdefgh")
        self.reading = ReadingAhead(
            cast(SessionMedia, media),
            self.report,
            session_id="s",
            lane=INTERACTIVE,
            cache_salt="",
            new_name=lambda: next(self.names),
        )

    @asynccontextmanager
    async def placed(
        self, conversation: Conversation, lane: object, snapshot: object
    ) -> AsyncIterator[tuple[Desk, Prompt]]:
        if self.broken:
            raise InternalError("broken")
        yield self, Prompt(token_ids=(1,))

    @asynccontextmanager
    async def run(self, request: AnyRequest) -> AsyncIterator[Run[Outcome]]:
        yield OutcomeRun(partial(self.perform, request))

    async def perform(self, request: AnyRequest) -> Outcome:
        self.requests.append(request)
        kind = "ahead" if request.session is None else "now"
        assert kind not in self.answers, "one of a kind at a time"
        self.answers[kind] = event = trio.Event()
        try:
            await event.wait()
        finally:
            del self.answers[kind]
        return Prefilled(request.request_id)

    async def report(self, fact: HasReadAhead) -> None:
        self.reports.append(fact.plan)

    def stop(self) -> None:
        self.num_stops += 1

    async def answer(self, kind: str) -> None:
        self.answers[kind].set()
        await wait_all_tasks_blocked()

    @property
    def open(self) -> list[str]:
        return sorted(self.answers)


TALK = Conversation(messages=(), template_kwargs={})


def ahead(plan: int) -> ReadAhead:
    return ReadAhead(plan, TALK, ())


async def test_of_each_kind_the_newest_wish_counts() -> None:
    desk = Desk()
    async with trio.open_nursery() as nursery:
        for plan in (1, 2, 3):
            desk.reading.request(Warm(TALK, ()), nursery, desk.stop)
            desk.reading.request(ahead(plan), nursery, desk.stop)
            await wait_all_tasks_blocked()
        assert desk.open == ["ahead", "now"]
        assert {request.session for request in desk.requests} == {"s", None}
        assert {request.lane.service for request in desk.requests} == {"batch"}
        await desk.answer("ahead")
        assert desk.reports == [], "a newer wish waits: it is little more"
        await desk.answer("ahead")
        assert desk.reports == [3]
        await desk.answer("now")
        await desk.answer("now")
        assert (desk.open, len(desk.requests)) == ([], 4)
        assert (desk.reading.is_running, desk.num_stops) == (False, 2)


async def test_an_answer_stops_only_what_is_the_sessions() -> None:
    desk = Desk()
    async with trio.open_nursery() as nursery:
        desk.reading.request(Warm(TALK, ()), nursery, desk.stop)
        desk.reading.request(ahead(1), nursery, desk.stop)
        await wait_all_tasks_blocked()
        desk.reading.request(Warm(TALK, ()), nursery, desk.stop)
        desk.reading.make_way()
        await wait_all_tasks_blocked()
        assert desk.open == ["ahead"]
        desk.reading.request(Warm(TALK, ()), nursery, desk.stop)
        await wait_all_tasks_blocked()
        assert desk.open == ["ahead", "now"]
        desk.reading.stop()
        await wait_all_tasks_blocked()
        assert (desk.open, desk.reading.is_running, desk.reports) == ([], False, [])


async def test_what_cannot_be_read_is_not_said_to_be(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.broken = True
    async with trio.open_nursery() as nursery:
        desk.reading.request(ahead(1), nursery, desk.stop)
    assert (desk.reports, desk.num_stops) == ([], 1)


async def test_the_answers_of_a_session_leave_nothing_to_the_garbage_collector() -> None:
    prompter = SimpleNamespace(opened=bool, open_frame=bool, paired=bool)
    model: Any = SimpleNamespace(engine=SimpleNamespace(close_session=bool), prompter=prompter)

    async def report(fact: object) -> None:
        pass

    gc.disable()
    try:
        made = LiveAnswers(model, report, session_id="s", lane=INTERACTIVE, cache_salt="", num_frames=8)
        answers = weakref.ref(made)
        made.close()
        del made
        assert answers() is None
    finally:
        gc.enable()
