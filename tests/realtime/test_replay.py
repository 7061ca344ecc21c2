"""Whatever is dropped, whenever: a resumed stream is the uninterrupted one, or resuming is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sensorium.protocols.errors import BadRequestError, ClientError
from sensorium.realtime.replay import Replay


def filled(num_events: int, *, max_events: int = 8, max_bytes: int = 1000) -> Replay:
    replay = Replay(max_events=max_events, max_bytes=max_bytes)
    for number in range(1, num_events + 1):
        replay.record(f"event {number}")
    return replay


def test_a_client_gets_what_it_has_not_seen() -> None:
    replay = filled(5)
    replay.detach()
    replay.record("event 6")
    assert replay.since(4) == ["event 5", "event 6"]
    assert replay.since(6) == []
    assert replay.since(0) == [f"event {number}" for number in range(1, 7)]


def test_what_is_not_kept_is_a_gap_and_what_never_was_an_error() -> None:
    replay = filled(20)
    assert replay.first_seq == 13
    assert replay.since(12)[0] == "event 13"
    with pytest.raises(ClientError) as gap:
        replay.since(11)
    assert gap.value.code == "resume_gap"
    with pytest.raises(BadRequestError) as future:
        replay.since(21)
    assert future.value.param == "after_seq"


def test_it_stays_intact_for_as_long_as_everything_unsent_is_kept() -> None:
    replay = filled(20)
    replay.detach()
    for _ in range(8):
        replay.record("x")
        assert replay.intact
    replay.record("x")
    assert not replay.intact


def test_bytes_are_bounded_too_even_for_one_event() -> None:
    replay = filled(3, max_bytes=30)
    replay.record("x" * 31)
    assert replay.first_seq == replay.last_seq + 1 == 5
    replay.record("y")
    assert replay.since(4) == ["y"]


class LostClients(RuleBasedStateMachine):
    """A session, and a client whose connections break; what was on its way then is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.replay = Replay(max_events=6, max_bytes=40)
        self.sent: list[str] = []
        self.received: list[str] = []
        self.on_the_way: list[str] | None = []

    @rule(length=st.integers(1, 15))
    def send(self, length: int) -> None:
        frame = f"{len(self.sent)}".ljust(length, ".")
        self.sent.append(frame)
        self.replay.record(frame)
        if self.on_the_way is not None:
            self.on_the_way.append(frame)

    @precondition(lambda self: self.on_the_way is not None)
    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        assert self.on_the_way is not None
        count = data.draw(st.integers(0, len(self.on_the_way)))
        self.received += self.on_the_way[:count]
        del self.on_the_way[:count]

    @rule()
    def lose(self) -> None:
        self.on_the_way = None
        self.replay.detach()

    @rule()
    def resume(self) -> None:
        """Also without a loss that the server would know of: the newest connection wins."""
        try:
            self.on_the_way = self.replay.since(len(self.received))
        except ClientError:
            assert len(self.received) + 1 < self.replay.first_seq
            self.received = list(self.sent)  # it begins another session
            self.on_the_way = self.replay.since(len(self.received))
        self.replay.attach()
        assert self.replay.intact

    @invariant()
    def received_frames_equal_sent_frames(self) -> None:
        self.replay.check()
        assert self.received == self.sent[: len(self.received)]
        if self.on_the_way is not None:
            assert self.received + self.on_the_way == self.sent


TestLostClients = LostClients.TestCase


@given(st.integers(0, 30), st.integers(0, 30))
def test_every_number_gives_the_rest_or_an_error(num_events: int, after_seq: int) -> None:
    replay = filled(num_events)
    try:
        frames = replay.since(after_seq)
    except ClientError:
        assert after_seq > num_events or after_seq < num_events - 8
    else:
        assert frames == [f"event {number}" for number in range(after_seq + 1, num_events + 1)]
