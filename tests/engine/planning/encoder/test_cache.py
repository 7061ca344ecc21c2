"""The ledger of encoder outputs: single-flight, references, a budget of bytes, waiting, failures."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from sensorium.engine.planning.encoder.admission_queue import MAX_OVERTAKES, Ticket
from sensorium.engine.planning.encoder.effects import CacheEffect, Drop, Encode, FeaturesNeeded, Free, Grant
from sensorium.engine.planning.service_classes import SERVICES
from sensorium.protocols.engine.messages import ContentHash, EncoderItem, Lane
from sensorium.protocols.errors import BadRequestError, OverloadedError
from support.ledger import features, item, make

T = [Ticket(number) for number in range(100)]
A, B, C, D = (item(name) for name in "ABCD")


def test_one_encode_however_many_need_it() -> None:
    cache = make()
    assert cache.need(T[0], [A]) == [Encode(0, A.features), Grant(T[0], (0,))]
    assert cache.need(T[1], [A]) == [Grant(T[1], (0,))]
    assert cache.encoded(0, 90) == []
    assert cache.need(T[2], [A]) == [Grant(T[2], (0,))]
    assert (cache.num_references, cache.num_entries, cache.num_bytes) == (3, 1, 90)
    assert (cache.num_hits, cache.num_misses) == (2, 1)


def test_released_content_is_kept_and_found_again() -> None:
    cache = make()
    cache.need(T[0], [A])
    cache.encoded(0, 100)
    assert cache.release(T[0]) == []
    assert cache.num_references == 0
    assert cache.need(T[1], [A]) == [Grant(T[1], (0,))]


def test_the_longest_free_is_evicted_and_only_when_room_is_needed() -> None:
    cache = make()
    for number, each in enumerate((A, B)):
        cache.need(T[number], [each])
        cache.encoded(number, 100)
    cache.release(T[1])
    cache.release(T[0])
    assert cache.num_entries == 2
    assert cache.need(T[2], [C]) == [Free(1), Encode(2, C.features), Grant(T[2], (2,))]
    assert cache.need(T[3], [A]) == [Grant(T[3], (0,))]


def test_what_all_its_holders_called_passing_goes_first() -> None:
    cache = make(max_bytes=400)
    for number, each in enumerate((A, B, C, D)):
        cache.need(T[number], [each])
        cache.encoded(number, 100)
    cache.need(T[4], [D])
    for number, is_passing in ((0, False), (1, True), (2, True), (3, True), (4, False)):
        assert cache.release(T[number], is_passing=is_passing) == []
    assert cache.need(T[5], [B]) == [Grant(T[5], (1,))], "it is kept while there is room"
    assert cache.release(T[5], is_passing=True) == []
    effects = cache.need(T[6], [item(f"{letter}100") for letter in "vwxy"])
    freed = [effect.slot for effect in effects if isinstance(effect, Free)]
    assert freed == [2, 1, 0, 3], "the longest free first; D was also held by one who may come again"


def test_of_what_is_passing_only_so_much_is_kept_when_nobody_holds_it() -> None:
    cache = make(max_bytes=1000, max_passing_bytes=150)
    for number, each in enumerate((A, B, C)):
        cache.need(T[number], [each])
        cache.encoded(number, 100)
    assert cache.release(T[0], is_passing=True) == []
    assert cache.release(T[1]) == [], "what may be asked for again has all the room"
    assert cache.release(T[2], is_passing=True) == [Free(0)]
    cache.check()
    large = item("D200")
    cache.need(T[3], [large])
    cache.encoded(3, 200)
    assert cache.release(T[3], is_passing=True) == [Free(2)], "the newest is kept, however large"
    assert cache.need(T[4], [large]) == [Grant(T[4], (3,))]
    cache.check()


def test_all_items_come_at_once_and_what_is_wanted_is_not_evicted_for_the_rest() -> None:
    cache = make()
    cache.need(T[0], [A])
    cache.encoded(0, 100)
    cache.need(T[1], [B])
    cache.encoded(1, 100)
    cache.release(T[0])
    assert cache.need(T[2], [C, A]) == [], "B is held, so there is no room for C"
    assert cache.num_references == 1, "who waits holds nothing"
    assert cache.release(T[1]) == [Free(1), Encode(2, C.features), Grant(T[2], (2, 0))]
    assert cache.need(T[3], [A, C, A]) == [Grant(T[3], (0, 2, 0))]


def test_waiting_is_first_come_first_served_and_bounded() -> None:
    cache = make(max_bytes=100)
    cache.need(T[0], [A])
    cache.encoded(0, 100)
    assert cache.need(T[1], [B]) == []
    assert cache.need(T[2], [C]) == []
    with pytest.raises(OverloadedError, match="all 100 bytes of the encoder cache are in use and 2 others"):
        cache.need(T[3], [D])
    assert cache.release(T[3]) == [], "giving up what was refused is harmless"
    assert cache.need(T[4], [A]) == [Grant(T[4], (0,))], "what is there needs no room"
    assert cache.release(T[0]) == []
    assert cache.release(T[4]) == [Free(0), Encode(1, B.features), Grant(T[1], (1,))]
    assert cache.num_waiting == 1


def test_small_requests_do_not_starve_a_big_one() -> None:
    """Somebody always holds something, yet the one that needs everything gets it."""
    cache = make(max_bytes=200, max_waiting=100)
    big = [item("x100"), item("y100")]
    effects = cache.need(T[0], [A])
    cache.encoded(0, 100)
    assert cache.need(T[1], big) == []
    assert cache.need(T[2], [item("z10")]) == [], "there would be room, but others were first"
    number = 10
    while not any(isinstance(effect, Grant) and effect.ticket == T[1] for effect in effects):
        effects = cache.need(T[number], [A])
        effects += cache.release(T[number - 1] if number > 10 else T[0])
        number += 1
        assert number <= 12 + MAX_OVERTAKES
        cache.check()


def test_waiters_for_one_content_are_served_together() -> None:
    cache = make(max_bytes=100, max_waiting=3)
    cache.need(T[0], [A])
    cache.encoded(0, 100)
    for number, each in ((1, B), (2, C), (3, B)):
        assert cache.need(T[number], [each]) == []
    effects = cache.release(T[0])
    assert effects == [Free(0), Encode(1, B.features), Grant(T[1], (1,)), Grant(T[3], (1,))]
    assert cache.num_waiting == 1


def test_a_waiter_withdraws_and_lets_the_next_one_pass() -> None:
    cache = make()
    cache.need(T[0], [A])
    assert cache.need(T[1], [item("x150")]) == []
    assert cache.need(T[2], [B]) == []
    assert cache.release(T[1]) == [Encode(1, B.features), Grant(T[2], (1,))]
    assert cache.num_waiting == 0
    assert cache.release(T[1]) == [], "giving up twice is harmless"


def test_what_can_never_fit_is_refused_with_the_numbers() -> None:
    cache = make()
    with pytest.raises(BadRequestError, match="media take 201 bytes encoded; the encoder cache has 200"):
        cache.need(T[0], [A, item("x101")])
    assert cache.need(T[1], [A, A, A]) != [], "the same content counts once"


def test_encodings_larger_than_estimated_end_in_no_deadlock() -> None:
    cache = make()
    cache.need(T[0], [A])
    assert cache.encoded(0, 250) == []
    assert cache.num_bytes == 250
    assert cache.need(T[1], [B]) == []
    assert cache.release(T[0]) == [Free(0), Encode(1, B.features), Grant(T[1], (1,))]


def test_encodings_smaller_than_estimated_make_room() -> None:
    cache = make()
    cache.need(T[0], [item("x150")])
    assert cache.need(T[1], [B]) == []
    assert cache.encoded(0, 60) == [Encode(1, B.features), Grant(T[1], (1,))]


def test_an_encode_nobody_wants_is_dropped() -> None:
    cache = make()
    cache.need(T[0], [A])
    assert cache.release(T[0]) == [Drop(0)]
    assert cache.dropped(0) == []
    assert (cache.num_entries, cache.num_bytes) == (0, 0)
    assert cache.need(T[1], [A]) == [Encode(1, A.features), Grant(T[1], (1,))]


def test_an_encode_that_runs_already_becomes_a_free_entry() -> None:
    cache = make()
    cache.need(T[0], [A])
    assert cache.release(T[0]) == [Drop(0)]
    assert cache.encoded(0, 100) == []
    assert cache.need(T[1], [A]) == [Grant(T[1], (0,))]


def test_wanted_again_while_dropping_waits_for_the_outcome() -> None:
    for outcome in ("dropped", "encoded", "failed"):
        cache = make()
        cache.need(T[0], [A])
        cache.release(T[0])
        assert cache.need(T[1], [B, A]) == [Encode(1, B.features)]
        match outcome:
            case "dropped":
                assert cache.dropped(0) == [Encode(2, A.features), Grant(T[1], (1, 2))]
            case "encoded":
                assert cache.encoded(0, 100) == [Grant(T[1], (1, 0))]
            case _:
                assert cache.failed(0) == [Grant(T[1], (1, 0))]
        cache.check()


def test_a_failed_encode_is_tried_again_under_another_slot() -> None:
    cache = make(max_bytes=100)
    cache.need(T[0], [A])
    cache.need(T[1], [A])
    assert cache.failed(0) == []
    assert (cache.num_entries, cache.num_bytes) == (0, 0)
    assert cache.need(T[2], [A]) == [Encode(1, A.features), Grant(T[2], (1,))]
    assert cache.release(T[0]) == []
    assert cache.release(T[1]) == [], "the runner has nothing to free"
    assert cache.num_references == 1


def test_no_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="max_bytes is 0"):
        make(max_bytes=0)


MOST = 3
"""May pass the first of a class, in the machine."""
SIZES = (30, 60, 90, 120, 180)
items = st.sampled_from([item(f"{letter}{size}") for letter in "AB" for size in SIZES])


class LedgerMachine(RuleBasedStateMachine):
    """The ledger with a scheduler that drops, encodes and fails as it likes."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = make(max_bytes=300, max_waiting=4, max_overtakes=MOST, max_passing_bytes=100).cache
        self.numbers = itertools.count()
        self.claims: dict[Ticket, list[str]] = {}
        self.waiting: dict[Ticket, int] = {}  # classes, in order of arrival
        self.passed: Counter[Ticket] = Counter()  # while first of its class, by its own class or better ones
        self.better: Counter[tuple[Ticket, int]] = Counter()  # than that class, served while the claim waited
        self.worse: Counter[tuple[Ticket, int]] = Counter()  # of that class, served while the claim waited
        self.granted: dict[Ticket, tuple[int, ...]] = {}
        self.to_supply: dict[Ticket, tuple[ContentHash, ...]] = {}  # who is to send, and what
        self.encoding: dict[int, str] = {}  # what the scheduler was told to encode
        self.contents: dict[int, str] = {}  # what is in the slots
        self.failed: dict[int, str] = {}
        self.bytes: Counter[int] = Counter()
        self.used: set[int] = set()

    def note_served(self, ticket: Ticket) -> None:
        """Nobody is passed by those who may not, nor by too many."""
        place = self.waiting[ticket]
        is_there = all(entry.sender != ticket for entry in self.cache._claims[ticket].entries)
        firsts = {service: other for other, service in reversed(self.waiting.items())}
        for service, first in firsts.items():
            self.passed[first] += service >= place and first != ticket
            assert self.passed[first] <= MOST
        for other, service in self.waiting.items():
            assert service != place or other >= ticket or is_there, "not in order of arrival"
            self.better.update((other, worse) for worse in range(place + 1, len(SERVICES)))
            self.worse[other, place] += service < place
            assert self.worse[other, place] <= 1 + self.better[other, place] // MOST
        del self.waiting[ticket]

    def perform(self, effects: list[CacheEffect]) -> None:
        for ticket in [ticket for ticket in self.cache._claims if ticket in self.waiting]:
            self.note_served(ticket)
        for effect in effects:
            match effect:
                case Encode(slot, features):
                    assert slot not in self.used, "a slot names one encoding for ever"
                    self.used.add(slot)
                    self.encoding[slot] = features.data.decode()
                    assert list(self.live()).count(self.encoding[slot]) == 1, "encoded twice"
                    self.bytes[slot] = int(self.encoding[slot][1:])
                case Grant(ticket, slots):
                    assert ticket not in self.granted
                    self.granted[ticket] = slots
                case FeaturesNeeded(ticket, missing):
                    assert ticket not in self.granted
                    assert not set(missing) & set(self.live()), "asked for what is here"
                    for other, theirs in self.to_supply.items():
                        assert other == ticket or not set(theirs) & set(missing), "asked of two"
                    self.to_supply[ticket] = missing
                case Free(slot):
                    assert not self.is_held(slot), "freed while held"
                    del self.contents[slot]
                    del self.bytes[slot]
                case Drop(slot):
                    assert not self.is_held(slot)

    def live(self) -> list[str]:
        return [*self.encoding.values(), *self.contents.values()]

    def is_held(self, slot: int) -> bool:
        return any(slot in slots for slots in self.granted.values())

    @rule(wanted=st.lists(items, max_size=4), place=st.integers(0, len(SERVICES) - 1))
    def need(self, wanted: list[EncoderItem], place: int) -> None:
        ticket = Ticket(next(self.numbers))
        num_before = sum(service <= place for service in self.waiting.values())
        try:
            effects = self.cache.need(ticket, [each.key for each in wanted], Lane(SERVICES[place]))
        except OverloadedError:
            assert num_before >= 4
            return
        except BadRequestError:
            assert sum(each.num_tokens for each in set(wanted)) + 20 * len(wanted) > 300
            return
        self.claims[ticket] = [each.content_hash for each in wanted]
        self.waiting[ticket] = place
        self.perform(effects)
        assert ticket not in self.waiting or num_before < 4

    @precondition(lambda self: self.claims)
    @rule(data=st.data(), is_passing=st.booleans())
    def release(self, data: st.DataObject, is_passing: bool) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.claims)))
        del self.claims[ticket]
        self.waiting.pop(ticket, None)
        self.granted.pop(ticket, None)
        self.to_supply.pop(ticket, None)
        self.perform(self.cache.release(ticket, is_passing=is_passing))

    @precondition(lambda self: self.to_supply)
    @rule(data=st.data(), num=st.integers(1, 4))
    def send(self, data: st.DataObject, num: int) -> None:
        """All of it or a part: what one is asked for may grow while its answer is on its way."""
        ticket = data.draw(st.sampled_from(sorted(self.to_supply)))
        missing = self.to_supply.pop(ticket)
        self.perform(self.cache.supply(ticket, features(missing[:num])))
        assert (ticket in self.to_supply) == (len(missing) > num)

    @precondition(lambda self: self.encoding)
    @rule(data=st.data(), is_failure=st.booleans(), more=st.sampled_from([-10, 0, 20]))
    def finish_encode(self, data: st.DataObject, is_failure: bool, more: int) -> None:
        slot = data.draw(st.sampled_from(sorted(self.encoding)))
        name = self.encoding.pop(slot)
        if is_failure:
            self.failed[slot] = name
            self.bytes[slot] = 0
            self.perform(self.cache.failed(slot))
        else:
            self.contents[slot] = name
            self.bytes[slot] += more
            self.perform(self.cache.encoded(slot, self.bytes[slot]))

    @precondition(lambda self: self.droppable())
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        slot = data.draw(st.sampled_from(self.droppable()))
        del self.encoding[slot], self.bytes[slot]
        self.perform(self.cache.dropped(slot))

    def droppable(self) -> list[int]:
        return [slot for slot in sorted(self.encoding) if not self.is_held(slot)]

    @invariant()
    def only_requested_items_are_granted(self) -> None:
        self.cache.check()
        assert self.cache.num_waiting == len(self.waiting)
        everything = self.contents | self.encoding | self.failed
        for ticket, slots in self.granted.items():
            assert [everything[slot] for slot in slots] == self.claims[ticket]

    @invariant()
    def the_budget_is_kept_but_for_wrong_estimates(self) -> None:
        expected = {name for missing in self.to_supply.values() for name in missing}
        assert self.cache.num_bytes == sum(self.bytes.values()) + sum(int(name[1:]) for name in expected)
        surplus = sum(max(0, self.bytes[slot] - int(name[1:])) for slot, name in self.contents.items())
        assert self.cache.num_bytes <= 300 + surplus

    def teardown(self) -> None:
        """Whatever happened, everybody is served in the end and everything is given back."""
        while self.claims or self.encoding:
            for ticket in sorted(self.to_supply):
                missing = self.to_supply.pop(ticket)
                self.perform(self.cache.supply(ticket, features(missing)))
            for slot in sorted(self.encoding):
                self.contents[slot] = self.encoding.pop(slot)
                self.perform(self.cache.encoded(slot, self.bytes[slot]))
            assert self.granted or self.to_supply or not self.claims, "all wait"
            for ticket in sorted(self.granted):
                del self.claims[ticket], self.granted[ticket]
                self.perform(self.cache.release(ticket))
        assert (self.cache.num_references, self.cache.num_waiting) == (0, 0)
        assert self.cache.num_entries == len(self.contents)
        assert self.cache.num_bytes <= 300


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
