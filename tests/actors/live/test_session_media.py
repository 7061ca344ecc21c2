"""The media of a session's items: what is forgotten leaves nothing, whoever has its id next."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import trio
from sensorium.actors.live.conversation_media import SessionMedia
from sensorium.actors.live.video import VideoSnapshot
from sensorium.actors.text.generation import TextModel
from sensorium.media.hashing import encoder_item
from sensorium.protocols.chat.content import MediaPart
from sensorium.protocols.engine.messages import EncoderItem, ItemId, MediaItems
from sensorium.protocols.errors import MediaError
from sensorium.realtime.dialogue.effects import (
    EncodePair,
    ForgetPairs,
    MediaFact,
    MediaOpened,
    MediaRefused,
    OpenFrame,
    OpenMedia,
    PairEncoded,
)
from trio.testing import MockClock, wait_all_tasks_blocked

X = ItemId("x")


class Darkroom:
    """Opens a file in as many seconds as its first byte says; one that ends with 0 is damaged. Joining two
    frames takes a second."""

    def __init__(self) -> None:
        self.facts: list[MediaFact] = []
        self.num_open = 0
        prompter = SimpleNamespace(opened=self.opened, open_frame=self.open_frame, paired=self.paired)
        model = cast(TextModel, SimpleNamespace(prompter=prompter))
        self.media = SessionMedia(model, self.report, session_id="s", scope="", num_frames=8, caller="ann")

    async def report(self, fact: MediaFact) -> None:
        await trio.lowlevel.checkpoint()
        self.facts.append(fact)

    @asynccontextmanager
    async def opened(
        self, parts: Sequence[MediaPart], *, scope: str, caller: str
    ) -> AsyncIterator[list[MediaItems]]:
        assert caller == "ann"
        self.num_open += 1
        try:
            await trio.sleep(max(part.data[0] for part in parts))
            if any(part.data[-1] == 0 for part in parts):
                raise MediaError("damaged")
            yield [MediaItems("image", (item_of(part.data[-1]),)) for part in parts]
        finally:
            self.num_open -= 1

    async def open_frame(self, data: bytes, *, num_frames: int, caller: str) -> SimpleNamespace:
        assert caller == "ann"
        await trio.lowlevel.checkpoint()
        return SimpleNamespace(pixels=data, width=8, height=8, thumbnail=b"")

    @asynccontextmanager
    async def paired(self, frames: Sequence[bytes], *, caller: str) -> AsyncIterator[EncoderItem]:
        assert caller == "ann"
        await trio.sleep(1.0)
        yield item_of(frames[0][0])

    def open(self, number: int, data: bytes, nursery: trio.Nursery) -> None:
        self.media.open(OpenMedia(number, X, (MediaPart("image", data, "x.content[0]"),)), nursery)


def item_of(shade: int) -> EncoderItem:
    return encoder_item(np.full((2, 4), shade, np.float32), num_tokens=shade)


@pytest.mark.parametrize("after_s", [0.0, 0.5, 1.0, 1.5, 5.9, 6.0, 7.0])
async def test_an_id_may_be_used_again_at_any_time(after_s: float, autojump_clock: MockClock) -> None:
    room = Darkroom()
    async with trio.open_nursery() as nursery:
        room.open(1, bytes([1, 10]), nursery)
        await trio.sleep(after_s)
        room.media.forget(X)
        room.open(2, bytes([2, 20]), nursery)
        await trio.sleep(3.0)
        known = {name: items.items[0].num_tokens for name, (_, items) in room.media._known.items()}
        assert known == {"x.content[0]": 20}, "the new picture, whenever the old one was opened"
        old = MediaPart("image", bytes([1, 10]), "x.content[0]")
        nothing = cast(VideoSnapshot, SimpleNamespace(items={}))
        assert room.media._found(old, nothing) is None, "a question may still be about the old one"
        room.media.forget(X)
        room.open(3, bytes([0, 0]), nursery)
        await wait_all_tasks_blocked()
        room.media.forget(X)
    assert [fact for fact in room.facts if isinstance(fact, MediaOpened)][-1] == MediaOpened(2, X, 20)
    assert [fact.number for fact in room.facts if isinstance(fact, MediaRefused)] == [3]
    assert room.num_open == 0
    assert not room.media._known
    assert not room.media._hot
    assert not room.media._opening


async def test_a_pair_that_is_forgotten_while_it_is_made_leaves_nothing(autojump_clock: MockClock) -> None:
    room = Darkroom()
    video = room.media.video
    async with trio.open_nursery() as nursery:
        for number, forgets_after_s in enumerate([0.0, 0.5, 1.5, 5.0]):
            frames = (2 * number, 2 * number + 1)
            for frame in frames:
                video.perform(OpenFrame(frame, bytes([frame])), nursery)
            await wait_all_tasks_blocked()
            video.perform(EncodePair(f"p{number}", frames, (b"a", b"b")), nursery)
            await trio.sleep(forgets_after_s)
            video.perform(ForgetPairs((f"p{number}",)), nursery)
    assert [fact.pair_id for fact in room.facts if isinstance(fact, PairEncoded)] == ["p2", "p3"]
    assert not video._pairs
    assert not video._hot
    assert not video._encoding
