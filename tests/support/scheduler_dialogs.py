"""A scheduler with the fake runner, and what to ask of it, for scripted dialogs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sensorium.engine.models.qwen3_vl.positions import rotary_positions
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.plan import SequenceId
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import (
    Align,
    ContentHash,
    KvSource,
    Lane,
    MediaSpan,
    NgramDraft,
    ProbabilityProbe,
    Request,
    RequestId,
    Sample,
    SampleRequest,
    SamplingParams,
    Service,
)
from support.fake_runner import FakeRunner, answer_alone
from support.step_loop import StepLoop

CONFIG = SchedulerConfig(num_blocks=64, block_size=4, max_context=128, positions=rotary_positions)


def make_loop(**given: int | None) -> StepLoop:
    """`given` options replace those of `CONFIG`."""
    options: dict[str, Any] = dict(given)
    config = replace(CONFIG, **options)
    runner = FakeRunner(num_blocks=config.num_blocks, num_state_slots=config.num_state_slots)
    return StepLoop(Scheduler(config), runner)


def generate(
    name: str,
    prompt: tuple[int, ...] = (1, 2, 3),
    *,
    max_tokens: int = 6,
    draft: tuple[int, ...] = (),
    ngram: NgramDraft | None = None,
    priority: int = 0,
    service: Service = "interactive",
    stop: tuple[int, ...] = (),
    probe: ProbabilityProbe | None = None,
    on: str | None = None,
    media: tuple[MediaSpan, ...] = (),
    prompt_logprobs: int | None = None,
    kv_from: KvSource | None = None,
) -> SampleRequest:
    """A request; `on` names what it listens to."""
    return Request(
        RequestId(name),
        prompt,
        Sample(
            SamplingParams(max_tokens=max_tokens, stop_token_ids=stop, prompt_logprobs=prompt_logprobs),
            draft_token_ids=draft,
            ngram=ngram,
            probe=probe,
        ),
        encoder_hash=None if on is None else ContentHash(on),
        media=media,
        lane=Lane(service, priority),
        kv_from=kv_from,
    )


def align(
    name: str, *, token_ids: tuple[int, ...] = (1, 2, 3, 4, 5), service: Service = "interactive"
) -> Request[Align]:
    """An alignment on A."""
    lane = Lane(service)
    return Request(RequestId(name), token_ids, Align(2, 4, 10), encoder_hash=ContentHash("A"), lane=lane)


def span(name: str, start: int, num_tokens: int, grid: tuple[int, int, int] | None = None) -> MediaSpan:
    """Where an item lies in a prompt."""
    return MediaSpan(ContentHash(name), start, num_tokens, grid)


def expect_answer(loop: StepLoop, request: SampleRequest) -> None:
    """It was given what it gets alone."""
    end = loop.ends[request.request_id]
    assert (tuple(loop.tokens[request.request_id]), end.finish_reason) == answer_alone(request)


def ids(loop: StepLoop) -> list[list[str]]:
    """Request ids of each plan that feeds something."""
    names: dict[SequenceId, str] = {}
    lines: list[list[str]] = []
    for plan in loop.steps:
        for step in plan.sequences:
            if step.begin is not None:
                names[step.sequence_id] = step.begin.request_id
        lines.append([names[step.sequence_id] for step in plan.sequences])
    return lines


def expect_all_free(loop: StepLoop) -> None:
    """Nobody holds a block, nobody waits."""
    statistics = loop.scheduler.statistics()
    assert statistics.num_free_blocks == statistics.num_total_blocks
    assert (statistics.num_running, statistics.num_waiting) == (0, 0)
