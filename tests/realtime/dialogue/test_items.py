"""Items of a conversation: what a model is asked of them, and what is left of them."""

from __future__ import annotations

import gc
import weakref
from itertools import count

import pytest
from sensorium.protocols.chat.content import TextPart
from sensorium.protocols.engine.messages import ItemId
from sensorium.protocols.realtime.items import NewItem
from sensorium.protocols.realtime.responses import ResponseCreate, ResponseOptions
from sensorium.realtime.dialogue.config import DialogueConfig
from sensorium.realtime.dialogue.effects import Respond
from sensorium.realtime.dialogue.items import Item, Items
from sensorium.realtime.dialogue.parts import Clip, Pair
from sensorium.realtime.session import Session
from support.dialogs import config


def test_a_message_is_made_once_but_of_a_clip() -> None:
    """Its pairs come and go: without one that is ready there is nothing to look at."""
    item = Item(ItemId("a"), "user", [TextPart("Hello")])
    assert item.message() is item.message() is not None
    clip = Clip([Pair("1", (b"x",), (0,), num_tokens=4)])
    seen = Item(ItemId("b"), "user", [clip])
    assert seen.message() is not None
    clip.pairs[:] = [Pair("2", (b"y",), (500,))]
    assert seen.message() is None
    clip.pairs[0].num_tokens = 4
    assert seen.message() is not None


def test_the_room_of_a_conversation_is_counted_once_for_all_input_of_a_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For each of a thousand items beside two thousand it would take 100 ms."""
    checked = list[int]()

    def check_room(items: Items, *given: Item) -> None:
        checked.append(len(given))
        checks(items, *given)

    checks = Items.check_room
    monkeypatch.setattr(Items, "check_room", check_room)
    numbers = count()
    session = Session(config(dialogue=DialogueConfig(model="m")), lambda kind: f"{kind}_{next(numbers)}")
    session.open(now=0.0, created=0)
    given = (NewItem("user", (TextPart("a"),)),) * 50
    effects = session.receive(ResponseCreate(ResponseOptions(conversation="none"), given), now=0.0)
    (pending,) = (effect for effect in effects if isinstance(effect, Respond))
    assert len(pending.conversation.messages) == 50
    assert checked == [50]


def test_a_dialogue_leaves_nothing_to_the_garbage_collector() -> None:
    """Its items are as large as what was said and shown."""
    numbers = count()
    gc.disable()
    try:
        session = Session(config(dialogue=DialogueConfig(model="m")), lambda kind: f"{kind}_{next(numbers)}")
        session.open(now=0.0, created=0)
        dialogue = weakref.ref(session.dialogue)
        assert dialogue() is not None
        del session
        assert dialogue() is None
    finally:
        gc.enable()
