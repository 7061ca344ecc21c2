"""How much text a conversation brings: everything its template sees, not its messages alone.

Read next: `engine/models/prompts.py`, which refuses what cannot fit, and `actors/text/prompts.py`, which
takes long ones off the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from ...protocols.chat.content import ChatMessage, TextPart
from ...protocols.chat.request import Conversation

_MESSAGE_CHARS: Final = 16
"""A template takes as long for a message as for so much of its text."""


def is_short(conversation: Conversation, max_chars: int) -> bool:
    """Whether there is no more than that to write into a template. Looks no further than it must."""
    size = _MESSAGE_CHARS * len(conversation.messages)
    for text in chain.from_iterable(fields_of(conversation).values()):
        size += 1 + len(text)
        if size > max_chars:
            return False
    return True


def field_sizes(conversation: Conversation) -> dict[str, int]:
    """Characters by the request's field."""
    return {name: sum(1 + len(text) for text in texts) for name, texts in fields_of(conversation).items()}


def strings_in(value: object) -> Iterator[str]:
    """Every string of plain data, keys too, in no order; numbers and the like count as empty ones."""
    left = [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            left += each
            left += each.values()
        elif isinstance(each, list | tuple):
            left += each
        else:
            yield ""


def message_strings(message: ChatMessage) -> Iterator[str]:
    """Every string of a message that a template sees."""
    content = message.content
    if isinstance(content, str):
        yield content
    else:
        for part in content or ():
            if isinstance(part, TextPart):
                yield part.text
    if message.extra:
        yield from strings_in(message.extra)


def fields_of(conversation: Conversation) -> dict[str, Iterable[str]]:
    """Every string that a template sees, by the request's field; each can be gone through once."""
    return {
        "messages": chain.from_iterable(map(message_strings, conversation.messages)),
        "tools": strings_in(conversation.tools or []),
        "documents": strings_in(conversation.documents or []),
        "chat_template_kwargs": strings_in(conversation.template_kwargs),
    }
