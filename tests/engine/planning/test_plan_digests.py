"""Classes of service give the plans that are recorded here, for seeded workloads of every kind.

A digest holds what a policy decides: who is fed how many rows in which step, who begins, who is put back,
what is encoded in a step and what alongside it. A change of the policy on purpose changes the digests: run
this file from the folder `tests`, with that as PYTHONPATH, to print the new ones, and say in the commit what
is decided otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

import pytest
from sensorium.engine.planning.activity import Presence
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.plan import Plan, SequenceId
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import (
    Align,
    ContentHash,
    Lane,
    MediaSpan,
    NgramDraft,
    Pool,
    Prefill,
    Request,
    RequestId,
    Sample,
    SamplingParams,
    Service,
    SessionKey,
    Task,
)
from sensorium.protocols.errors import OverloadedError
from support.fake_runner import STOP_ID, FakeRunner, item
from support.step_loop import StepLoop

NUM_SEEDS: Final = 5
PLACEHOLDER: Final = 3
IDLE_STEPS: Final = 300
"""More than live requests count as present after their last one."""

KINDS: Final[dict[str, dict[str, Any]]] = {
    "equal rows": {"max_running": 6, "max_tokens_per_step": 16, "num_low_priority_tokens": 4},
    "dear rows": {
        "max_running": 8,
        "max_tokens_per_step": 24,
        "num_low_priority_tokens": 4,
        "low_priority_interval": 4,
        "max_batch_tokens_per_step": 8,
        "max_encoder_tokens_per_step": 6,
        "max_rows_during_live": 3,
        "frames_per_row": 1.0,
    },
    "overlapped encodes": {
        "max_running": 6,
        "max_tokens_per_step": 24,
        "num_low_priority_tokens": 4,
        "low_priority_interval": 3,
        "max_encodes_per_step": 2,
        "overlap_encoder": True,
    },
    "few encodes": {
        "max_running": 12,
        "max_tokens_per_step": 60,
        "num_low_priority_tokens": 6,
        "max_encodes_per_step": 2,
        "max_waiting": 400,
    },
    "few blocks": {
        "num_blocks": 18,
        "max_running": 5,
        "max_tokens_per_step": 8,
        "num_low_priority_tokens": 2,
    },
    "one slot": {"max_running": 1, "max_tokens_per_step": 3, "num_low_priority_tokens": 1},
}

DIGESTS: Final[dict[str, str]] = {
    "equal rows": "ed350cf78f6c47c718cca216",
    "dear rows": "b6602ee0ee546efca36cb16c",
    "overlapped encodes": "67717d3113e211b1c12b4c41",
    "few encodes": "8a025b0e103415d737f36ac4",
    "few blocks": "2f8ea897d7c53b5e412d23c4",
    "one slot": "5235193cb78e922d85ef2598",
}


class Workload:
    """Arrivals at one or two engines of a process, drawn from a seed, and what their schedulers decide."""

    def __init__(self, kind: str, seed: int) -> None:
        self.rng = random.Random(f"{kind} {seed}")
        presence = Presence()
        self.engines = [_Engine(KINDS[kind], presence) for _ in range(self.rng.choice([1, 1, 2]))]
        self.lanes: list[Service] = self.rng.choice(
            [["live", "interactive", "batch"], ["interactive", "batch"], ["live", "batch", "batch"]]
        )
        self.share_encoded = self.rng.choice([0.25, 0.25, 0.9])
        self.lengths = self.rng.choice([(1, 3, 8, 20), (1, 3, 8, 20), (20, 24)])
        self.num_arrivals = self.rng.choice([(0, 0, 0, 1, 1, 2, 5), (0, 1, 2, 3)])
        self.num_steps: tuple[int, ...] = (1, 1, 2, 6)
        if kind == "few encodes":  # more than can be done in time
            self.share_encoded, self.num_arrivals, self.lengths = 0.95, (4, 8), (1, 3)
            self.num_steps = (1,)
        self.num_requests = 0

    def lines(self, num_turns: int = 90) -> Iterator[str]:
        """What was decided, a line a call."""
        rng = self.rng
        for _ in range(num_turns):
            engine = rng.choice(self.engines)
            for _ in range(rng.choice(self.num_arrivals)):
                self.submit(engine)
            if rng.random() < 0.05 and engine.names:
                engine.loop.scheduler.abort(rng.choice(engine.names))
            for _ in range(IDLE_STEPS if rng.random() < 0.01 else rng.choice(self.num_steps)):
                yield from engine.step(rng.randint(1, 3), is_encoded=rng.random() < 0.3)
        for engine in self.engines:
            for _ in range(10_000):
                if not (engine.loop.in_flight or engine.loop.overlapped or engine.is_busy):
                    break
                yield from engine.step(1, is_encoded=rng.random() < 0.3)
            statistics = engine.loop.scheduler.statistics()
            yield " ".join(
                str(getattr(statistics, f"num_preemptions_{service}"))
                for service in ("live", "interactive", "batch")
            )
            assert statistics.num_running + statistics.num_waiting == 0, "everything is answered"

    def submit(self, engine: _Engine) -> None:
        """One request of any kind."""
        rng = self.rng
        lane = Lane(rng.choice(self.lanes), rng.choice([0, 0, 0, -1, 1]), rng.choice(["", "a", "a", "b"]))
        prompt = tuple(rng.choice([(1, 2, 5, 1, 2, 5, 6), (1,), (2,) * 9, (rng.randrange(1, 40),)]))
        prompt += (rng.randrange(1, 40),) * rng.choice([2, 2, 4, 20])
        media: tuple[MediaSpan, ...] = ()
        media_slots: tuple[int, ...] = ()
        slot, encoding = None, None
        task = self.task()
        kind = rng.random()
        if kind < self.share_encoded or isinstance(task, Align):
            encoding, slot = engine.encode(rng)
        elif kind < self.share_encoded + 0.15:
            name, placed = engine.encode(rng)
            media = (MediaSpan(name, len(prompt), 3),)
            media_slots, prompt = (placed,), (*prompt, *(PLACEHOLDER,) * 3, 4)
        session = SessionKey(rng.choice("stu")) if lane.service == "live" and rng.random() < 0.3 else None
        request_id = RequestId(f"r{self.num_requests}")
        self.num_requests += 1
        request = Request[Task](
            request_id, prompt, task, encoder_hash=encoding, media=media, session=session, lane=lane
        )
        try:
            engine.loop.submit(request, slot, media_slots)
        except OverloadedError:
            return
        engine.names.append(request_id)

    def task(self) -> Task:
        """Mostly what samples."""
        rng, kind = self.rng, self.rng.random()
        if kind < 0.08:
            return Align(1, 2, 10)
        if kind < 0.16:
            return Pool(rng.choice(["last", "mean"]))
        if kind < 0.2:
            return Prefill()
        sampling = SamplingParams(max_tokens=rng.choice(self.lengths), stop_token_ids=(STOP_ID,))
        draft = tuple(rng.randrange(40) for _ in range(rng.choice([0, 0, 0, 3])))
        return Sample(
            sampling, draft_token_ids=draft, ngram=NgramDraft(3, 2, 1) if rng.random() < 0.1 else None
        )


class _Engine:
    """A scheduler with the fake runner, and names for what its plans hold."""

    def __init__(self, options: dict[str, Any], presence: Presence) -> None:
        config = SchedulerConfig(
            **{"num_blocks": 200, "block_size": 4, "max_context": 60, "max_waiting": 40, **options}
        )
        runner = FakeRunner(num_blocks=config.num_blocks, block_size=config.block_size)
        self.loop = StepLoop(Scheduler(config, presence), runner)
        self.names: list[RequestId] = []
        self.is_busy = False
        self._begun: dict[SequenceId, RequestId] = {}
        self._slots: dict[ContentHash, int] = {}

    def encode(self, rng: random.Random) -> tuple[ContentHash, int]:
        """An item and its slot: a new one, or one that others use."""
        if not self._slots or rng.random() < 0.7:
            name = "x" * rng.choice([1, 2, 5]) + f"{len(self._slots)}"
            self._slots[ContentHash(name)] = len(self._slots)
            self.loop.scheduler.encode(len(self._slots) - 1, item(name).features)
        name, slot = rng.choice(list(self._slots.items()))
        if self._fails(slot):
            return self.encode(rng)
        return name, slot

    def step(self, max_in_flight: int, *, is_encoded: bool) -> Iterator[str]:
        """Plan one; `is_encoded`: what goes alongside the steps is done before."""
        loop = self.loop
        if loop.overlapped and (is_encoded or not loop.in_flight):
            loop.finish_overlapped()
            loop.plan_overlapped()
        while len(loop.in_flight) >= max_in_flight:
            loop.finish()
        num_before = len(loop.overlapped_plans)
        yield f"stands back: {loop.scheduler.stands_back}"
        plan = loop.plan()
        self.is_busy = bool(plan or loop.in_flight)
        if not plan and loop.in_flight:
            loop.finish()
        yield self._line(plan)
        yield from map(self._line, loop.overlapped_plans[num_before:])

    def _fails(self, slot: int) -> bool:
        return any(event.slot == slot and hasattr(event, "error") for event in self.loop.encode_events)

    def _line(self, plan: Plan) -> str:
        fed = []
        for step in plan.sequences:
            if step.begin is not None:
                self._begun[step.sequence_id] = step.begin.request_id
            fed.append((self._begun[step.sequence_id], step.num_rows, step.begin is not None))
        return repr(
            (
                "overlapped" if plan.is_overlapped else "step",
                fed,
                [self._begun[each] for each in plan.ends],
                [each.slot for each in plan.encodes],
                [each.request.request_id for each in plan.wholes],
                plan.is_quiet,
            )
        )


def digest(kind: str, seeds: range) -> str:
    """Of all workloads of one kind."""
    found = blake2b(digest_size=12)
    for seed in seeds:
        for line in Workload(kind, seed).lines():
            found.update(line.encode())
    return found.hexdigest()


@pytest.mark.parametrize("kind", KINDS)
def test_the_plans_are_those_recorded(kind: str) -> None:
    assert digest(kind, range(NUM_SEEDS)) == DIGESTS[kind]


if __name__ == "__main__":
    for kind in KINDS:
        print(f'    "{kind}": "{digest(kind, range(NUM_SEEDS))}",')
