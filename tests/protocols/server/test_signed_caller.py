"""What a gateway signs, a server with the same secret believes, for that request and for a while."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.server.signed_caller import (
    MAX_AGE_S,
    InvalidCallerError,
    SignedCaller,
    sign,
    verify,
)

SECRET, OTHER = b"sixteen letters.", b"other letters..."
DIGEST = hashlib.sha256(b"sk-1").hexdigest()
NOW_S = 1_767_225_600.0
ALICE = SignedCaller("192.0.2.7", DIGEST)
CALLERS = [ALICE, SignedCaller("2001:db8::7"), SignedCaller("::ffff:192.0.2.7", DIGEST)]


def signed(caller: SignedCaller = ALICE, secret: bytes = SECRET) -> bytes:
    return sign(caller, secret, now_s=NOW_S, method=b"POST", target=b"/v1/responses")


def verified(
    value: bytes, *, now_s: float = NOW_S, method: bytes = b"POST", target: bytes = b"/v1/responses"
) -> object:
    return verify(value, SECRET, now_s=now_s, method=method, target=target)


@pytest.mark.parametrize("caller", CALLERS)
def test_what_was_signed_is_read_back(caller: SignedCaller) -> None:
    assert verified(signed(caller)) == caller
    for late_s in (-MAX_AGE_S, MAX_AGE_S):
        assert verified(signed(caller), now_s=NOW_S + late_s) == caller


@pytest.mark.parametrize("late_s", [-MAX_AGE_S - 1, MAX_AGE_S + 1])
def test_it_holds_for_a_while(late_s: float) -> None:
    with pytest.raises(InvalidCallerError, match="clocks"):
        verified(signed(), now_s=NOW_S + late_s)


def test_it_holds_for_one_request_and_one_secret() -> None:
    wrongs: tuple[Callable[[], object], ...] = (
        lambda: verified(signed(secret=OTHER)),
        lambda: verified(signed(), method=b"GET"),
        lambda: verified(signed(), target=b"/v1/responses?x"),
    )
    for wrong in wrongs:
        with pytest.raises(InvalidCallerError, match="another secret"):
            wrong()


@given(st.data())
def test_no_changed_byte_is_believed(data: st.DataObject) -> None:
    value = bytearray(signed())
    place = data.draw(st.integers(0, len(value) - 1))
    value[place] = data.draw(st.integers(0, 255).filter(lambda byte: byte != value[place]))
    with pytest.raises(InvalidCallerError):
        verified(bytes(value))


@pytest.mark.parametrize("value", [b"", b"v1", signed() + b", " + signed(), re.sub(b"v1", b"v2", signed())])
def test_what_has_another_form_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidCallerError, match="malformed"):
        verified(value)
