"""A prompt's blocks come from another place while its request waits, or they are computed."""

from __future__ import annotations

import pytest
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.protocols.engine.messages import KvSource, Pool, Request, RequestId
from sensorium.protocols.errors import BadRequestError
from support.fake_runner import FakeRunner, answer_alone
from support.fake_transfers import FakeTransfers
from support.scheduler_dialogs import generate, make_loop
from support.step_loop import StepLoop

PROMPT = tuple(range(1, 19))
"""Four blocks of four tokens, and two more."""
OTHER = KvSource("other", len(PROMPT))


def serving(loop: StepLoop) -> FakeTransfers:
    """The transfers of the loop's runner, where another place has the blocks of the prompt."""
    elsewhere = make_loop()
    elsewhere.submit(generate("first", PROMPT, max_tokens=1))
    elsewhere.run()
    there, here = elsewhere.runner, loop.runner
    assert isinstance(there, FakeRunner)
    assert isinstance(here, FakeRunner)
    for name, block in elsewhere.scheduler._kv.pool._by_hash.items():
        here.transfers.export("other", name, there.cells_of(block))
    return here.transfers


def num_fed(loop: StepLoop) -> int:
    return sum(step.num_rows for plan in loop.plans for step in plan.sequences if step.start < len(PROMPT))


def expect_free(loop: StepLoop) -> None:
    statistics = loop.scheduler.statistics()
    assert statistics.num_free_blocks == statistics.num_total_blocks


@pytest.mark.parametrize(("num_tokens", "num_left"), [(18, 2), (16, 2), (11, 10), (3, 18)])
def test_what_arrives_is_not_computed(num_tokens: int, num_left: int) -> None:
    """As many whole blocks as the place has."""
    loop = make_loop()
    serving(loop)
    request = generate("a", PROMPT, kv_from=KvSource("other", num_tokens))
    loop.submit(request)
    loop.run()
    assert tuple(loop.tokens[request.request_id]) == answer_alone(request)[0]
    assert num_fed(loop) == num_left
    assert loop.first[request.request_id].num_cached == len(PROMPT) - num_left
    expect_free(loop)


def test_what_is_here_already_is_not_fetched() -> None:
    loop = make_loop()
    serving(loop)
    loop.submit(generate("before", PROMPT[:8], max_tokens=1))
    loop.run()
    loop.submit(generate("a", PROMPT, kv_from=OTHER))
    loop.run()
    (transfer,) = [each for plan in loop.plans for each in plan.transfers]
    assert len(transfer.blocks) == len(transfer.names) == 2
    loop.submit(generate("b", PROMPT, kv_from=OTHER))
    loop.run()
    assert sum(len(plan.transfers) for plan in loop.plans) == 1


@pytest.mark.parametrize("place", ["other", "nowhere"])
def test_what_fails_is_computed(place: str) -> None:
    loop = make_loop()
    serving(loop).broken_places = {"other"}
    request = generate("a", PROMPT, kv_from=KvSource(place, 18))
    loop.submit(request)
    loop.run()
    assert tuple(loop.tokens[request.request_id]) == answer_alone(request)[0]
    assert num_fed(loop) == len(PROMPT)
    assert loop.scheduler.statistics().num_transfers_failed == 1
    expect_free(loop)


@pytest.mark.parametrize("is_broken", [False, True])
def test_blocks_outlive_a_request_that_is_cancelled_until_their_transfer_ends(is_broken: bool) -> None:
    loop = make_loop()
    transfers = serving(loop)
    loop.submit(generate("a", PROMPT, kv_from=OTHER))
    assert loop.plan().transfers
    assert loop.scheduler.abort(RequestId("a"))
    num_total = loop.scheduler.statistics().num_total_blocks
    assert loop.scheduler.statistics().num_free_blocks == num_total - 4
    if is_broken:
        transfers.broken_places = {"other"}
    loop.run()
    expect_free(loop)
    loop.submit(generate("b", PROMPT))
    loop.run()
    assert num_fed(loop) == (len(PROMPT) if is_broken else 2), "what had arrived is found"


def test_others_go_on_meanwhile_with_what_blocks_are_left() -> None:
    loop = make_loop(num_blocks=9, max_context=36)
    serving(loop)
    fetching, other = generate("a", PROMPT, kv_from=OTHER), generate("b", tuple(range(30, 45)), max_tokens=14)
    loop.submit(fetching)
    loop.submit(other)
    plan = loop.plan()
    assert plan.transfers
    assert [step.begin.request_id for step in plan.sequences if step.begin] == ["b"]
    loop.run()
    for request in (fetching, other):
        assert tuple(loop.tokens[request.request_id]) == answer_alone(request)[0]
    expect_free(loop)


def test_a_vector_of_all_rows_computes_them() -> None:
    loop = make_loop()
    serving(loop)
    loop.submit(Request(RequestId("a"), PROMPT, Pool("mean"), kv_from=OTHER))
    loop.run()
    assert not any(plan.transfers for plan in loop.plans)
    assert "a" in loop.outcomes


def test_models_that_keep_other_things_and_places_that_have_nothing_are_refused() -> None:
    config = SchedulerConfig(num_blocks=64, num_state_slots=4)
    with pytest.raises(BadRequestError, match="kv_from is for prompts of models whose layers all keep"):
        config.check(generate("a", PROMPT, kv_from=OTHER))
    with pytest.raises(BadRequestError, match="num_tokens is 0; allowed: at least 1"):
        make_loop().submit(generate("a", PROMPT, kv_from=KvSource("other", 0)))
