"""Which engine takes a request: its session's, that of its prompt's beginning, or the least busy one."""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Sequence

import pytest
from sensorium.actors.replicas.cores import shared_cores, shared_devices
from sensorium.actors.replicas.router import BLOCK, MAX_BLOCKS, MAX_KEYS, SLACK, Router, prompt_names
from sensorium.protocols.engine.messages import ContentHash, EncoderItem, Features, MediaSpan

BOTH = (0, 1)


def tokens(start: int, num_blocks: int) -> tuple[int, ...]:
    return tuple(range(start, start + num_blocks * BLOCK))


def span(name: str, start: int) -> MediaSpan:
    return MediaSpan(ContentHash(name), start, 8)


def test_equal_beginnings_have_equal_names() -> None:
    first, second = prompt_names(tokens(0, 3)), prompt_names((*tokens(0, 2), *tokens(900, 2)))
    assert first[:2] == second[:2]
    assert not set(first[2:]) & set(second)
    assert prompt_names(tokens(0, 1)[:-1]) == []


def test_media_are_part_of_the_blocks_that_they_touch() -> None:
    prompt, at = tokens(0, 4), 2 * BLOCK + 3
    names = [prompt_names(prompt, spans) for spans in ((), (span("a", at),), (span("b", at),))]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert names[one][:2] == names[other][:2]
        assert not set(names[one][2:]) & set(names[other][2:])
    items = [EncoderItem(ContentHash(name), Features((), b""), 8) for name in "ab"]
    in_front = [prompt_names(prompt, items=[item]) for item in items]
    assert not set(in_front[0]) & set(in_front[1])


def test_a_medium_is_part_of_every_block_that_it_touches() -> None:
    long = MediaSpan(ContentHash("a"), BLOCK + 3, 2 * BLOCK)
    with_it, without = prompt_names(tokens(0, 5), [long]), prompt_names(tokens(0, 5))
    assert with_it[0] == without[0]
    moved = prompt_names(tokens(0, 5), [MediaSpan(long.content_hash, BLOCK + 4, long.num_tokens)])
    assert not set(with_it[1:]) & {*moved[1:], *without}


def test_the_beginning_of_a_long_prompt_decides() -> None:
    """Naming blocks holds the event loop: there are no more of a longer prompt."""
    names = prompt_names(tokens(0, MAX_BLOCKS + 2))
    assert len(names) == MAX_BLOCKS
    assert names == prompt_names((*tokens(0, MAX_BLOCKS), *tokens(7, 2)))
    everywhere = [
        MediaSpan(ContentHash("a"), start, BLOCK) for start in range(0, 4 * MAX_BLOCKS * BLOCK, BLOCK)
    ]
    assert len(set(prompt_names(tokens(0, 4 * MAX_BLOCKS), everywhere))) == MAX_BLOCKS


def test_new_sessions_are_shared_out_and_stay() -> None:
    router = Router(2)
    places = {key: router.choose(BOTH, key) for key in "abcdef"}
    assert sorted(places.values()) == [0, 0, 0, 1, 1, 1]
    assert {key: router.choose(BOTH, key) for key in "fedcba"} == places


def test_a_session_whose_engine_is_left_out_moves_and_stays_there() -> None:
    router = Router(2)
    place = router.choose(BOTH, "a")
    moved = router.choose([1 - place], "a")
    assert moved == 1 - place
    assert router.choose(BOTH, "a") == moved
    assert (router.num_keys(place), router.num_keys(moved)) == (0, 1)
    assert router.close("a") == moved
    assert router.close("a") is None
    assert router.num_keys(moved) == 0


def test_a_prompt_goes_where_most_of_its_beginning_is() -> None:
    router = Router(3)
    places = [router.choose((0, 1, 2), names=prompt_names(tokens(start, 4))) for start in (0, 1_000, 2_000)]
    for place in places:
        router.enter(place)
    for start, place in zip((0, 1_000, 2_000), places, strict=True):
        assert router.choose((0, 1, 2), names=prompt_names((*tokens(start, 4), *tokens(9_000, 1)))) == place


def test_not_where_much_more_is_to_do() -> None:
    router, names = Router(2), prompt_names(tokens(0, 4))
    place = router.choose(BOTH, names=names)
    for _ in range(SLACK):
        router.enter(place)
    assert router.choose(BOTH, names=names) == place
    router.enter(place)
    assert router.choose(BOTH, names=names) == 1 - place
    router.leave(place)
    assert router.choose(BOTH, names=names) in BOTH


