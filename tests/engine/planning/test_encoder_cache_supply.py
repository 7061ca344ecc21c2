"""Who is asked for features: one of those who need them, as long as nobody has sent them."""

from __future__ import annotations

from sensorium.engine.planning.encoder.admission_queue import Ticket
from sensorium.engine.planning.encoder.effects import Encode, FeaturesNeeded, Grant
from sensorium.protocols.engine.messages import ContentHash
from support.ledger import features, item, make

T = [Ticket(number) for number in range(4)]
A, B = item("A"), item("B")


def test_features_are_asked_of_the_first_who_needs_them_and_of_nobody_once_they_are_here() -> None:
    cache = make().cache
    assert cache.need(T[0], [A.key, B.key]) == [FeaturesNeeded(T[0], (ContentHash("A"), ContentHash("B")))]
    assert cache.need(T[1], [B.key]) == []
    assert cache.num_bytes == 200, "what is to come has its room"
    assert cache.supply(T[0], features([ContentHash("A"), ContentHash("B")])) == [
        Encode(0, A.features),
        Encode(1, B.features),
        Grant(T[0], (0, 1)),
        Grant(T[1], (1,)),
    ]
    assert cache.need(T[2], [A.key]) == [Grant(T[2], (0,))]
    cache.encoded(0, 100)
    assert cache.need(T[3], [A.key]) == [Grant(T[3], (0,))]


def test_if_the_sender_gives_up_the_next_is_asked() -> None:
    cache = make().cache
    cache.need(T[0], [A.key])
    for number in (1, 2):
        assert cache.need(T[number], [A.key]) == []
    assert cache.release(T[0]) == [FeaturesNeeded(T[1], (ContentHash("A"),))]
    assert cache.supply(T[0], features([ContentHash("A")])) == [], "who gave up has nothing to say"
    assert cache.release(T[2]) == [], "nobody waited for it"
    granted = [Encode(0, A.features), Grant(T[1], (0,))]
    assert cache.supply(T[1], features([ContentHash("A")])) == granted
    assert cache.num_references == 1


def test_one_who_is_sending_is_asked_for_more_when_that_is_here() -> None:
    cache = make().cache
    assert cache.need(T[0], [B.key]) == [FeaturesNeeded(T[0], (ContentHash("B"),))]
    assert cache.need(T[1], [A.key, B.key]) == [FeaturesNeeded(T[1], (ContentHash("A"),))]
    assert cache.release(T[0]) == [FeaturesNeeded(T[1], (ContentHash("A"), ContentHash("B")))]
    # What it sends was on its way before it could hear of this.
    assert cache.supply(T[1], features([ContentHash("A")])) == [
        Encode(1, A.features),
        FeaturesNeeded(T[1], (ContentHash("B"),)),
    ]
    assert cache.supply(T[1], features([ContentHash("B")])) == [Encode(0, B.features), Grant(T[1], (1, 0))]


def test_what_nobody_sends_any_more_leaves_nothing() -> None:
    cache = make(max_bytes=100).cache
    cache.need(T[0], [A.key])
    assert cache.need(T[1], [B.key]) == []
    assert cache.release(T[0]) == [FeaturesNeeded(T[1], (ContentHash("B"),))], (
        "its room is free, and nothing to drop"
    )
    assert cache.release(T[1]) == []
    assert (cache.num_entries, cache.num_bytes, cache.num_references) == (0, 0, 0)
