"""Limits of time: a warning before each, then the end; any event puts off the idle one."""

from __future__ import annotations

import math
from typing import Any

import pytest
from sensorium.realtime.events import ClientReturned, DrainStarted
from sensorium.realtime.lifetime import Lifetime, Notice
from support.dialogs import Dialog, config


def opened(**changes: object) -> Lifetime:
    lifetime = Lifetime(config(**changes))
    lifetime.open(0.0)
    return lifetime


def test_nothing_is_due_before_it_is_opened() -> None:
    assert Lifetime(config()).deadline == math.inf


def test_a_long_limit_warns_a_minute_before() -> None:
    lifetime = opened(max_session_s=3600.0, idle_s=1e9)
    assert lifetime.deadline == 3540.0
    assert lifetime.due(3539.9) == []
    assert lifetime.due(3540.0) == [Notice("session_expired", 60.0)]
    assert lifetime.deadline == 3600.0
    assert lifetime.due(3599.0) == []
    assert lifetime.due(3600.0) == [Notice("session_expired", 0.0)]


def test_a_short_limit_warns_half_way_and_again_after_every_event() -> None:
    lifetime = opened(idle_s=10.0)
    for _ in range(3):
        now = lifetime.deadline
        assert lifetime.due(now) == [Notice("session_idle", 5.0)]
        lifetime.touch(now + 1.0)
        assert lifetime.deadline == now + 6.0


def test_both_warnings_at_the_same_moment_are_given() -> None:
    lifetime = opened(max_session_s=10.0, idle_s=10.0)
    assert lifetime.due(5.0) == [Notice("session_expired", 5.0), Notice("session_idle", 5.0)]
    assert lifetime.due(10.0) == [Notice("session_expired", 0.0)], "there is one end"


def test_a_drain_is_announced_once_and_not_prolonged() -> None:
    lifetime = opened(drain_s=4.0)
    assert not lifetime.draining
    assert lifetime.drain(1.0) == Notice("server_draining", 4.0)
    assert lifetime.drain(3.0) is None
    lifetime.touch(4.0)
    assert lifetime.due(4.9) == []
    assert lifetime.due(5.0) == [Notice("server_draining", 0.0)]


def test_a_drain_hears_until_it_is_quiet_or_time_to_answer() -> None:
    lifetime = opened(drain_s=10.0)
    lifetime.sounded(0.5)
    assert lifetime.may_receive_audio(100.0)
    lifetime.drain(1.0)
    assert lifetime.deadline == 2.0
    assert lifetime.may_receive_audio(1.9)
    assert not lifetime.may_receive_audio(2.0)
    for now in range(2, 9):
        lifetime.sounded(now)
        assert lifetime.may_receive_audio(now + 0.9) == (now + 0.9 < 9.0)
    assert lifetime.deadline == 9.0
    lifetime.stop_audio()
    assert lifetime.refuses_audio
    assert lifetime.deadline == 11.0
    lifetime.sounded(9.5)
    assert lifetime.deadline == 11.0
    short = opened(drain_s=1.0)
    short.drain(0.0)
    assert short.deadline == 0.5, "half of it is for the answer"


@pytest.mark.parametrize(
    ("limit", "code"), [("idle_s", "session_idle"), ("max_session_s", "session_expired")]
)
def test_clients_are_warned_then_told_then_closed(limit: str, code: str) -> None:
    changes: dict[str, Any] = {limit: 120.0}
    dialog = Dialog(**changes)
    dialog.wait(60.0)
    (warning,) = dialog.read()
    assert (warning["type"], warning["reason"], warning["seconds_left"]) == ("session.expiring", code, 60.0)
    assert "session.expiring" in dialog.sent[0]["session"]["capabilities"]
    dialog.wait(60.0)
    (error,) = dialog.read()
    assert error["error"]["code"] == code
    assert dialog.close_code() == 1008


def test_a_client_that_returns_is_not_idle() -> None:
    dialog = Dialog(idle_s=10.0)
    dialog.wait(9.0)
    dialog.receive(ClientReturned())
    dialog.wait(9.0)
    assert dialog.close_code() is None


def test_draining_warns_before_the_turn_is_finished() -> None:
    dialog = Dialog()
    dialog.speak(320)
    dialog.read()
    dialog.receive(DrainStarted())
    dialog.wait(1.1)
    assert dialog.names()[:2] == ["session.expiring", "speech_stopped"]


def test_a_session_lasts_for_hours_by_default() -> None:
    dialog = Dialog()
    for _ in range(100):
        dialog.wait(500.0)
        dialog.silence(32)
    assert dialog.close_code() is None
