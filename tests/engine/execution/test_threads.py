"""How many threads a step takes, in whichever thread it is executed, and an encode beside it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
import torch
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models.base import EncoderOutput
from sensorium.engine.planning.plan import EncodeStep, Plan, StepResult
from sensorium.protocols.engine.messages import Features
from support.plan_loop import to_features
from support.toy_model import DIM, ToyModel
from support.toy_runner import GOOD, make, run, step


@pytest.mark.parametrize(
    ("mib", "rows", "speaking", "quiet"),
    [(20, 1, 1, 1), (100, 1, 1, 2), (100, 5, 1, 2), (100, 6, 2, 2), (300, 1, 2, 2)],
)
def test_small_steps_take_one_thread_while_somebody_speaks(
    mib: int, rows: int, speaking: int, quiet: int
) -> None:
    """Of models of so many MiB; the smallest gain from no second one."""
    model = ToyModel()
    model.weight_bytes = mib << 20
    runner, before = Runner(model, num_blocks=8, num_threads=2), torch.get_num_threads()
    try:
        for is_quiet, wanted in ((False, speaking), (True, quiet), (False, speaking)):
            runner.execute(Plan(0, is_quiet=is_quiet))
            runner.use_threads(rows)
            assert torch.get_num_threads() == wanted
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("weight_bytes", "few", "many"), [(10**6, 1, 2), (10**9, 2, 2)])
def test_threads_are_those_a_step_gains_from_on_the_thread_that_executes(
    weight_bytes: int, few: int, many: int
) -> None:
    runner = make(ToyModel(weight_bytes=weight_bytes), num_threads=2)
    seen: list[int] = []

    def work() -> None:
        torch.set_num_threads(1)
        run(runner, step(0, (1,) * 20))
        seen.append(torch.get_num_threads())
        run(runner, step(1, GOOD))
        seen.append(torch.get_num_threads())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.set_num_threads(1)
    assert seen == [many, few]


@pytest.mark.parametrize(
    ("num_threads", "encoding", "overlapped", "alone"), [(2, 2, 1, 2), (4, 3, 1, 4), (8, 6, 2, 8)]
)
def test_an_encode_apart_and_the_steps_beside_it_share_the_threads(
    num_threads: int, encoding: int, overlapped: int, alone: int
) -> None:
    is_encoding, may_end = threading.Event(), threading.Event()
    seen: list[int] = []

    class Slow(ToyModel):
        def encode(self, items: Sequence[Features]) -> list[EncoderOutput]:
            if is_encoding.is_set():
                return super().encode(items)
            seen.append(torch.get_num_threads())
            is_encoding.set()
            assert may_end.wait(10)
            return super().encode(items)

    runner, before = make(Slow(), num_threads=num_threads), torch.get_num_threads()
    window = to_features(torch.ones(1, DIM))
    results: list[StepResult] = []
    thread = threading.Thread(
        target=lambda: results.append(
            runner.execute(Plan(0, encodes=(EncodeStep(0, window),), is_overlapped=True))
        )
    )
    try:
        thread.start()
        assert is_encoding.wait(10)
        answer = run(runner, step(0, (1,) * 20))
        seen.append(torch.get_num_threads())
        may_end.set()
        thread.join()
        assert answer[0].token_ids == run(runner, step(1, (1,) * 20))[0].token_ids
        seen.append(torch.get_num_threads())
    finally:
        may_end.set()
        torch.set_num_threads(before)
    assert seen == [encoding, overlapped, alone]
    assert results[0].encoder_bytes.keys() == {0}
