"""What is left of a conversation that is too long."""

from __future__ import annotations

import itertools

import pytest
from sensorium.actors.http.responses.shape import truncations
from sensorium.protocols.chat.content import ChatMessage, Role

USERS: list[Role] = ["user"] * 30


def messages_of(*roles: Role) -> tuple[ChatMessage, ...]:
    return tuple(ChatMessage(role=role, content=str(n), extra={}, param="") for n, role in enumerate(roles))


@pytest.mark.parametrize("num_turns", range(1, 20))
def test_the_oldest_turns_go_whole_and_the_newest_and_the_system_stay(num_turns: int) -> None:
    turn: tuple[Role, ...] = ("user", "assistant", "tool", "assistant")
    messages = messages_of("system", *(turn * (num_turns - 1)), "user")
    found = truncations(messages)
    assert found[0] == messages
    assert found[-1] == (messages[0], messages[-1])
    for longer, shorter in itertools.pairwise(found):
        assert len(shorter) < len(longer)
        assert shorter[0] == messages[0]
        assert shorter[1:] == messages[-len(shorter) + 1 :]
        assert shorter[1].role == "user"


def test_where_nobody_asked_nothing_goes() -> None:
    assert truncations(messages_of("system", "assistant")) == [messages_of("system", "assistant")]


def test_a_conversation_that_grows_begins_with_the_same_turn_for_long() -> None:
    """As the second to go of those of 20 turns and of 30."""
    short, long = truncations(messages_of(*USERS[:20])), truncations(messages_of(*USERS))
    assert short[3][0] == long[3][0]
