"""Chooses which of several engines of one model takes a request. Pure: it knows engines by their numbers.

A session or conversation stays at the engine that has its state. A prompt goes where most of its beginning
was sent before, unless that engine has clearly more to do than another; what is new to all goes where the
least is. Where prompts went is kept for as many tokens as an engine has room for, the latest used last, which
is the order in which an engine evicts. Read `actors/replicas/client.py` for who asks.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from ...protocols.engine.messages import EncoderItem, MediaSpan

BLOCK: Final = 32
"""Tokens that are compared as one."""
MAX_BLOCKS: Final = 1_024
"""Blocks of a prompt that are compared, 32,768 tokens: what follows them does not decide where it goes.
Naming so many takes 2 ms of the event loop on one core of an AMD EPYC (Zen 3)."""
SLACK: Final = 4
"""How many requests more than the least busy engine may one have that is preferred for a prompt's
beginning."""
MAX_KEYS: Final = 65_536
"""Sessions whose engine is remembered; the one that was placed longest ago goes first."""
DEFAULT_CAPACITY: Final = 4_096
"""Blocks remembered of an engine that does not say how many tokens it has room for."""

_BLOCK_BYTES: Final = 8 * BLOCK
_DIGEST_BYTES: Final = 16


def prompt_names(
    prompt: Sequence[int], spans: Sequence[MediaSpan] = (), items: Sequence[EncoderItem] = ()
) -> list[bytes]:
    """Names of a prompt's full blocks, of the first `MAX_BLOCKS` at most: equal names, equal beginnings.

    `spans` are the media in it. Items of which no span tells where they are stand in front of all.
    """
    num_blocks = min(len(prompt) // BLOCK, MAX_BLOCKS)
    media: defaultdict[int, bytes] = defaultdict(bytes)
    for span in spans:
        first, end = span.start // BLOCK, -(-(span.start + span.num_tokens) // BLOCK)
        for index in range(first, min(end, num_blocks)):
            media[index] += f"{span.content_hash}@{span.start - index * BLOCK}".encode()
    name = b"".join(item.content_hash.encode() for item in items) if not spans else b""
    packed, names = array("q", prompt[: num_blocks * BLOCK]).tobytes(), []
    for index in range(num_blocks):
        content = name + packed[index * _BLOCK_BYTES : (index + 1) * _BLOCK_BYTES] + media.get(index, b"")
        name = blake2b(content, digest_size=_DIGEST_BYTES).digest()
        names.append(name)
    return names


@dataclass(slots=True)
class _Engine:
    """What is known of one of them."""

    num_open: int = 0
    """Requests that are placed there now."""
    num_placed: int = 0
    """All that ever were."""
    num_keys: int = 0
    prompts: OrderedDict[bytes, None] = field(default_factory=OrderedDict)
    """Names of blocks that were sent there, the latest used last."""

    def num_known(self, names: Sequence[bytes]) -> int:
        """How many of a prompt's first blocks it has."""
        return next((number for number, name in enumerate(names) if name not in self.prompts), len(names))

    def note(self, names: Sequence[bytes], capacity: int) -> None:
        # A prompt's end is evicted before its beginning.
        for name in reversed(names):
            self.prompts[name] = None
            self.prompts.move_to_end(name)
        while len(self.prompts) > capacity:
            self.prompts.popitem(last=False)


class Router:
    """Places requests on `num_engines` engines."""

    def __init__(self, num_engines: int) -> None:
        self._engines = [_Engine() for _ in range(num_engines)]
        self._keys: OrderedDict[str, int] = OrderedDict()

    def add(self) -> None:
        """One more engine, with the next number."""
        self._engines.append(_Engine())

    def choose(
        self,
        available: Collection[int],
        key: str | None = None,
        names: Sequence[bytes] = (),
        *,
        capacity: int = DEFAULT_CAPACITY,
    ) -> int:
        """The engine, one of `available` (which may not be empty), for a request of the session `key` whose
        prompt's blocks have these `names`. `capacity` is how many blocks an engine has room for.
        """
        chosen = self._keys.get(key) if key is not None else None
        if chosen is None or chosen not in available:
            chosen = self._new_key(key, available) if key is not None else self._best(available, names)
        if key is None:
            self._engines[chosen].note(names, capacity)
        else:
            self._keys.move_to_end(key)
        return chosen

    def enter(self, index: int) -> None:
        """A request is placed at an engine."""
        self._engines[index].num_open += 1
        self._engines[index].num_placed += 1

    def leave(self, index: int) -> None:
        """It is over."""
        self._engines[index].num_open -= 1

    def num_open(self, index: int) -> int:
        """Requests that are placed at an engine now."""
        return self._engines[index].num_open

    def num_placed(self, index: int) -> int:
        """Requests that were placed at an engine since the start."""
        return self._engines[index].num_placed

    def num_keys(self, index: int) -> int:
        """Sessions that stay at an engine."""
        return self._engines[index].num_keys

    def place_of(self, key: str) -> int | None:
        """The engine where a session stays."""
        return self._keys.get(key)

    def close(self, key: str) -> int | None:
        """Forget a session; the engine where it stayed."""
        index = self._keys.pop(key, None)
        if index is not None:
            self._engines[index].num_keys -= 1
        return index

    def forget(self, index: int) -> None:
        """An engine has lost what it had: sessions that stayed there are placed again when they ask."""
        self._engines[index].prompts.clear()
        for key in [key for key, place in self._keys.items() if place == index]:
            self.close(key)

    def _new_key(self, key: str, available: Collection[int]) -> int:
        def load(index: int) -> tuple[int, int, int]:
            engine = self._engines[index]
            return engine.num_keys, engine.num_open, engine.num_placed

        self.close(key)
        chosen = min(available, key=load)
        self._keys[key] = chosen
        self._engines[chosen].num_keys += 1
        while len(self._keys) > MAX_KEYS:
            self.close(next(iter(self._keys)))
        return chosen

    def _best(self, available: Collection[int], names: Sequence[bytes]) -> int:
        least = min(self._engines[index].num_open for index in available)

        def worth(index: int) -> tuple[int, int, int]:
            engine = self._engines[index]
            known = engine.num_known(names) if engine.num_open <= least + SLACK else -1
            return known, -engine.num_open, -engine.num_placed

        return max(available, key=worth)
