"""What a client is told of an error that was not meant for clients, and what the log keeps of it."""

from __future__ import annotations

import errno

import pytest
from sensorium.actors.http.error_bodies import shown
from sensorium.protocols.errors import BadRequestError


@pytest.mark.parametrize(
    "error",
    [MemoryError(), OSError(errno.ENOMEM, "Cannot allocate memory"), OSError(errno.EMFILE, "Too many")],
)
def test_what_the_machine_lacks_is_no_defect(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    body = shown(error, "POST /v1/x")
    assert (body.status, body.code) == (503, "overloaded")
    assert body.retry_after_s
    (line,) = caplog.records
    assert "POST /v1/x failed" in line.message
    assert line.exc_info is None


def test_a_defect_is_ours_and_its_traceback_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    body = shown(OSError(errno.EIO, "a secret path"), "POST /v1/x")
    assert body.status == 500
    assert "secret" not in body.message
    assert caplog.records[0].exc_info


def test_what_is_meant_for_clients_is_told_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    error = BadRequestError("no")
    assert shown(error, "POST /v1/x") is error
    assert not caplog.records


def test_what_led_to_an_error_holds_no_frames() -> None:
    """They hold the request's media, and a reference cycle may hold them."""
    try:
        try:
            raise ExceptionGroup("", [ValueError("of one"), OSError("of another")])
        except ExceptionGroup as group:
            raise BadRequestError("no") from group
    except BadRequestError as error:
        caught = error
    cause = caught.__cause__
    assert isinstance(cause, ExceptionGroup)
    assert cause.__traceback__ is not None
    shown(caught, "POST /v1/x")
    assert caught.__traceback__ is None
    assert cause.__traceback__ is None
