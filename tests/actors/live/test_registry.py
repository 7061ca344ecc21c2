"""Sessions that lose their sockets: what goes on, what is kept and for how long, who may go on with them."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import trio
from support.fake_sessions import Event, FakeSocket, Sessions, resume_event
from support.footprint import footprint
from trio.testing import MockClock, wait_all_tasks_blocked

UPDATE: Event = {
    "type": "session.update",
    "session": {
        "type": "transcription",
        "audio": {"input": {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}},
    },
}
COMMIT: Event = {"type": "input_audio_buffer.commit"}
CLEAR: Event = {"type": "input_audio_buffer.clear"}
SPOKEN: list[Event | bytes] = [
    UPDATE,
    bytes(16_000),
    bytes(4_000),
    COMMIT,
    bytes(16_000),
    CLEAR,
    bytes(32_000),
    COMMIT,
]


def stream(*sockets: FakeSocket) -> tuple[list[Event], list[Event]]:
    """One session's numbered events as its client saw them, without ids that differ from run to run.

    What answers the client's events, and the transcripts: which of them is first is a matter of time.
    """
    events = [event for event in sockets[0].received if event["server_event_seq"]]
    for socket in sockets[1:]:
        start = socket.names().index("session.resumed")
        events += [event for event in socket.received[start:] if event["server_event_seq"]]
    assert [event.pop("server_event_seq") for event in events] == list(range(1, len(events) + 1))
    items: dict[str, str] = {}
    for event in events:
        event.pop("event_id")
        event.pop("session", None)
        event.pop("id", None)
        event.pop("created", None)
        for key in ("item_id", "previous_item_id"):
            if event.get(key):
                event[key] = items.setdefault(event[key], f"item {len(items)}")
        if "item" in event:
            event["item"]["id"] = items.setdefault(event["item"]["id"], f"item {len(items)}")
    return (
        [event for event in events if "transcription" not in event["type"]],
        [event for event in events if "transcription" in event["type"]],
    )


async def uninterrupted() -> tuple[list[Event], list[Event]]:
    sessions = Sessions()
    async with sessions.running() as nursery:
        socket = await sessions.connect(nursery)
        socket.client_sends(*SPOKEN)
        await trio.sleep(5)
        return stream(socket)


@pytest.mark.parametrize("num_lost", [0, 2])
async def test_a_stream_that_is_cut_anywhere_is_the_stream_that_is_not(
    autojump_clock: MockClock, num_lost: int
) -> None:
    """Cut after each frame; the last `num_lost` frames and events before the cut do not arrive."""
    expected = await uninterrupted()
    assert sum(event["type"].endswith("completed") for event in expected[1]) == 2
    for cut in range(len(SPOKEN) + 1):
        sessions = Sessions()
        async with sessions.running() as nursery:
            first = await sessions.connect(nursery)
            first.client_sends(*SPOKEN[: max(0, cut - num_lost)])
            await trio.sleep(0.05 * (cut % 4))
            del first.received[max(1, len(first.received) - num_lost) :]
            first.vanish()
            await trio.sleep(0.3 * (cut % 3))
            second = await sessions.resume(nursery, resume_event(first, len(first.received)))
            (resumed,) = second.of("session.resumed")
            assert resumed["received_events"] == max(0, cut - num_lost)
            arrived = SPOKEN[: resumed["received_events"]]
            assert resumed["received_audio_bytes"] == sum(
                len(each) for each in arrived if isinstance(each, bytes)
            )
            second.client_sends(*SPOKEN[resumed["received_events"] :])
            await trio.sleep(5)
            assert stream(first, second) == expected
            assert len(sessions.registry) == 1
            assert sessions.value("sessions_resumed_total") == 1


async def test_a_client_that_says_goodbye_is_not_waited_for(autojump_clock: MockClock) -> None:
    sessions = Sessions()
    async with sessions.running() as nursery:
        socket = await sessions.connect(nursery)
        assert len(sessions.registry) == sessions.value("sessions_active") == 1
        socket.leave()
        await wait_all_tasks_blocked()
        assert len(sessions.registry) == sessions.value("sessions_active") == 0
        assert sessions.value("sessions_total", code="client") == sessions.num_ended == 1


async def test_after_the_grace_everything_is_given_back(autojump_clock: MockClock) -> None:
    sessions = Sessions(grace_s=10.0)
    async with sessions.running() as nursery:
        socket = await sessions.connect(nursery)
        socket.client_sends(*SPOKEN[:2])
        socket.vanish()
        await trio.sleep(9.9)
        assert sessions.registry.num_detached == sessions.value("sessions_detached") == 1
        await trio.sleep(0.2)
        assert len(sessions.registry) == sessions.value("sessions_detached") == 0
        assert sessions.value("sessions_total", code="lost") == 1
        assert sessions.model.num_held == 0
        late = await sessions.resume(nursery, resume_event(socket, 1))
        assert late.of("error")[0]["error"]["code"] == "session_not_found"


async def test_a_client_whose_proxy_goes_away_is_waited_for_briefly(autojump_clock: MockClock) -> None:
    """It may also be a page that was left, which nobody should find the server full for."""
    async with (sessions := Sessions(grace_s=10.0)).running() as nursery:
        for waited_s, num_left in ((4.9, 1), (5.1, 0)):
            socket = await sessions.connect(nursery)
            socket.went_away = True
            socket.vanish()
            await trio.sleep(waited_s)
            assert len(sessions.registry) == num_left
            await trio.sleep(1)


async def test_a_detached_session_answers_and_then_keeps_nothing_in_the_engine(
    autojump_clock: MockClock,
) -> None:
    sessions = Sessions(work_s=2.0)
    async with sessions.running() as nursery:
        socket = await sessions.connect(nursery)
        socket.client_sends(UPDATE, bytes(32_000), COMMIT, bytes(16_000))
        await trio.sleep(1.0)
        assert sessions.model.num_held == 1
        socket.vanish()
        await trio.sleep(2.0)
        assert sessions.model.num_held == 0
        again = await sessions.resume(nursery, resume_event(socket, len(socket.received)))
        assert [event["transcript"] for event in again.of("completed")] == ["from 0 to 16000"]
        again.client_sends(COMMIT)
        await trio.sleep(3.0)
        assert [event["transcript"] for event in again.of("completed")][1:] == ["from 16000 to 24000"]


@pytest.mark.parametrize("is_requested", [True, False])
async def test_a_turn_that_nobody_goes_on_with_is_parked_and_goes_on_exactly(
    autojump_clock: MockClock, is_requested: bool
) -> None:
    """Cut in the middle of a sentence, while a hypothesis is computed or between two."""
    loud = (np.ones(16_000, np.int16) * 8_000).tobytes()
    sessions = Sessions(work_s=1.0)
    async with sessions.running() as nursery:
        socket = await sessions.connect(nursery)
        socket.client_sends(UPDATE, loud)
        await trio.sleep(0.5 if is_requested else 5.0)
        assert sessions.model.num_held == 1
        socket.vanish()
        await trio.sleep(0.1)
        assert sessions.model.num_held == is_requested
        await trio.sleep(2)
        assert sessions.model.num_held == 0
        again = await sessions.resume(nursery, resume_event(socket, len(socket.received)))
        again.client_sends(loud)
        await trio.sleep(5)
        assert sessions.model.num_held == 1
        again.client_sends(COMMIT)
        await trio.sleep(3)
        assert [event["transcript"] for event in again.of("completed")] == ["from 0 to 32000"]


async def test_coming_back_is_not_being_idle(autojump_clock: MockClock) -> None:
    sessions = Sessions(idle_s=20.0)
    async with sessions.running() as nursery:
        socket = await sessions.connect(nursery)
        await trio.sleep(5)
        socket.vanish()
        await trio.sleep(14)
        again = await sessions.resume(nursery, resume_event(socket, 2))
        await trio.sleep(19)
        assert again.closed is None
        await trio.sleep(2)
        assert again.closed == (1008, "session_idle")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"token": "another"}, "invalid_resume_token"),
        ({"session_id": "sess_another"}, "session_not_found"),
        ({"after_seq": 100}, "invalid_value"),
    ],
)
async def test_a_wrong_wish_is_refused_and_changes_nothing(
    autojump_clock: MockClock, changes: Event, code: str
) -> None:
    sessions = Sessions()
    async with sessions.running() as nursery:
        socket = await sessions.connect(nursery)
        other = await sessions.resume(nursery, resume_event(socket, 1) | changes | {"event_id": "mine"})
        await trio.sleep(3)
        assert other.of("error")[0]["error"]["event_id"] == "mine"
        assert other.of("error")[0]["error"]["code"] == code
        assert other.of("error")[0]["server_event_seq"] == 0
        assert other.closed is not None
        assert other.closed[0] == 1008
        socket.client_sends(UPDATE)
        await wait_all_tasks_blocked()
        assert socket.names() == ["session.created", "session.updated"]
        assert len(sessions.registry) == 1


async def test_the_newest_socket_takes_the_session_over(autojump_clock: MockClock) -> None:
    sessions = Sessions()
    async with sessions.running() as nursery:
        old = await sessions.connect(nursery)
        old.client_sends(UPDATE)
        await wait_all_tasks_blocked()
        new = await sessions.resume(nursery, resume_event(old, 2))
        await trio.sleep(3)
        assert old.closed == (1008, "the session was resumed on another connection")
        new.client_sends(UPDATE)
        await wait_all_tasks_blocked()
        assert new.names() == ["session.created", "session.resumed", "session.updated"]
        assert len(sessions.registry) == 1
        again = await sessions.resume(nursery, resume_event(old, 2))
        assert again.names()[-1] == "session.updated", "replayed"


async def test_a_resume_does_not_wait_for_a_line_that_nobody_reads(autojump_clock: MockClock) -> None:
    sessions = Sessions()
    async with sessions.running() as nursery:
        old = await sessions.connect(nursery)
        old.stall()
        old.client_sends(*[UPDATE] * 900)
        await wait_all_tasks_blocked()
        (session,) = sessions.registry._sessions.values()
        assert session.num_events < 900, "what is said finds no room, so nothing more is taken in"
        new = await sessions.resume(nursery, resume_event(old, session.delivery.last_seq))
        assert new.names()[:2] == ["session.created", "session.resumed"]


async def test_a_resume_in_the_middle_of_a_session_is_an_error_event(autojump_clock: MockClock) -> None:
    sessions = Sessions()
    async with sessions.running() as nursery:
        first, second = await sessions.connect(nursery), await sessions.connect(nursery)
        second.client_sends(UPDATE)
        late = {"type": "session.resume", "session_id": first.received[0]["id"], "token": "x", "after_seq": 0}
        second.client_sends(late | {"event_id": "mine"})
        await wait_all_tasks_blocked()
        error = second.of("error")[0]["error"]
        assert (error["code"], error["event_id"]) == ("unexpected_event", "mine")
        assert len(sessions.registry) == 2


async def test_a_session_that_said_more_than_is_kept_ends(autojump_clock: MockClock) -> None:
    sessions = Sessions(replay_events=3, work_s=1.0)
    async with sessions.running() as nursery:
        socket = await sessions.connect(nursery)
        socket.client_sends(UPDATE, bytes(16_000), COMMIT, bytes(16_000), COMMIT)
        socket.vanish()
        await wait_all_tasks_blocked()
        assert len(sessions.registry) == 1
        await trio.sleep(2.0)
        assert len(sessions.registry) == 0
        assert sessions.model.num_held == 0


async def test_too_many_lost_sessions_end_the_one_that_waited_longest(autojump_clock: MockClock) -> None:
    sessions = Sessions(max_detached=2)
    async with sessions.running() as nursery:
        sockets = [await sessions.connect(nursery) for _ in range(4)]
        for socket in sockets[:3]:
            socket.vanish()
            await trio.sleep(1)
        assert sessions.registry.num_detached == 2
        assert len(sessions.registry) == 3
        assert (await sessions.resume(nursery, resume_event(sockets[0], 1))).of("error")
        assert (await sessions.resume(nursery, resume_event(sockets[1], 1))).of("session.resumed")


async def test_a_drained_session_keeps_its_last_words_for_a_lost_client(autojump_clock: MockClock) -> None:
    sessions = Sessions(work_s=1.0)
    async with sessions.running() as nursery:
        socket = await sessions.connect(nursery)
        socket.client_sends(*SPOKEN[:4])
        await wait_all_tasks_blocked()
        socket.vanish()
        await wait_all_tasks_blocked()
        for session in sessions.registry:
            session.drain()
        await trio.sleep(5)
        again = await sessions.resume(nursery, resume_event(socket, len(socket.received)))
        await trio.sleep(5)
        kinds = [name.rsplit(".", 1)[-1] for name in again.names()]
        assert kinds[-4:] == ["expiring", "delta", "completed", "error"]
        assert again.closed is not None
        assert again.closed[0] == 1012
        assert len(sessions.registry) == 0


async def test_a_close_that_nobody_answers_was_not_read(autojump_clock: MockClock) -> None:
    sessions = Sessions(max_session_s=10.0, work_s=1.0)
    async with sessions.running() as nursery:
        socket = await sessions.connect(nursery)
        socket.client_sends(*SPOKEN[:4])
        await wait_all_tasks_blocked()
        socket.is_dead = True
        await trio.sleep(20)
        assert sessions.registry.num_detached == 1
        again = await sessions.resume(nursery, resume_event(socket, len(socket.received)))
        await trio.sleep(1)
        assert [name.rsplit(".", 1)[-1] for name in again.names()][2:] == [
            "delta",
            "completed",
            "expiring",
            "error",
        ]
        assert again.closed is not None
        assert again.closed[0] == 1008
        assert len(sessions.registry) == 0


async def test_many_turns_and_many_sockets_leave_nothing_behind(autojump_clock: MockClock) -> None:
    """What a session holds after 200 turns and 50 lost sockets is what it holds after one."""
    sessions = Sessions()
    async with sessions.running() as nursery:
        socket = first = await sessions.connect(nursery)
        socket.client_sends(UPDATE)
        (session,) = sessions.registry
        for number in range(200):
            socket.client_sends(bytes(8_000), COMMIT)
            await trio.sleep(0.5)
            if number % 4 == 0:
                socket.vanish()
                await trio.sleep(0.5)
                last = max(event["server_event_seq"] for event in socket.received)
                socket = await sessions.resume(nursery, resume_event(first, last))
        assert session.num_events == 401
        assert sessions.value("sessions_resumed_total") == 50
        assert sessions.registry.num_detached == sessions.model.num_held == session.turns.num_tracked == 0
        assert footprint(session, leave_out=[sessions]).num_bytes < 500_000
        await trio.sleep(10)
        assert len(nursery.child_tasks) == 2, "the registry and the newest socket"


async def test_an_ended_session_leaves_nothing_to_the_garbage_collector(autojump_clock: MockClock) -> None:
    """A full collection holds the loop, and hundreds of objects of each session bring it about."""
    sessions = Sessions()
    async with sessions.running() as nursery:
        gc.collect()
        gc.disable()
        try:
            socket = await sessions.connect(nursery)
            (session,) = map(weakref.ref, sessions.registry)
            socket.client_sends(*SPOKEN)
            await trio.sleep(5)
            socket.leave()
            await wait_all_tasks_blocked()
            assert session() is None
        finally:
            gc.enable()


async def test_without_a_grace_a_lost_socket_ends_its_session(autojump_clock: MockClock) -> None:
    sessions = Sessions(grace_s=0.0)
    async with sessions.running() as nursery:
        socket = await sessions.connect(nursery)
        socket.vanish()
        await wait_all_tasks_blocked()
        assert len(sessions.registry) == 0


async def test_metrics_show_how_much_less_often_partials_are_asked_for(autojump_clock: MockClock) -> None:
    loud = (np.ones(16_000, np.int16) * 8_000).tobytes()
    sessions = Sessions(work_s=3.0)
    assert sessions.value("partial_interval_factor") == 1.0
    async with sessions.running() as nursery:
        socket = await sessions.connect(nursery)
        socket.client_sends(UPDATE)
        for _ in range(10):
            socket.client_sends(loud)
            await trio.sleep(1)
        assert sessions.value("partial_interval_factor") > 1.0
        assert sessions.value("partial_lag_seconds") == pytest.approx(3.0)
    assert sessions.value("partial_interval_factor") == 1.0