def test_what_an_engine_has_no_room_for_is_forgotten() -> None:
    router, old = Router(2), prompt_names(tokens(0, 4))
    router.enter(router.choose(BOTH, names=old, capacity=6))
    place = router.choose(BOTH, names=old, capacity=6)
    for start in (1_000, 2_000):
        assert router.choose([place], names=prompt_names(tokens(start, 4)), capacity=6) == place
    assert router.choose(BOTH, names=old, capacity=6) == 1 - place


def test_an_engine_that_was_started_again_has_nothing() -> None:
    router, names = Router(2), prompt_names(tokens(0, 4))
    place = router.choose(BOTH, names=names)
    key = router.choose([place], "a")
    router.enter(place)
    router.forget(place)
    assert router.choose(BOTH, names=names) == 1 - place
    assert router.place_of("a") is None
    assert router.num_keys(key) == 0


def test_sessions_that_nobody_closes_are_bounded() -> None:
    router = Router(2)
    for number in range(MAX_KEYS + 10):
        router.choose(BOTH, str(number))
    assert router.num_keys(0) + router.num_keys(1) == MAX_KEYS
    assert router.place_of("9") is None


class Cache:
    """Blocks that an engine has, the latest used last."""

    def __init__(self, capacity: int) -> None:
        self.blocks: OrderedDict[bytes, None] = OrderedDict()
        self.capacity = capacity

    def take(self, names: Sequence[bytes]) -> int:
        """Serve a prompt; how many of its blocks were there."""
        found = next((index for index, name in enumerate(names) if name not in self.blocks), len(names))
        for name in reversed(names):
            self.blocks[name] = None
            self.blocks.move_to_end(name)
        while len(self.blocks) > self.capacity:
            self.blocks.popitem(last=False)
        return found


def conversations(seed: int, num: int = 7, num_turns: int = 10) -> list[list[bytes]]:
    """Prompts of conversations that take turns at random, each longer than the one before."""
    order = [number for number in range(num) for _ in range(num_turns)]
    random.Random(seed).shuffle(order)
    turns = [0] * num
    prompts = []
    for number in order:
        turns[number] += 1
        prompts.append(prompt_names(tokens(100_000 * number, 3 * turns[number])))
    return prompts


@pytest.mark.parametrize("seed", range(5))
def test_conversations_find_as_much_as_at_one_engine_with_both_memories(seed: int) -> None:
    capacity, found = 110, {}
    whole = Cache(2 * capacity)
    found["one"] = sum(map(whole.take, conversations(seed)))
    for name in ("routed", "random"):
        router, chance = Router(2), random.Random(seed)
        caches = [Cache(capacity), Cache(capacity)]
        found[name] = 0
        for names in conversations(seed):
            routed = router.choose(BOTH, names=names, capacity=capacity)
            router.enter(routed)
            router.leave(routed)
            found[name] += caches[routed if name == "routed" else chance.randrange(2)].take(names)
    assert found["routed"] >= 0.98 * found["one"]
    assert found["random"] < 0.9 * found["one"]


@pytest.mark.parametrize(
    ("cores", "num", "shared"),
    [
        ([(0, 4), (1, 5), (2, 6), (3, 7)], 2, [(0, 1, 4, 5), (2, 3, 6, 7)]),
        ([(0,), (1,), (2,)], 2, [(0,), (1, 2)]),
        ([(0, 1)], 2, [(), ()]),
        ([], 3, [(), (), ()]),
    ],
)
def test_cores_are_shared_out_whole(
    monkeypatch: pytest.MonkeyPatch, cores: list[tuple[int, ...]], num: int, shared: list[tuple[int, ...]]
) -> None:
    monkeypatch.setattr("sensorium.actors.replicas.cores.processors_by_core", lambda: cores)
    monkeypatch.setattr("sensorium.actors.replicas.cores.num_processors", lambda: 8)
    assert shared_cores(num) == shared


def test_devices_are_taken_in_turn() -> None:
    assert shared_devices("cuda:0,3", 4) == ["cuda:0", "cuda:3", "cuda:0", "cuda:3"]
    assert shared_devices("cuda:1", 2) == ["cuda:1", "cuda:1"]
    assert shared_devices("auto", 2) == ["auto", "auto"]
