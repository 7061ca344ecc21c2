"""Grammars are compiled beside the loop; one that is wrong, or takes too long, fails alone."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable

import msgspec
import pytest
import trio
from sensorium.actors.inference.executor import ThreadWorker
from sensorium.actors.inference.grammars import GrammarCompiler
from sensorium.protocols.engine.messages import Grammar, Lane, SampleRequest
from sensorium.protocols.errors import BadRequestError, OverloadedError
from support.fake_engine import make_fake_engine, request, run_whole
from support.fake_runner import answer_alone
from trio.testing import MockClock, wait_all_tasks_blocked

pytestmark = pytest.mark.slow

FINE, OTHER, WORDS, WRONG, ENDLESS, LARGE = (
    Grammar("regex", source) for source in ("a+", "b+", "c+", "(", "(a*)*", "aa+")
)


class Compiler:
    """Knows one wrong grammar, and one that takes until it is released."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.threads: set[int] = set()
        self.niceness: list[int] = []
        self.compiled: list[Grammar] = []
        self.held: list[tuple[Grammar, str]] = []

    def compile(self, grammar: Grammar, caller: str = "") -> None:
        """See `actors/inference/grammars.py`."""
        self.threads.add(threading.get_ident())
        self.niceness.append(os.getpriority(os.PRIO_PROCESS, 0))
        if grammar == WRONG:
            raise BadRequestError("a bracket is open", param="response_format")
        if grammar == ENDLESS:
            self.go_on.wait()
        self.compiled.append(grammar)

    def is_ready(self, grammar: Grammar) -> bool:
        """See `actors/inference/grammars.py`."""
        return grammar in self.compiled

    def hold(self, grammar: Grammar, caller: str = "") -> None:
        """See `actors/inference/grammars.py`."""
        if grammar == LARGE:
            raise OverloadedError("too little room")
        self.held.append((grammar, caller))

    def release(self, grammar: Grammar, caller: str = "") -> None:
        """See `actors/inference/grammars.py`."""
        self.held.remove((grammar, caller))


def with_grammar(name: str, grammar: Grammar) -> SampleRequest:
    plain = request(name)
    sampling = msgspec.structs.replace(plain.task.sampling, grammar=grammar)
    return msgspec.structs.replace(
        plain, task=msgspec.structs.replace(plain.task, sampling=sampling), lane=Lane(caller="ada")
    )


async def test_a_bad_grammar_fails_alone_while_others_are_answered() -> None:
    compiler = Compiler()
    engine = make_fake_engine(make_worker=ThreadWorker, grammars=compiler)
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run)

        async def fail(name: str, grammar: Grammar, message: str) -> None:
            with pytest.raises(BadRequestError, match=message):
                await run_whole(engine, with_grammar(name, grammar))

        async with trio.open_nursery() as askers:
            askers.start_soon(fail, "wrong", WRONG, "a bracket is open")
            askers.start_soon(fail, "endless", ENDLESS, "longer than 0.5 s to compile")
            answer = await run_whole(engine, with_grammar("fine", FINE))
        assert answer.token_ids == answer_alone(request("fine"))[0]
        assert compiler.compiled == [FINE]
        assert not compiler.held
        assert threading.get_ident() not in compiler.threads
        assert engine.statistics().num_steps > 0
        compiler.go_on.set()
        nursery.cancel_scope.cancel()


async def test_a_grammar_is_held_as_long_as_its_request_needs_it() -> None:
    compiler = Compiler()
    engine = make_fake_engine(make_worker=ThreadWorker, grammars=compiler)
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        async with engine.placed() as place, place.run(with_grammar("a", FINE)):
            assert compiler.held == [(FINE, "ada")]
        assert not compiler.held
        with pytest.raises(OverloadedError, match="too little room"):
            await run_whole(engine, with_grammar("large", LARGE))
        with trio.move_on_after(0.05):
            await run_whole(engine, with_grammar("b", ENDLESS))
        assert not compiler.held
        compiler.go_on.set()
        nursery.cancel_scope.cancel()


async def test_who_was_not_even_begun_is_not_at_fault() -> None:
    compiler = Compiler()
    grammars = GrammarCompiler(compiler, timeout_s=0.2)
    errors: list[type[Exception]] = []

    async def complete() -> None:
        try:
            await grammars.compile(ENDLESS)
        except (BadRequestError, OverloadedError) as error:
            errors.append(type(error))

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(complete)
    assert sorted(each.__name__ for each in errors) == ["BadRequestError"] * 2 + ["OverloadedError"]
    compiler.go_on.set()
    with trio.fail_after(5):
        await grammars.compile(FINE)


async def test_no_caller_has_all_places_and_what_is_ready_needs_none() -> None:
    """Threads that were given up keep theirs."""
    compiler = Compiler()
    grammars = GrammarCompiler(compiler, timeout_s=0.5)
    await grammars.compile(FINE, caller="you")

    async def complete(caller: str) -> None:
        with pytest.raises((BadRequestError, OverloadedError)):
            await grammars.compile(ENDLESS, caller=caller)

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(complete, "me")
    with trio.fail_after(5):
        await grammars.compile(OTHER, caller="you")
    await complete("you")
    with trio.fail_after(5):
        await grammars.compile(FINE, caller="me")
    compiler.go_on.set()
    with trio.fail_after(5):
        await grammars.compile(WORDS, caller="me")
    for _ in range(500):
        if grammars._limiters:
            await trio.sleep(0.01)
    assert not grammars._limiters


async def test_who_leaves_at_any_moment_leaves_nothing_behind() -> None:
    compiler = Compiler()
    grammars = GrammarCompiler(compiler)
    for number in range(300):
        with trio.move_on_after(number * 1e-6):
            await grammars.compile(Grammar("regex", "d" * (number + 1)), caller=f"{number % 2}")
    for _ in range(500):
        if grammars._limiters:
            await trio.sleep(0.01)
    assert not grammars._limiters
    assert compiler.compiled, "some came to a thread"


async def test_a_client_that_leaves_waits_for_nothing() -> None:
    compiler = Compiler()
    with trio.move_on_after(0.05) as scope:
        await GrammarCompiler(compiler).compile(ENDLESS)
    assert scope.cancelled_caught
    compiler.go_on.set()


async def test_models_without_grammars_say_so() -> None:
    with pytest.raises(BadRequestError, match="cannot be given a grammar") as caught:
        await GrammarCompiler(None).compile(FINE)
    assert caught.value.param == "response_format"
    await GrammarCompiler(None).compile(None)


async def test_one_given_up_while_its_thread_begins_leaves_once(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """It had left its place before the thread that would leave it had come to anything."""
    begun_late = list[Callable[[], object]]()

    async def never(work: Callable[[], object], **_: object) -> None:
        begun_late.append(work)
        await trio.sleep_forever()

    monkeypatch.setattr(trio.to_thread, "run_sync", never)
    compiler = Compiler()
    found = GrammarCompiler(compiler, timeout_s=1)
    with pytest.raises(OverloadedError):
        await found.compile(FINE, caller="ada")
    (work,) = begun_late
    work()
    await wait_all_tasks_blocked()
    assert compiler.compiled == [FINE]
    await found.compile(FINE, caller="ada")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread has no niceness of its own")
async def test_compiling_leaves_processors_to_steps() -> None:
    ours, compiler = os.getpriority(os.PRIO_PROCESS, 0), Compiler()
    await GrammarCompiler(compiler).compile(FINE)
    assert compiler.niceness == [min(19, ours + 5)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == ours
