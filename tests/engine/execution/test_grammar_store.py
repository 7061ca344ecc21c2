"""What a request holds stays compiled, whatever others send; who would hold too much is refused."""

from __future__ import annotations

import json
import threading
from functools import cache

import pytest
from sensorium.engine.execution import grammar_store
from sensorium.engine.execution.grammar import MAX_LARK_BYTES, GrammarError, compiled_bytes
from sensorium.engine.execution.grammar_store import MAX_KEPT_BYTES, GrammarStore
from sensorium.protocols.engine.messages import Grammar
from sensorium.protocols.errors import BadRequestError, OverloadedError
from support.text_folder import byte_level_tokenizer

SMALL = 256 << 10
"""What the smallest grammars count for."""


@cache
def tokenizer_json() -> str:
    return byte_level_tokenizer().to_str()


def make(*stops: int) -> GrammarStore:
    return GrammarStore(tokenizer_json(), vocab_size=300, stop_token_ids=stops or (299,))


def some(number: int) -> Grammar:
    return Grammar("regex", f"a{{{number + 1}}}")


def counting_for(num_bytes: float, name: str) -> Grammar:
    """One that is quickly compiled."""
    source = f"start: /{name}/".ljust(int(num_bytes**0.5))
    return Grammar("lark", source)


def request(store: GrammarStore, grammar: Grammar, caller: str = "") -> None:
    """Do what a request does before it is queued."""
    store.hold(grammar, caller)
    try:
        if not store.is_ready(grammar):
            store.compile(grammar, caller)
    except OverloadedError:
        store.release(grammar, caller)
        raise


def test_what_is_ready_says_so() -> None:
    store = make()
    store.prepare()
    assert not store.is_ready(some(0))
    with pytest.raises(GrammarError, match="not kept"):
        store.matcher(some(0))
    store.compile(some(0))
    assert store.is_ready(some(0))


@pytest.mark.parametrize("stop", [-1, 10**6])
def test_a_tokenizer_that_cannot_end_an_answer_follows_no_grammar(stop: int) -> None:
    store = make(stop)
    store.prepare()
    with pytest.raises(BadRequestError, match="no stop token") as caught:
        store.compile(some(0))
    assert caught.value.param == "response_format"


def test_what_nobody_holds_is_bounded_by_number_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_store, "MAX_KEPT", 3)
    store = make()
    for i in range(5):
        store.compile(some(i))
    assert list(store._kept) == [some(2), some(3), some(4)]
    store.matcher(some(2))
    store.compile(some(3))
    store.compile(some(0))
    assert list(store._kept) == [some(2), some(3), some(0)], "those that were used last"
    monkeypatch.setattr(grammar_store, "MAX_KEPT_BYTES", 2 * SMALL)
    store.compile(some(1))
    assert list(store._kept) == [some(1)]
    assert store._num_bytes == compiled_bytes(some(1)) == SMALL + 64 * len(some(1).source)


def test_a_grammar_that_is_held_outlasts_any_number_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar_store, "MAX_KEPT", 3)
    store = make()
    held, *others = map(some, range(8))
    store.hold(held)
    store.hold(held, "ada")
    for each in (held, *others):
        store.compile(each)
    assert list(store._kept) == [held, *others[-2:]]
    store.release(held)
    store.compile(others[0])
    assert held in store._kept, "two held it"
    store.release(held, "ada")
    store.compile(others[1])
    assert held not in store._kept
    for each in others:
        request(store, each)
    assert set(store._kept) == set(others), "what is held is bounded by its size alone"
    for each in others:
        store.release(each)
    assert len(store._kept) == 3
    assert store._num_bytes == sum(map(compiled_bytes, store._kept))
    assert not store._held


def test_the_largest_grammar_allowed_is_kept_beside_others() -> None:
    store = make()
    largest = Grammar("lark", "start: /a/".ljust(MAX_LARK_BYTES))
    request(store, some(0), "bob")
    request(store, largest, "ada")
    for each in (some(0), largest):
        store.matcher(each)


def test_what_is_held_is_never_forgotten_for_another_which_is_refused_instead() -> None:
    store = make()
    first, second = (counting_for(MAX_KEPT_BYTES * 0.6, name) for name in "ab")
    request(store, first)
    with pytest.raises(OverloadedError, match="leave too little of 384 MiB"):
        request(store, second)
    store.matcher(first)
    assert not store.is_ready(second)
    assert list(store._held) == [first]
    request(store, some(0))
    store.release(first)
    request(store, second)
    assert set(store._kept) == {some(0), second}


def test_who_gave_up_while_it_was_compiled_leaves_nothing_that_others_miss() -> None:
    store = make()
    first, second = (counting_for(MAX_KEPT_BYTES * 0.6, name) for name in "ab")
    request(store, first)
    store.compile(second)
    assert list(store._kept) == [first]


def test_nobody_holds_so_much_that_others_find_no_room() -> None:
    """Seven times what is left, as of everything that callers share."""
    store = make()
    part = MAX_KEPT_BYTES / 16
    mine = [counting_for(part, f"m{i}") for i in range(16)]
    for each in mine[:14]:
        request(store, each, "ada")
    with pytest.raises(OverloadedError):
        request(store, mine[14], "ada")
    request(store, mine[0], "ada")
    request(store, counting_for(part, "b"), "bob")
    store.matcher(counting_for(part, "b"))


def test_what_was_compiled_before_is_held_under_the_same_bounds() -> None:
    store = make()
    mine = [counting_for(MAX_KEPT_BYTES / 16, f"m{i}") for i in range(16)]
    for each in mine:
        store.compile(each)
    for each in mine[-14:]:
        request(store, each, "ada")
    with pytest.raises(OverloadedError):
        store.hold(mine[1], "ada")
    store.hold(mine[1], "bob")
    store.hold(mine[1], "ada")


def test_many_threads_compile_at_once() -> None:
    store = make()
    failures: list[BaseException] = []

    def work(offset: int) -> None:
        try:
            for i in range(20):
                mine = Grammar("choice", json.dumps([f"{(i + offset) % 10}"]))
                request(store, mine)
                store.matcher(mine)
                store.release(mine)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(store._kept) == 10
    assert store._num_bytes == sum(map(compiled_bytes, store._kept))
