"""How long live video is remembered. Knows pairs and their weight, not how they came to be.

There are bounds of time (`retention_s`), of tokens and of bytes. Whatever follows a pair that goes must be
computed anew, so pairs go by the half: near a bound, the oldest are *leaving* until half of it is left. They
are forgotten once what stays has been read without them (`let_go`), so that a question finds one or the other
computed, or at the latest at the bound itself. Pairs that a question came right behind are what it was about:
time does not take those of the newest `MAX_QUESTIONS` questions, and the other bounds take them last. What
goes is said. Used by `realtime/dialogue/video.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ...protocols.engine.messages import ItemId
from ...protocols.realtime.conversation_session import VideoView
from ...protocols.realtime.video import EvictionReason, InputImageBufferEvicted
from ..outgoing import Outgoing
from .effects import ForgetPairs
from .items import Item, Items
from .parts import Clip, Pair

MAX_QUESTIONS: Final = 8
_REFERRED: Final = 2
"""The newest pairs before a question are what it is about."""
_NEAR: Final = 7 / 8
"""Of a bound: from there on the oldest are leaving. What stays takes seconds to be read."""

_Place = tuple[Item, Clip, Pair]


class Retention:
    """Forgets pairs of the clips among `items`."""

    def __init__(self, items: Items, outgoing: Outgoing, *, max_bytes: int) -> None:
        """`max_bytes`: of all media of the conversation."""
        self.plan = 0
        """Another one whenever other pairs are leaving."""
        self._items = items
        self._outgoing = outgoing
        self._max_bytes = max_bytes
        self._reason: EvictionReason = "retention_s"

    @property
    def is_leaving(self) -> bool:
        """Some pairs are."""
        return any(pair.is_leaving for _, _, pair in self._places())

    def apply(self, settings: VideoView, *, newest_ms: int) -> bool:
        """Forget what is beyond a bound, and settle what is leaving. Whether anything changed."""
        has_news = False
        while self._settle(settings, newest_ms, 1.0):
            self._evict()
            has_news = True
        return (not self.is_leaving and self._settle(settings, newest_ms, _NEAR)) or has_news

    def let_go(self) -> bool:
        """What stays was read. Whether anything went."""
        if not self.is_leaving:
            return False
        self._evict()
        return True

    def refer(self, clip: Clip) -> None:
        """A question came behind a clip."""
        for pair in clip.pairs[-_REFERRED:]:
            pair.is_referred = True
            if pair.is_leaving:
                pair.is_leaving = False
                self.plan += 1

    def _settle(self, settings: VideoView, newest_ms: int, share: float) -> bool:
        """Mark what is to go where a share of a bound is passed."""
        window_ms = settings.retention_s * 1000
        if self._before(newest_ms - share * window_ms):
            return self._mark(self._before(newest_ms - window_ms / 2), "retention_s")
        referred = [place for place in self._places() if place[2].is_referred]
        item_ids = list(dict.fromkeys(item.id for item, _, _ in referred))
        if len(item_ids) > share * MAX_QUESTIONS:
            old = item_ids[: -MAX_QUESTIONS // 2]
            return self._mark([place for place in referred if place[0].id in old], "retention_s")
        others = self._items.num_media_bytes - sum(_num_bytes(pair) for _, _, pair in self._places())
        return self._mark(
            self._excess(lambda pair: pair.num_tokens, settings.retention_tokens, share), "retention_tokens"
        ) or self._mark(self._excess(_num_bytes, self._max_bytes - others, share), "max_media_bytes")

    def _mark(self, places: list[_Place], reason: EvictionReason) -> bool:
        for _, _, pair in places:
            pair.is_leaving = True
        if places:
            self.plan += 1
            self._reason = reason
        return bool(places)

    def _excess(self, weigh: Callable[[Pair], int], most: int, share: float) -> list[_Place]:
        """The oldest, where all together weigh too much; the newest stays in any case."""
        places = list(self._places())
        weight = sum(weigh(pair) for _, _, pair in places)
        gone: list[_Place] = []
        if weight <= most * share:
            return gone
        for place in sorted(places[:-1], key=lambda place: place[2].is_referred):
            if weight <= most / 2:
                break
            gone.append(place)
            weight -= weigh(place[2])
        return gone

    def _before(self, time_ms: float) -> list[_Place]:
        """Pairs that ended before a time, and that no question came right behind."""
        return [
            place
            for place in self._places()
            if place[2].timestamps_ms[-1] < time_ms and not place[2].is_referred
        ]

    def _places(self) -> Iterator[_Place]:
        """Every pair that is ready, oldest first."""
        for item, clip in self._items.clips:
            yield from ((item, clip, pair) for pair in clip.pairs if pair.num_tokens)

    def _evict(self) -> None:
        """Forget those that are leaving. A clip of which nothing is left stays if more may come."""
        gone: dict[ItemId, tuple[Item, Clip, list[Pair]]] = {}
        for item, clip, pair in self._places():
            if pair.is_leaving:
                gone.setdefault(item.id, (item, clip, []))[2].append(pair)
        self.plan += 1
        self._outgoing.do(ForgetPairs(tuple(pair.id for _, _, pairs in gone.values() for pair in pairs)))
        for item, clip, pairs in gone.values():
            clip.pairs = [pair for pair in clip.pairs if not pair.is_leaving]
            is_gone = not clip.pairs and item.status != "in_progress"
            self._outgoing.send(
                InputImageBufferEvicted(
                    item_id=item.id,
                    timestamps_ms=[each for pair in pairs for each in pair.timestamps_ms],
                    reason=self._reason,
                    is_gone=is_gone,
                )
            )
            if is_gone:
                self._items.remove(item)


def _num_bytes(pair: Pair) -> int:
    return sum(map(len, pair.data))
