"""What becomes of an answer that failed alone: whose fault it is decides, never what the message says."""

from __future__ import annotations

from typing import get_args

import pytest
from sensorium.actors.inference.client import check_answer
from sensorium.protocols.engine.messages import Fault, FinishReason, RequestId, TextGenerated
from sensorium.protocols.errors import BadRequestError, InternalError, UnavailableError


def answer(reason: FinishReason, fault: Fault | None = None) -> TextGenerated:
    return TextGenerated(RequestId("a"), (), finish_reason=reason, error="of tokens: none", fault=fault)


@pytest.mark.parametrize("fault", get_args(Fault))
def test_rules_that_leave_nothing_to_say_are_the_clients_fault_and_nothing_else_is(
    fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    if fault in ("no_token", "cannot_follow"):
        with pytest.raises(BadRequestError, match="cannot continue: of tokens: none") as caught:
            check_answer(answer("error", fault))
        assert caught.value.code == "no_possible_token"
        assert not caplog.records
    else:
        with pytest.raises(InternalError, match="of tokens: none"):
            check_answer(answer("error", fault))
        assert "of tokens: none" in caplog.text, "an operator who sees the 500 learns why"


def test_other_ends() -> None:
    with pytest.raises(UnavailableError):
        check_answer(answer("abort"))
    check_answer(answer("stop"))
    check_answer(answer("length"))
