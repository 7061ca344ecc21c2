"""Messages in pieces: what is long goes in slices behind, with everybody else's turn between two of them.

Read `actors/engine_process/messages.py` for what is said, `multiplexer.py` beside it for how it is carried.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import trio

from . import messages
from .messages import Message
from .multiplexer import Link


async def send_message(link: Link, call: int, message: Message) -> None:
    """Send a message of any length, once there is room for it. Raises LinkLostError.

    One without anything long goes at once.
    """
    buffers: list[bytes] = []
    if isinstance(message, messages.Lengthy):
        body, places, slices = messages.detached(message.body)
        if places:
            message = msgspec.structs.replace(message, body=body, long=places)
            for each in slices:
                buffers.append(messages.encode_slice(each))
                await trio.lowlevel.checkpoint()
    if buffers:
        await link.send(call, messages.encode(message), buffers)
    else:
        link.send_nowait(call, messages.encode(message))


async def read_message(parts: Sequence[bytes]) -> tuple[Message, Sequence[bytes]]:
    """The decoded message, and its buffers."""
    message, buffers = messages.decode(parts[0]), parts[1:]
    if not isinstance(message, messages.Lengthy) or not message.long:
        return message, buffers
    left = iter(buffers)
    body = message.body
    for long in message.long:
        members: list[object] = []
        for _ in range(long.num_slices):
            members += messages.decode_slice(next(left), body, long.path)
            await trio.lowlevel.checkpoint()
        body = messages.replaced(body, long.path, tuple(members))
    return msgspec.structs.replace(message, body=body, long=()), ()
