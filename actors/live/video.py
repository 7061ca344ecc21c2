"""Live frames of one session: opened one after the other, joined into pairs, named by the pairs' hashes.

Like the pictures of items (`actors/live/conversation_media.py`): features wait a moment to be used, then only
their hash and size are kept, and where an engine asks for them again the frames' files are opened again.
Which frames are kept, and what is a pair, is the pure session's business (`realtime/dialogue/video.py`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import trio

from ...media.vision.images import PixelArray
from ...protocols.engine.messages import ContentHash, EncoderItem, Features, MediaItems
from ...protocols.errors import InternalError, SensoriumError
from ...realtime.dialogue.effects import (
    ClipParts,
    EncodePair,
    ForgetFrames,
    ForgetPairs,
    FrameOpened,
    FrameRefused,
    OpenFrame,
    PairEncoded,
    PairRefused,
)
from ..runtime.panic_guard import contained
from ..text.prompts import Prompter

logger = logging.getLogger(__name__)

_WAIT_S: Final = 2.0
"""How long features wait to be read: the next pair comes sooner."""

VideoOutcome = FrameOpened | FrameRefused | PairEncoded | PairRefused


class _Pair:
    """What is remembered of one: its item without features, and the files."""

    def __init__(self, item: EncoderItem, data: tuple[bytes, ...]) -> None:
        self.item = item.lean()
        self.data = data


@dataclass(frozen=True, slots=True)
class VideoSnapshot:
    """Live video in one prompt: its parts by their names, without features, and the files behind them."""

    items: Mapping[str, MediaItems] = field(default_factory=dict)
    files: Mapping[ContentHash, tuple[bytes, ...]] = field(default_factory=dict)


class SessionVideo:
    """The frames and pairs of one session; `report` gets what they are. `num_frames` is how many there will
    be at most, which settles their size."""

    def __init__(
        self,
        prompter: Prompter,
        report: Callable[[VideoOutcome], Awaitable[None]],
        *,
        session_id: str,
        num_frames: int,
        caller: str,
    ) -> None:
        self._read_frame = partial(prompter.open_frame, num_frames=num_frames, caller=caller)
        self._paired = partial(prompter.paired, caller=caller)
        self._report = report
        self._session_id = session_id
        self._to_open: deque[OpenFrame] = deque()
        self._is_opening = False
        self._pixels: dict[int, PixelArray] = {}
        self._pairs: dict[str, _Pair] = {}
        self._encoding: dict[str, trio.CancelScope] = {}
        """Pairs that are made, or whose features wait."""
        self._hot: dict[ContentHash, Features] = {}
        self._used = trio.Event()

    def perform(
        self, effect: OpenFrame | ForgetFrames | EncodePair | ForgetPairs, nursery: trio.Nursery
    ) -> None:
        """Carry it out, what takes time in a task of its own."""
        match effect:
            case OpenFrame():
                self._open_frame(effect, nursery)
            case ForgetFrames(frame_ids):
                for frame_id in frame_ids:
                    self._pixels.pop(frame_id, None)
                self._to_open = deque(each for each in self._to_open if each.frame_id not in frame_ids)
            case EncodePair(frame_ids=frame_ids):
                frames = [self._pixels.pop(frame_id) for frame_id in frame_ids]
                self._encoding[effect.pair_id] = scope = trio.CancelScope()
                nursery.start_soon(self._encode, effect, frames, scope)
            case ForgetPairs(pair_ids):
                for pair_id in pair_ids:
                    self._pairs.pop(pair_id, None)
                    if (encoding := self._encoding.pop(pair_id, None)) is not None:
                        encoding.cancel()

    def _open_frame(self, effect: OpenFrame, nursery: trio.Nursery) -> None:
        """Open a frame, behind those before it."""
        self._to_open.append(effect)
        if not self._is_opening:
            self._is_opening = True
            nursery.start_soon(self._open_all)

    def snapshot(self, clips: Sequence[ClipParts]) -> VideoSnapshot:
        """Parts of a conversation as they are now: later some of their pairs may be forgotten."""
        items, files = dict[str, MediaItems](), dict[ContentHash, tuple[bytes, ...]]()
        for parts in clips:
            pairs = [self._pairs[pair_id] for pair_id in parts.pairs]
            items[parts.param] = MediaItems(
                "video", tuple(pair.item for pair in pairs), parts.times_s, starts_s=parts.starts_s
            )
            files |= {pair.item.content_hash: pair.data for pair in pairs}
        return VideoSnapshot(items, files)

    async def features(self, content_hash: ContentHash, data: tuple[bytes, ...]) -> Features:
        """Of a pair: those that wait, or made again of its files."""
        if content_hash in self._hot:
            return self._hot[content_hash]
        frames = [(await self._read_frame(each)).pixels for each in data]
        async with self._paired(frames) as item:
            return item.features

    def was_read(self) -> None:
        """The engine has what it needs: features need not wait any more."""
        self._used.set()
        self._used = trio.Event()

    async def _open_all(self) -> None:
        try:
            while self._to_open:
                effect = self._to_open[0]
                outcome: VideoOutcome
                try:
                    with contained:
                        decoded = await self._read_frame(effect.data)
                except SensoriumError as error:
                    outcome = FrameRefused(effect.frame_id, error)
                except Exception:
                    logger.exception("session %s: opening a frame failed", self._session_id)
                    outcome = FrameRefused(effect.frame_id, InternalError("opening the frame failed"))
                else:
                    outcome = FrameOpened(effect.frame_id, decoded.width, decoded.height, decoded.thumbnail)
                if not self._to_open or self._to_open[0] is not effect:
                    continue  # it was forgotten meanwhile
                self._to_open.popleft()
                if isinstance(outcome, FrameOpened):
                    self._pixels[effect.frame_id] = decoded.pixels
                await self._report(outcome)
        finally:
            self._is_opening = False

    async def _encode(
        self, effect: EncodePair, frames: Sequence[PixelArray], scope: trio.CancelScope
    ) -> None:
        outcome: VideoOutcome | None = None
        try:
            with contained, scope:
                await self._encode_and_wait(effect, frames)
        except SensoriumError as error:
            outcome = PairRefused(effect.pair_id, error)
        except Exception:
            logger.exception("session %s: joining frames failed", self._session_id)
            outcome = PairRefused(effect.pair_id, InternalError("joining the frames failed"))
        finally:
            self._encoding.pop(effect.pair_id, None)
        if outcome is not None:
            await self._report(outcome)

    async def _encode_and_wait(self, effect: EncodePair, frames: Sequence[PixelArray]) -> None:
        async with self._paired(frames) as item:
            await trio.lowlevel.checkpoint_if_cancelled()  # nobody would forget it
            self._pairs[effect.pair_id] = _Pair(item, effect.data)
            self._hot[item.content_hash] = item.features
            try:
                used = self._used
                await self._report(PairEncoded(effect.pair_id, item.num_tokens))
                with trio.move_on_after(_WAIT_S):
                    await used.wait()
            finally:
                self._hot.pop(item.content_hash, None)
