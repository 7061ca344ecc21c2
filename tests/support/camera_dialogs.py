"""A scripted talk with a camera."""

from __future__ import annotations

import base64
from typing import Any

from sensorium.protocols.errors import InternalError, MediaError
from sensorium.realtime.dialogue.effects import (
    EncodePair,
    ForgetFrames,
    ForgetPairs,
    FrameOpened,
    FrameRefused,
    HasReadAhead,
    OpenFrame,
    PairEncoded,
    PairRefused,
    ReadAhead,
    Respond,
    Warm,
)
from sensorium.realtime.dialogue.items import Item
from support.conversation_dialogs import Event, Talk

TOKENS = 10
"""Of a pair."""


class Watch(Talk):
    """A talk with a camera: frames are opened, and pairs made, at once unless `is_slow`."""

    def __init__(self, *, is_slow: bool = False, bounds: Event | None = None, **video: Any) -> None:  # noqa: ANN401
        self.num_handled = 0
        self.is_slow = False
        self.reads_ahead = True
        """What will stay of the video is read as soon as that is wished for."""
        super().__init__(
            dialogue={
                "kinds": ["image", "video"],
                "video": {"max_fps": 2.0, "retention_s": 20.0} | video,
                **(bounds or {}),
            }
        )
        self.is_slow = is_slow
        self.time_ms = 0

    def show(self, shade: int, *, after_ms: int = 500, **fields: object) -> None:
        """The next frame, all of one shade of grey."""
        self.time_ms += after_ms
        self.now += after_ms / 1000
        image = base64.b64encode(bytes([shade])).decode()
        frame = {"type": "input_image_buffer.append", "image": image, "timestamp_ms": self.time_ms}
        self.client(frame | fields)
        if not self.is_slow:
            self.catch_up()

    def catch_up(
        self, size: tuple[int, int] = (64, 48), *, breaks: bool = False, most: int | None = None
    ) -> None:
        """Everything (or so much) that is to be opened and made is, or cannot be if it `breaks`."""
        while self.num_handled < len(self.effects) and most != 0:
            effect = self.effects[self.num_handled]
            self.num_handled += 1
            if most is not None and isinstance(effect, OpenFrame | EncodePair):
                most -= 1
            match effect:
                case OpenFrame(frame_id) if breaks:
                    self.receive(FrameRefused(frame_id, MediaError("damaged", param="image")))
                case EncodePair(pair_id) if breaks:
                    self.receive(PairRefused(pair_id, InternalError("joining the frames failed")))
                case OpenFrame(frame_id, data):
                    self.receive(FrameOpened(frame_id, *size, data * 1024))
                case EncodePair(pair_id):
                    self.receive(PairEncoded(pair_id, TOKENS))
                case ReadAhead(plan) if self.reads_ahead:
                    self.receive(HasReadAhead(plan))
                case _:
                    pass

    def of_kind(self, kind: type) -> list[object]:
        """All effects of a kind."""
        return [effect for effect in self.effects if type(effect) is kind]

    @property
    def items(self) -> list[Item]:
        """Of the conversation."""
        assert self.session.dialogue is not None
        return list(self.session.dialogue.items)

    def gone(self) -> list[int]:
        """Times of the frames that were forgotten, as the client was told."""
        return [time for event in self.of("input_image_buffer.evicted") for time in event["timestamps_ms"]]

    def check_pairs(self) -> None:
        """Frames and pairs have one end each, and nothing is asked about what is forgotten or not there."""
        frames, pairs = set[int](), set[str]()
        for effect in self.effects:
            match effect:
                case OpenFrame(frame_id):
                    frames.add(frame_id)
                case ForgetFrames(frame_ids):
                    assert frames.issuperset(frame_ids)
                    frames.difference_update(frame_ids)
                case EncodePair(pair_id, frame_ids):
                    assert frames.issuperset(frame_ids)
                    frames.difference_update(frame_ids)
                    assert pair_id not in pairs
                    pairs.add(pair_id)
                case ForgetPairs(pair_ids):
                    assert pairs.issuperset(pair_ids)
                    pairs.difference_update(pair_ids)
                case Respond() | Warm() | ReadAhead():
                    assert pairs.issuperset(name for clip in effect.clips for name in clip.pairs)
                case _:
                    pass
        held = {pair.id for item in self.items if item.clip for pair in item.clip.pairs}
        assert held <= pairs
        assert len(self.gone()) == len(set(self.gone())), "told once"

    def seen(self) -> list[tuple[int, ...]]:
        """How many pairs each clip of the question has."""
        return [tuple(round(1000 * time) for time in clip.times_s) for clip in self.current_request().clips]
