"""Live frames: which are kept, how they become pairs, and when they are forgotten. Knows no pixels.

A frame is *appended* (checked for order, rate and clock), *looked at* (opened by the actor, in order), and
*kept* unless it shows what the last kept one shows. Two kept frames are a *pair*, what a vision tower encodes
at once. The pairs since the last item are the open *clip*, an item in progress. It is complete when the
client commits it, or another item comes behind it: a question, a turn. Frames that are still looked at then
belong to it, and whoever answers waits for them; one without a partner is a pair by itself.

Which order, rate and clock frames must have is `realtime/dialogue/frames.py`; how long pairs are remembered,
`realtime/dialogue/retention.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ...protocols.engine.messages import ItemId
from ...protocols.errors import BadRequestError, ClientError, SensoriumError, TooLargeError
from ...protocols.realtime.conversation_events import ConversationItemDeleted
from ...protocols.realtime.events import ConversationItemAdded, ConversationItemDone
from ...protocols.realtime.video import (
    InputImageBufferAppend,
    InputImageBufferCleared,
    InputImageBufferCommitted,
    InputImageBufferDropped,
)
from ..outgoing import Outgoing
from .config import DialogueConfig
from .effects import (
    EncodePair,
    ForgetFrames,
    ForgetPairs,
    FrameOpened,
    FrameRefused,
    OpenFrame,
    PairEncoded,
    PairRefused,
)
from .frames import Frame, FrameClock, change_between
from .items import Item, Items
from .parts import Clip, Pair
from .retention import Retention
from .settings import initial_video


class Video:
    """The frames of one session, and the clips among its items."""

    def __init__(
        self,
        config: DialogueConfig,
        items: Items,
        outgoing: Outgoing,
        new_id: Callable[[str], str],
        *,
        make_room: Callable[[], None],
    ) -> None:
        """`make_room` is asked before there is one item more."""
        self.settings = initial_video(config)
        self.has_news = False
        """A pair came or went since that was last asked about."""
        self._config = config.video
        self._items = items
        self._outgoing = outgoing
        self._new_id = new_id
        self._make_room = make_room
        self._clock = FrameClock(config.video.max_fps)
        self._retention = Retention(items, outgoing, max_bytes=config.max_media_bytes)
        self._waiting: deque[Frame] = deque()
        """Being looked at, in order."""
        self._single: Frame | None = None
        """Kept, and without a partner yet."""
        self._last: Frame | None = None
        """The newest that was kept."""
        self.open: Item | None = None
        """The clip that grows."""
        self._sealed: deque[tuple[int, Item]] = deque()
        """Clips that are complete once the frames before this number were looked at."""
        self._named: set[str] = set()
        """Clips that are still looked at and were named to the client."""
        self._num_frames = 0
        self._reported_tokens = -1
        """A retention that the client was told is too small."""

    def append(self, event: InputImageBufferAppend, *, now: float) -> None:
        """Take a frame. Raises ClientError, and then it is as if it had not come."""
        data, config = event.image, self._config
        assert isinstance(data, bytes)
        if len(data) > config.max_frame_bytes:
            raise TooLargeError(
                f"`image` is {len(data)} bytes; the limit is {config.max_frame_bytes}", param="image"
            )
        if not config.max_fps:
            raise BadRequestError(
                "the model takes no live frames; send pictures as items of the conversation",
                code="unsupported_media",
                param="image",
            )
        given = event.timestamp_ms
        timestamp = self._clock.checked(given if isinstance(given, int) else None, now=now)
        if len(self._waiting) >= config.max_waiting:
            raise ClientError(
                f"{len(self._waiting)} frames are waiting to be decoded; send them no faster than real time",
                code="input_image_buffer_overflow",
                param="image",
            )
        self._clock.came(timestamp, now=now)
        frame = Frame(self._num_frames, data, timestamp, event.event_id or None)
        self._num_frames += 1
        self._waiting.append(frame)
        self._outgoing.do(OpenFrame(frame.id, data))

    def frame_opened(self, fact: FrameOpened | FrameRefused) -> None:
        """What the next frame shows."""
        if not self._waiting or self._waiting[0].id != fact.frame_id:
            return  # it was cleared
        frame = self._waiting.popleft()
        if isinstance(fact, FrameRefused):
            self._refuse(frame, fact.error)
        else:
            frame.size, frame.thumbnail = (fact.width, fact.height), fact.thumbnail
            self._keep(frame)
        self._finish_sealed()

    def _keep(self, frame: Frame) -> None:
        clip = self._clip_of(frame)
        last = self._last
        if last is not None and (clip is not None or self._single is not None) and last.size != frame.size:
            sizes = " x ".join(map(str, frame.size or ())), " x ".join(map(str, last.size or ()))
            message = f"the frame is {sizes[0]} pixels, the one before it {sizes[1]}; commit first"
            self._refuse(frame, BadRequestError(message, code="frame_size_changed", param="image"))
            return
        change = 1.0 if last is None else change_between(last.thumbnail, frame.thumbnail)
        if change < self.settings.min_change:
            self._outgoing.do(ForgetFrames((frame.id,)))
            self._outgoing.send(
                InputImageBufferDropped(timestamp_ms=frame.timestamp_ms, change=round(change, 4))
            )
            return
        self._last = frame
        if self._single is None:
            self._single = frame
        else:
            single, self._single = self._single, None
            self._pair((single, frame), clip)

    def encoded(self, fact: PairEncoded | PairRefused) -> None:
        """A pair is ready to be looked at, or cannot be."""
        for item, clip in self._items.clips:
            pair = next((each for each in clip.pairs if each.id == fact.pair_id), None)
            if pair is None:
                continue
            if isinstance(fact, PairEncoded):
                pair.num_tokens = fact.num_tokens
                self._check_retention(fact.num_tokens)
            else:
                clip.pairs.remove(pair)
                self._outgoing.refuse(fact.error)
            self._settle(item, clip)
            self.has_news = True
            self.retain()
            return

    def _check_retention(self, num_tokens: int) -> None:
        """Say, once, that one pair is more than is to be remembered; the newest is kept all the same."""
        most = self.settings.retention_tokens
        if num_tokens > most and most != self._reported_tokens:
            self._reported_tokens = most
            self._outgoing.refuse(
                BadRequestError(
                    f"two frames are {num_tokens} tokens; `session.video.retention_tokens` is {most}: "
                    "only the newest are remembered",
                    code="retention_too_small",
                    param="session.video.retention_tokens",
                )
            )

    def seal(self) -> Item | None:
        """Something else comes behind what was seen: the clip is complete. Gives its item, if there is one.

        Where frames are still looked at it is completed behind them; the item waits so long.
        """
        if self._sealed and self._sealed[-1][0] == self._num_frames:
            return None  # nothing has come since
        item, self.open = self.open, None
        if item is None and self._single is None and not self._waiting:
            return None
        if item is None:
            item = self._new_item()
        item.waits = True
        self._sealed.append((self._num_frames, item))
        self._finish_sealed()
        return item if item in self._items else None

    def _finish_sealed(self) -> None:
        """Complete the clips whose frames were all looked at."""
        while self._sealed and (not self._waiting or self._waiting[0].id >= self._sealed[0][0]):
            _, item = self._sealed.popleft()
            if self._single is not None:
                single, self._single = self._single, None
                self._pair((single,), item)
            clip = item.clip
            assert clip is not None
            self._retention.refer(clip)
            item.status = "completed"
            if not item.is_hidden:
                previous = self._items.before(item)
                self._outgoing.send(ConversationItemDone(item=item.view(), previous_item_id=previous))
            self._settle(item, clip)

    def _clip_of(self, frame: Frame) -> Item | None:
        """The item that the frame belongs to, if there is one yet."""
        return next((item for before, item in self._sealed if frame.id < before), self.open)

    def _new_item(self) -> Item:
        """Its place is here; the client is told of it with its first pair."""
        item = Item(ItemId(self._new_id("item")), "user", [Clip([])], status="in_progress", waits=True)
        item.is_hidden = True
        self._make_room()
        self._items.insert(item)
        return item

    def commit(self) -> None:
        """The client seals it."""
        waiting = [frame for frame in self._waiting if not self._sealed or frame.id >= self._sealed[-1][0]]
        num_frames = len(waiting) + (self._single is not None and not self._sealed)
        if self.open is not None and self.open.clip is not None:
            num_frames += len(self.open.clip.timestamps_ms)
        item = self.seal()
        if item is not None and item.is_hidden:
            self._named.add(item.id)
        item_id = None if item is None else item.id
        self._outgoing.send(InputImageBufferCommitted(item_id=item_id, num_frames=num_frames if item else 0))

    def clear(self) -> None:
        """The client drops what is in no complete item: frames that a sealed clip waits for stay."""
        sealed = self._sealed[-1][0] if self._sealed else 0
        frames = [*self._waiting] if self._single is None else [self._single, *self._waiting]
        self._outgoing.do(ForgetFrames(tuple(frame.id for frame in frames if frame.id >= sealed)))
        self._waiting = deque(frame for frame in self._waiting if frame.id < sealed)
        if not self._sealed:
            self._single = self._last = None
        item, self.open = self.open, None
        if item is not None and item.clip is not None:
            self._outgoing.do(ForgetPairs(item.clip.emptied()))
            self._remove(item)
        self._outgoing.send(InputImageBufferCleared())

    def retain(self) -> None:
        """Forget what is too old, or too much."""
        if self._retention.apply(self.settings, newest_ms=self._clock.last_ms):
            self.has_news = True

    def let_go(self) -> None:
        """What stays was read without the pairs that are leaving: they go."""
        if self._retention.let_go():
            self.has_news = True

    @property
    def plan(self) -> int:
        """Another one whenever other pairs are leaving."""
        return self._retention.plan

    @property
    def is_leaving(self) -> bool:
        """Some pairs are."""
        return self._retention.is_leaving

    @property
    def origin_ms(self) -> int:
        """The time of the first frame: times are told from there."""
        return self._clock.first_ms

    def _refuse(self, frame: Frame, error: SensoriumError) -> None:
        self._outgoing.do(ForgetFrames((frame.id,)))
        self._outgoing.refuse(error, frame.event_id)

    def _pair(self, frames: tuple[Frame, ...], item: Item | None) -> None:
        """Add a pair to a clip, or open one with it."""
        pair = Pair(self._new_id("pair"), tuple(frame.data for frame in frames), _times(frames))
        if item is None:
            item = self.open = self._new_item()
        clip = item.clip
        assert clip is not None
        clip.pairs.append(pair)
        item.waits = True
        if item.is_hidden:
            item.is_hidden = False
            self._named.discard(item.id)
            previous = self._items.before(item)
            self._outgoing.send(ConversationItemAdded(item=item.view(), previous_item_id=previous))
        self._outgoing.do(EncodePair(pair.id, tuple(frame.id for frame in frames), pair.data))

    def _settle(self, item: Item, clip: Clip) -> None:
        """Whether the item can be used; one that is complete and of which nothing is left goes."""
        is_complete = item.status == "completed"
        is_ready = all(pair.num_tokens for pair in clip.pairs)
        item.waits = not is_ready or not (is_complete or item is self.open)
        if not clip.pairs and is_complete:
            self._remove(item)

    def _remove(self, item: Item) -> None:
        self._items.remove(item)
        item.waits = False
        if not item.is_hidden or item.id in self._named:
            self._outgoing.send(ConversationItemDeleted(item_id=item.id))
        self._named.discard(item.id)


def _times(frames: tuple[Frame, ...]) -> tuple[int, ...]:
    return tuple(frame.timestamp_ms for frame in frames)
