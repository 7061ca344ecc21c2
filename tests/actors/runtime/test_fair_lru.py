"""A shared bound: alone one keeps everything, beside others nobody's few give way to another's many."""

from __future__ import annotations

import random

from sensorium.actors.runtime.fair_lru import FairLru


def lru(most: int = 100) -> FairLru[str, str]:
    return FairLru(most)


def keep(kept: FairLru[str, str], owner: str, count: int, *, size: int = 1) -> int:
    return sum(kept.keep(f"{owner}{number}", owner, owner, size) for number in range(count))


def num_of(kept: FairLru[str, str], owner: str) -> int:
    return sum(kept.peek(f"{owner}{number}") is not None for number in range(1000))


def test_who_is_alone_keeps_all_there_is() -> None:
    kept = lru()
    assert keep(kept, "ada", 150) == 50
    assert (len(kept), kept.size) == (100, 100)
    assert kept.peek("ada49") is None
    assert kept.peek("ada50") == "ada"


def test_what_is_used_stays() -> None:
    kept = lru()
    keep(kept, "ada", 100)
    assert kept.get("ada0") == "ada"
    assert kept.peek("ada1") == "ada"
    assert kept.get("nothing") is None
    kept.keep("one", "more", "ada")
    assert kept.peek("ada0") == "ada"
    assert kept.peek("ada1") is None, "looking is no use"


def test_few_stay_beside_many() -> None:
    kept = lru()
    keep(kept, "bob", 3)
    keep(kept, "ada", 500)
    assert (num_of(kept, "bob"), num_of(kept, "ada")) == (3, 97)


def test_who_came_first_and_left_gives_way() -> None:
    kept = lru()
    keep(kept, "mallory", 500)
    for _ in range(3):
        keep(kept, "ada", 30)
    assert (num_of(kept, "ada"), num_of(kept, "mallory")) == (30, 70)
    keep(kept, "ada", 90)
    assert (num_of(kept, "ada"), num_of(kept, "mallory")) == (50, 50)


def test_of_many_owners_the_oldest_goes() -> None:
    kept = lru()
    for number in range(150):
        kept.keep(f"{number}", "", f"owner {number}")
    assert kept.peek("49") is None
    assert kept.peek("50") is not None


def test_what_is_new_is_never_given_up() -> None:
    """Large as it may be, and although its owner keeps most now."""
    kept = lru()
    for number in range(20):
        kept.keep(f"other {number}", "", f"owner {number}", 4)
    keep(kept, "ada", 4, size=5)
    assert kept.keep("large", "", "ada", 50) == 4 + 8
    assert kept.peek("large") is not None
    assert kept.size == 98


def test_for_one_that_is_large_and_new_who_keeps_much_gives_way_too() -> None:
    kept = lru()
    keep(kept, "bob", 2)
    keep(kept, "mallory", 49)
    assert kept.keep("large", "", "ada", 50) == 1
    assert (num_of(kept, "bob"), num_of(kept, "mallory")) == (2, 48)


def test_a_key_is_kept_once_for_the_last_who_kept_it() -> None:
    kept = lru()
    kept.keep("x", "1", "ada", 50)
    assert kept.keep("x", "2", "bob", 10) == 0
    assert (kept.get("x"), kept.size, len(kept)) == ("2", 10, 1)
    keep(kept, "ada", 500)
    assert kept.peek("x") == "2"


def test_whatever_happens_the_sums_are_right() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        kept = lru(60)
        sizes: dict[str, int] = {}
        owners: dict[str, str] = {}
        for _ in range(300):
            key, owner = f"{rng.randrange(40)}", f"{rng.randrange(5)}"
            if rng.random() < 0.3:
                kept.get(key)
                continue
            sizes[key], owners[key] = rng.randint(1, 30), owner
            kept.keep(key, owner, owner, sizes[key])
            held = [each for each in sizes if kept.peek(each) is not None]
            assert key in held
            assert kept.size == sum(sizes[each] for each in held) <= 60
            assert len(kept) == len(held)
            assert all(kept.peek(each) == owners[each] for each in held)
