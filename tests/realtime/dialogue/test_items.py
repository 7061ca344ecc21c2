"""Items of a conversation: what a model is asked of them."""

from __future__ import annotations

from sensorium.protocols.chat_content import TextPart
from sensorium.protocols.messages import ItemId
from sensorium.realtime.dialogue.items import Item
from sensorium.realtime.dialogue.parts import Clip, Pair


def test_a_message_is_made_once_but_of_a_clip() -> None:
    """Its pairs come and go: without one that is ready there is nothing to look at."""
    said = Item(ItemId("a"), "user", [TextPart("Hello")])
    assert said.message() is said.message() is not None
    clip = Clip([Pair("1", (b"x",), (0,), num_tokens=4)])
    seen = Item(ItemId("b"), "user", [clip])
    assert seen.message() is not None
    clip.pairs[:] = [Pair("2", (b"y",), (500,))]
    assert seen.message() is None
    clip.pairs[0].num_tokens = 4
    assert seen.message() is not None
