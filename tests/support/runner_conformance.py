"""What every runner owes the scheduler, checked through the scheduler: the fake passes it, and real ones.

A `RunnerCase` says how to make the runner and gives it something to do. `check_runner` then shows that
batch composition, drafts, chunked prompts, recomputation, cached prefixes, revised sessions and plans made
ahead change no token, and that what is aborted leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.plan import Slot
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.protocols.engine.messages import (
    ContentHash,
    EncoderItem,
    NgramDraft,
    RequestId,
    SampleRequest,
    SessionKey,
)
from support.step_loop import PlanRunner, StepLoop


@dataclass(frozen=True)
class RunnerCase:
    """A runner and some work for it.

    `requests` name their `items` by content hash, in `encoder_hash` or in media spans. They are greedy or
    seeded, without drafts and sessions; one answer at least is 8 tokens long, so that there is something to
    compare. `config` has blocks for all of them at once. `make_runner` is called for every check: it may
    share the model, but not the runner.
    """

    make_runner: Callable[[], PlanRunner]
    items: Sequence[EncoderItem]
    requests: Sequence[SampleRequest]
    config: SchedulerConfig


Answer = tuple[tuple[int, ...], str | None]


class CaseLoop(StepLoop):
    """A loop that encodes the items its requests name, each once."""

    def __init__(self, case: RunnerCase, config: SchedulerConfig | None = None) -> None:
        super().__init__(Scheduler(config or case.config), case.make_runner())
        self._items = {item.content_hash: item for item in case.items}
        self._slots: dict[ContentHash, Slot] = {}

    def add(self, request: SampleRequest) -> None:
        """Submit a request on its items."""
        slot = None if request.encoder_hash is None else self._slot(request.encoder_hash)
        self.submit(request, slot, tuple(self._slot(span.content_hash) for span in request.media))

    def answer(self, request: SampleRequest) -> Answer:
        """What a request got."""
        end = self.ends[request.request_id]
        assert end.error is None, end.error
        return tuple(self.tokens[request.request_id]), end.finish_reason

    def answers(self, requests: Iterable[SampleRequest]) -> list[Answer]:
        """What each got."""
        return [self.answer(request) for request in requests]

    def _slot(self, content_hash: ContentHash) -> Slot:
        if content_hash not in self._slots:
            self._slots[content_hash] = len(self._slots)
            self.scheduler.encode(self._slots[content_hash], self._items[content_hash].features)
        return self._slots[content_hash]


def check_runner(case: RunnerCase) -> None:
    """Run every check of this module."""
    alone = answers_alone(case)
    assert max(len(tokens) for tokens, _ in alone) >= 8, "the case is too easy"
    check_batch(case, alone)
    check_overlap(case, alone)
    check_drafts(case, alone)
    check_ngram(case, alone)
    check_chunked_prompts(case, alone)
    check_preemption(case, alone)
    check_prefix_hit(case, alone)
    check_sessions(case, alone)
    check_abort(case, alone)


def answers_alone(case: RunnerCase) -> list[Answer]:
    """Each request's answer on a fresh runner, one at a time."""
    return [run(case, [request])[0] for request in case.requests]


def check_batch(case: RunnerCase, alone: list[Answer]) -> None:
    """All at once, encoded in the plan that first uses them, give what each gives alone; so they do when
    they join one after the other."""
    assert run(case, case.requests) == alone
    loop = CaseLoop(case)
    for request in reversed(case.requests):
        loop.add(request)
        loop.step()
    loop.run()
    assert loop.answers(case.requests) == alone


def check_overlap(case: RunnerCase, alone: list[Answer]) -> None:
    """Two plans in flight, the second made without knowing what the first sampled."""
    loop = CaseLoop(case)
    _add_all(loop, case.requests)
    loop.run(max_in_flight=2)
    assert loop.answers(case.requests) == alone


