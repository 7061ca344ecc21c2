"""What is long is told by what a template has to write: text, and messages."""

from __future__ import annotations

import pytest
from sensorium.engine.text.chat_size import is_short
from sensorium.protocols.chat.content import ChatMessage
from sensorium.protocols.chat.request import Conversation


@pytest.mark.parametrize(
    ("num_messages", "num_chars", "expected"),
    [(1, 100, True), (1, 2000, False), (60, 1, True), (60, 100, False), (700, 1, False)],
)
def test_many_messages_are_long_however_short_each_is(
    num_messages: int, num_chars: int, *, expected: bool
) -> None:
    """Seven hundred of a letter took 6 ms."""
    message = ChatMessage(role="user", content="a" * num_chars, extra={}, param="")
    talk = Conversation(messages=(message,) * num_messages, template_kwargs={})
    assert is_short(talk, 2000) is expected