def check_drafts(case: RunnerCase, alone: list[Answer]) -> None:
    """A right draft saves steps; right, wrong, cut, overlong and foreign drafts change no token."""
    plain = CaseLoop(case)
    _add_all(plain, case.requests)
    plain.run()
    drafts: list[list[tuple[int, ...]]] = [
        [tokens for tokens, _ in alone],
        [tokens[: len(tokens) // 2] for tokens, _ in alone],
        [(*tokens[:3], *(max(token - 1, 0) for token in tokens[3:4]), *tokens[4:]) for tokens, _ in alone],
        [(*tokens, *tokens[:5]) for tokens, _ in alone],
        [alone[(index + 1) % len(alone)][0] for index in range(len(alone))],
    ]
    for number, kind in enumerate(drafts):
        requests = [
            msgspec.structs.replace(
                request, task=msgspec.structs.replace(request.task, draft_token_ids=draft)
            )
            for request, draft in zip(case.requests, kind, strict=True)
        ]
        loop = CaseLoop(case)
        _add_all(loop, requests)
        loop.run(max_in_flight=1 + number % 2)
        assert loop.answers(requests) == alone
        is_greedy = all(request.task.sampling.temperature == 0 for request in requests)
        if number == 0 and is_greedy:
            assert loop.scheduler.statistics().num_draft_accepted > 0
            assert len(loop.steps) < len(plain.steps), "a right draft is verified in one forward"


def check_ngram(case: RunnerCase, alone: list[Answer]) -> None:
    """Drafts by prompt lookup change no token."""
    ngram = NgramDraft(num_tokens=4, max_match=3, min_match=1)
    requests = [
        msgspec.structs.replace(request, task=msgspec.structs.replace(request.task, ngram=ngram))
        for request in case.requests
    ]
    for max_in_flight in (1, 2):
        assert run(case, requests, max_in_flight=max_in_flight) == alone


def check_chunked_prompts(case: RunnerCase, alone: list[Answer]) -> None:
    """Prompts fed a few tokens at a time give the same."""
    for num_tokens in (16, 3):
        config = replace(case.config, max_tokens_per_step=num_tokens)
        assert run(case, case.requests, config=config) == alone


def check_preemption(case: RunnerCase, alone: list[Answer]) -> None:
    """With blocks for hardly more than one request, requests are recomputed and answer the same."""

    def num_blocks_for(num_tokens: int) -> int:
        return -(-num_tokens // case.config.block_size)

    num_blocks = max(
        num_blocks_for(len(each.prompt_token_ids) + each.task.sampling.max_tokens) for each in case.requests
    )
    config = replace(case.config, num_blocks=num_blocks)
    longest, answer = max(zip(case.requests, alone, strict=True), key=lambda pair: len(pair[1][0]))
    twins = [
        msgspec.structs.replace(_renamed(longest, f"twin {number}"), cache_salt=str(number))
        for number in range(2)
    ]
    num_prompt = len(longest.prompt_token_ids)
    can_begin = 2 * num_blocks_for(num_prompt) <= num_blocks
    cannot_end = 2 * num_blocks_for(num_prompt + len(answer[0]) - 1) > num_blocks
    for max_in_flight in (1, 2):
        loop = CaseLoop(case, config)
        _add_all(loop, (*twins, *case.requests))
        loop.run(max_in_flight=max_in_flight)
        assert loop.answers(twins) == [answer, answer]
        assert loop.answers(case.requests) == alone
        if can_begin and cannot_end:
            assert loop.scheduler.statistics().num_preemptions > 0


def check_prefix_hit(case: RunnerCase, alone: list[Answer]) -> None:
    """Asked again, and with the first answers behind the prompt, requests find their KV and say the same."""
    loop = CaseLoop(case)
    _add_all(loop, case.requests)
    loop.run()
    again = [_renamed(request, "again") for request in case.requests]
    _add_all(loop, again)
    loop.run(max_in_flight=2)
    assert loop.answers(again) == alone
    size = case.config.block_size
    if any(len(request.prompt_token_ids) > size for request in case.requests):
        assert loop.scheduler.statistics().num_prefix_hits > 0
    _check_continued(case, alone, loop, session=False)


def check_sessions(case: RunnerCase, alone: list[Answer]) -> None:
    """Revised while running, after parking, and after an eviction, a session's requests say the same."""
    for max_parked_blocks in (None, 0):
        loop = CaseLoop(case, replace(case.config, max_parked_blocks=max_parked_blocks, prefix_caching=False))
        sessions = [_renamed(each, "live", session=True) for each in case.requests]
        _add_all(loop, sessions)
        for _ in range(3):
            loop.plan()
            loop.step()
        revised = [_renamed(each, "revised", session=True) for each in case.requests]
        _add_all(loop, revised)
        loop.run(max_in_flight=2)
        assert loop.answers(revised) == alone
        statistics = loop.scheduler.statistics()
        assert bool(statistics.num_sessions_parked) == (max_parked_blocks is None)
        _check_continued(case, alone, loop, session=True)
        for each in case.requests:
            loop.scheduler.close_session(_session(each))
        statistics = loop.scheduler.statistics()
        assert statistics.num_free_blocks == statistics.num_total_blocks


def check_abort(case: RunnerCase, alone: list[Answer]) -> None:
    """An abort while steps are in flight frees the blocks at once and silences the request."""
    loop = CaseLoop(case)
    _add_all(loop, case.requests)
    loop.plan()
    loop.plan()
    for request in case.requests:
        loop.scheduler.abort(request.request_id)
    assert loop.scheduler.statistics().num_free_blocks == case.config.num_blocks
    loop.run()
    assert not loop.ends
    assert not loop.tokens
    again = [_renamed(request, "again") for request in case.requests]
    _add_all(loop, again)
    loop.run()
    assert loop.answers(again) == alone


def run(
    case: RunnerCase,
    requests: Sequence[SampleRequest],
    *,
    config: SchedulerConfig | None = None,
    max_in_flight: int = 1,
) -> list[Answer]:
    """What requests get that run together on a fresh runner."""
    loop = CaseLoop(case, config)
    _add_all(loop, requests)
    loop.run(max_in_flight=max_in_flight)
    return loop.answers(requests)


def _check_continued(case: RunnerCase, alone: list[Answer], loop: CaseLoop, *, session: bool) -> None:
    """With half of its answer moved into the prompt, a request says the other half.

    Only if nothing but the sequence itself decides what comes next.
    """
    continued: list[SampleRequest] = []
    expected: list[Answer] = []
    for request, (tokens, reason) in zip(case.requests, alone, strict=True):
        half = len(tokens) // 2
        if not half or _counts_generated(request):
            continue
        sampling = msgspec.structs.replace(
            request.task.sampling, max_tokens=request.task.sampling.max_tokens - half
        )
        longer = msgspec.structs.replace(
            _renamed(request, "continued", session=session),
            task=msgspec.structs.replace(
                _renamed(request, "continued", session=session).task, sampling=sampling
            ),
            prompt_token_ids=request.prompt_token_ids + tokens[:half],
        )
        continued.append(longer)
        expected.append((tokens[half:], reason))
    _add_all(loop, continued)
    loop.run()
    assert loop.answers(continued) == expected


def _counts_generated(request: SampleRequest) -> bool:
    """Whether moving generated tokens into the prompt may change the rest."""
    rule = request.task.sampling
    return (
        rule.temperature > 0
        or rule.begin_suppress_token_ids != ()
        or rule.grammar is not None
        or rule.min_tokens > 0
        or rule.presence_penalty != 0
        or rule.frequency_penalty != 0
    )


def _add_all(loop: CaseLoop, requests: Iterable[SampleRequest]) -> None:
    for request in requests:
        loop.add(request)


def _renamed(request: SampleRequest, suffix: str, *, session: bool = False) -> SampleRequest:
    request_id = RequestId(f"{request.request_id} {suffix}")
    key = _session(request) if session else None
    return msgspec.structs.replace(request, request_id=request_id, session=key)


def _session(request: SampleRequest) -> SessionKey:
    return SessionKey(f"session of {request.request_id}")
