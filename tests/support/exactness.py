"""The proof that an answer depends on its prompt alone: greedy tokens equal `transformers`, however run.

A family's test makes `Case`s with `reference_case` (what `generate` answers in float32) and hands them to
`check_every_way`, which runs them through a real scheduler and runner: alone, among strangers, in chunks,
preempted, from cached prefixes, with drafts, in sessions that were parked or evicted, with plans in flight.
Where the two best logits are closer than `TIE` either token is right, and the comparison ends there.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, NamedTuple

import torch
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models.base import EncoderOutput, MediaEmbedding, Model, RecurrentModel, StepBatch
from sensorium.engine.models.qwen3_vl.positions import rotary_positions
from sensorium.engine.planning.kv.groups import HOLE, PagedGroup
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.plan import Slot
from sensorium.engine.planning.positions import PositionRule
from sensorium.engine.planning.scheduler import Scheduler
from sensorium.kernels.attention.paged_attention import PagedSequence, paged_batch, with_tables
from sensorium.protocols.engine.messages import (
    ContentHash,
    EncoderItem,
    MediaSpan,
    NgramDraft,
    Request,
    RequestId,
    Sample,
    SamplingParams,
    SessionKey,
)
from support.step_loop import StepLoop

TIE: Final = 1e-4
NUM_TOKENS: Final = 24
"""Of an answer: behind any prompt they reach into another block."""
BLOCK_SIZE: Final = 16
_NUM_STRANGERS: Final = 16
_NUM_STATE_SLOTS: Final = 64
"""Of a model with states: for all that run, and for snapshots."""


@dataclass(frozen=True)
class Case:
    """One prompt with the answer of `transformers`, and the margin by which each token won.

    `items` are what the `spans` of the prompt stand for.
    """

    prompt: tuple[int, ...]
    expected: tuple[int, ...]
    margins: tuple[float, ...]
    """One more than `expected` if a stop token ended the answer: it won, too."""
    items: tuple[EncoderItem, ...] = ()
    spans: tuple[MediaSpan, ...] = ()

    def check(self, tokens: Sequence[int], how: str) -> None:
        """Equal up to the first tie."""
        for index, margin in enumerate(self.margins):
            if margin < TIE:
                return
            assert list(tokens[index : index + 1]) == list(self.expected[index : index + 1]), (
                f"{how}: token {index} of {list(tokens)}, expected {self.expected}"
            )
        assert list(tokens) == list(self.expected), how


def reference_case(
    model: Any,  # noqa: ANN401 (a model of transformers)
    prompt: Sequence[int],
    *,
    items: Sequence[EncoderItem] = (),
    spans: Sequence[MediaSpan] = (),
    stop_token_ids: Sequence[int] = (),
    num_tokens: int = NUM_TOKENS,
    **inputs: Any,  # noqa: ANN401 (whatever `generate` of the family takes)
) -> Case:
    """Ask `transformers`; `inputs` are pixels, features, grids, … beside the prompt."""
    # Without a stop token in its config `generate` goes on, as our `ignore_eos`.
    model.generation_config.eos_token_id = list(stop_token_ids) or None
    output = model.generate(
        torch.tensor([list(prompt)]),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.int64),
        max_new_tokens=num_tokens,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
        **inputs,
    )
    best = torch.stack([logits[0].float() for logits in output.logits]).topk(2).values
    answer = output.sequences[0].tolist()[-len(output.logits) :]
    return Case(
        tuple(prompt),
        tuple(token for token in answer if token not in stop_token_ids),
        tuple((best[:, 0] - best[:, 1]).tolist()),
        tuple(items),
        tuple(spans),
    )


def run_model(
    model: Model, cases: Sequence[Case], *, seed: int, block_size: int = BLOCK_SIZE
) -> list[list[int]]:
    """All cases in one ragged batch straight through the model: no scheduler, no runner, any chunks.

    For models whose positions have one axis.
    """
    rng = random.Random(seed)
    per_case = max(-(-(len(case.prompt) + NUM_TOKENS) // block_size) for case in cases)
    groups = model.kv_shape.layout(model.dtype).groups
    blocks = list(range(per_case * len(cases) * len(groups)))
    rng.shuffle(blocks)  # scattered, so that paging is exercised
    tables = [blocks[first : first + per_case] for first in range(0, len(blocks), per_case)]
    shape = model.kv_shape.cache_shape(len(blocks), block_size, model.dtype)
    cache = torch.full(shape, float("nan"), dtype=model.dtype)  # so that reading too far shows
    tokens, fed = [list(case.prompt) for case in cases], [0] * len(cases)
    outputs = [model.encode([item.features for item in case.items]) if case.items else [] for case in cases]
    while any(len(known) < len(case.prompt) + NUM_TOKENS for known, case in zip(tokens, cases, strict=True)):
        live = [i for i, case in enumerate(cases) if len(tokens[i]) < len(case.prompt) + NUM_TOKENS]
        ends = [min(len(tokens[i]), fed[i] + rng.choice((1, 3, 16, 100))) for i in live]
        spans = [(i, fed[i], end) for i, end in zip(live, ends, strict=True)]
        fed_groups = [
            [
                PagedSequence(
                    _with_holes(tables[number * len(cases) + i], group, start, block_size), start, end - start
                )
                for i, start, end in spans
            ]
            for number, group in enumerate(groups)
        ]
        paged = paged_batch(fed_groups[0], block_size, model.device)
        batch = StepBatch(
            torch.tensor([token for i, start, end in spans for token in tokens[i][start:end]]),
            torch.tensor([position for _, start, end in spans for position in range(start, end)]),
            paged,
            more_paged=tuple(with_tables(paged, each) for each in fed_groups[1:]),
            media=tuple(_media_rows(cases, outputs, spans)),
        )
        logits = model.logits(model.forward(batch, cache))
        row = -1
        for i, start, end in spans:
            row += end - start
            fed[i] = end
            if end == len(tokens[i]):
                tokens[i].append(int(logits[row].argmax()))
    return [known[len(case.prompt) :] for known, case in zip(tokens, cases, strict=True)]


def _with_holes(table: Sequence[int], group: PagedGroup, start: int, block_size: int) -> list[int]:
    """What a sequence has of a table when rows from `start` on are fed."""
    first = group.spec.first_needed(start) // block_size
    return [HOLE] * first + list(table[first:])


def _media_rows(
    cases: Sequence[Case], outputs: Sequence[Sequence[EncoderOutput]], fed: Sequence[tuple[int, int, int]]
) -> Iterable[MediaEmbedding]:
    row = 0
    for i, start, end in fed:
        for span, output in zip(cases[i].spans, outputs[i], strict=True):
            first, last = max(start, span.start), min(end, span.start + span.num_tokens)
            if first < last:
                yield MediaEmbedding(output, row + first - start, last - first, first - span.start)
        row += end - start


class Engine:
    """A scheduler over a runner, for one condition."""

    def __init__(
        self,
        model: Model,
        *,
        num_blocks: int,
        chunk: int | None = None,
        in_flight: int = 1,
        parked: int | None = None,
        kv_dtype: torch.dtype | None = None,
        sees_whole_items: bool = False,
        sees_whole_prompts: bool = False,
        positions: PositionRule = rotary_positions,
    ) -> None:
        num_state_slots = _NUM_STATE_SLOTS if isinstance(model, RecurrentModel) else 0
        self.runner = Runner(
            model,
            num_blocks=num_blocks,
            block_size=BLOCK_SIZE,
            kv_dtype=kv_dtype,
            num_state_slots=num_state_slots,
        )
        config = SchedulerConfig(
            num_blocks=num_blocks,
            groups=model.kv_shape.layout(model.dtype).groups,
            num_state_slots=num_state_slots,
            snapshot_interval=1,
            block_size=BLOCK_SIZE,
            positions=positions,
            max_context=model.info.max_context,
            max_prefill_chunk=chunk,
            sees_whole_items=sees_whole_items,
            sees_whole_prompts=sees_whole_prompts,
            max_parked_blocks=parked,
        )
        self.scheduler = Scheduler(config)
        self.loop = StepLoop(self.scheduler, self.runner)
        self._in_flight = in_flight
        self._slots: dict[ContentHash, Slot] = {}
        self._model = model
        self._names = count()

    def submit(
        self,
        case: Case,
        *,
        draft: Sequence[int] = (),
        ngram: NgramDraft | None = None,
        session: str | None = None,
        num_tokens: int = NUM_TOKENS,
        temperature: float = 0.0,
        stop_token_ids: tuple[int, ...] = (),
    ) -> RequestId:
        """Queue a case, and what it needs encoded."""
        for item in case.items:
            if item.content_hash not in self._slots:
                slot = self._slots[item.content_hash] = len(self._slots)
                self.scheduler.encode(slot, item.features)
        request_id = RequestId(str(next(self._names)))
        generate = Request(
            request_id,
            case.prompt,
            Sample(
                SamplingParams(
                    max_tokens=num_tokens, temperature=temperature, seed=1, stop_token_ids=stop_token_ids
                ),
                draft_token_ids=tuple(draft),
                ngram=ngram,
            ),
            media=case.spans,
            session=None if session is None else SessionKey(session),
        )
        self.scheduler.submit(generate, None, tuple(self._slots[span.content_hash] for span in case.spans))
        return request_id

    def run(self) -> None:
        """Step until everything submitted has ended."""
        for _ in range(20_000):
            while len(self.loop.in_flight) >= self._in_flight:
                self.loop.finish()
            if not self.loop.plan():
                if not self.loop.in_flight:
                    self.scheduler.check()
                    return
                self.loop.finish()
        raise AssertionError("the engine is never idle")

    def tokens(self, request_id: RequestId) -> list[int]:
        """The answer; the request must have ended well."""
        assert self.loop.ends[request_id].finish_reason in ("stop", "length"), self.loop.ends[request_id]
        return self.loop.tokens[request_id]


def check_every_way(
    model: Model,
    cases: Sequence[Case],
    *,
    seed: int,
    stop_token_ids: tuple[int, ...] = (),
    kv_dtype: torch.dtype | None = None,
    sees_whole_items: bool = False,
    sees_whole_prompts: bool = False,
    positions: PositionRule = rotary_positions,
) -> None:
    """Each case's tokens again under every condition of this file's docstring.

    `stop_token_ids` and `kv_dtype` are those the cases were made with. The prompts should be of more than one
    block.
    """
    whole = _Whole(sees_whole_items, sees_whole_prompts)
    check = _Check(model, cases, random.Random(seed), stop_token_ids, kv_dtype, whole, positions)
    check.alone()
    check.among_strangers_and_from_cache()
    check.in_chunks_and_preempted()
    check.in_sessions()


def check_some_ways(
    model: Model,
    cases: Sequence[Case],
    *,
    seed: int,
    sees_whole_items: bool = False,
    sees_whole_prompts: bool = False,
    positions: PositionRule = rotary_positions,
) -> None:
    """Each case's tokens alone, and in pieces among others of which some are preempted: what depends on the
    model. How an engine plans is the same for all of one kind, and `check_every_way` is for one of each."""
    whole = _Whole(sees_whole_items, sees_whole_prompts)
    check = _Check(model, cases, random.Random(seed), (), None, whole, positions)
    check.alone()
    check.in_chunks_and_preempted()


class _Whole(NamedTuple):
    """See `SchedulerConfig.sees_whole_items` and `sees_whole_prompts`."""

    items: bool
    prompts: bool


class _Check:
    def __init__(
        self,
        model: Model,
        cases: Sequence[Case],
        rng: random.Random,
        stop_token_ids: tuple[int, ...],
        kv_dtype: torch.dtype | None,
        whole: _Whole,
        positions: PositionRule,
    ) -> None:
        self.model = model
        self.positions = positions
        self.whole = whole
        self.kv_dtype = kv_dtype
        self.cases = cases
        self.rng = rng
        self.stop = stop_token_ids
        self.layout = model.kv_shape.layout(model.dtype)
        self.blocks = sum(self._num_blocks(case) for case in cases)

    def alone(self) -> None:
        for case in self.cases:
            engine = self._engine(num_blocks=self._num_blocks(case))
            request_id = self._submit(engine, case)
            engine.run()
            case.check(engine.tokens(request_id), "alone")

    def among_strangers_and_from_cache(self) -> None:
        """Sixteen others, two plans in flight; then the same prompts again, with drafts of all sorts."""
        strangers = 8 * _NUM_STRANGERS * len(self.layout.groups)
        engine = self._engine(num_blocks=8 * self.blocks + strangers, in_flight=2)
        self._strangers(engine, _NUM_STRANGERS)
        first = [self._submit(engine, case) for case in self.cases]
        engine.run()
        self._compare(engine, first, "among strangers")
        before = engine.scheduler.statistics()
        cached = [self._submit(engine, case) for case in self.cases]
        drafted = [
            (case, self._submit(engine, case, draft=draft))
            for case in self.cases
            for draft in self._drafts(case)
        ]
        looked_up = [self._submit(engine, case, ngram=NgramDraft()) for case in self.cases]
        engine.run()
        self._compare(engine, cached, "from the prefix cache")
        self._compare(engine, looked_up, "with n-gram drafts")
        for case, request_id in drafted:
            case.check(engine.tokens(request_id), "with a draft")
        after = engine.scheduler.statistics()
        assert after.num_prefix_hits - before.num_prefix_hits >= BLOCK_SIZE
        assert after.num_draft_accepted - before.num_draft_accepted >= sum(
            min(len(case.expected), _certain(case)) for case in self.cases
        )

    def in_chunks_and_preempted(self) -> None:
        """Prompts in pieces of 16 tokens; blocks for what has arrived, but not for the answers."""
        prompts = sum(self.layout.num_blocks(len(case.prompt), BLOCK_SIZE, 16) for case in self.cases)
        most = max(self._num_blocks(case) for case in self.cases)
        num_blocks, num_others = max(most, prompts + 4), 2
        if any(group.spec.reach is not None for group in self.layout.groups):
            # Windows hold little of what has arrived: the others leave a first block for each case.
            num_others = num_blocks // len(self.layout.groups) - len(self.cases)
        engine = self._engine(num_blocks=num_blocks, chunk=16)
        for _ in range(num_others):  # they came first, so the cases are preempted
            engine.submit(Case(self._noise(8), (), ()), num_tokens=40)
        request_ids = [self._submit(engine, case) for case in self.cases]
        engine.run()
        self._compare(engine, request_ids, "in chunks, preempted")
        assert self.stop or engine.scheduler.statistics().num_preemptions > 0

    def in_sessions(self) -> None:
        """A prompt grows: what its session computed is taken over, or was evicted and is computed again."""
        for is_evicted in (False, True):
            engine = self._engine(num_blocks=(2 if is_evicted else 4) * self.blocks, in_flight=2)
            for number, case in enumerate(self.cases):
                self._submit(engine, _beginning(case, self.rng), session=str(number), num_tokens=5)
            engine.run()
            assert engine.scheduler.statistics().num_sessions_parked
            if is_evicted:
                self._take_all_blocks(engine)
            request_ids = [
                self._submit(engine, case, session=str(number), draft=case.expected[:12])
                for number, case in enumerate(self.cases)
            ]
            engine.run()
            self._compare(engine, request_ids, "in a session" + (", evicted" if is_evicted else ""))

    def _take_all_blocks(self, engine: Engine) -> None:
        """Let others need every block there is at the same time."""
        total = engine.scheduler.config.num_blocks // len(self.layout.groups) * BLOCK_SIZE
        number = -(-total // (self.model.info.max_context - BLOCK_SIZE))
        for _ in range(number):
            engine.submit(Case(self._noise(total // number - BLOCK_SIZE), (), ()), num_tokens=BLOCK_SIZE)
        engine.run()
        assert engine.scheduler.statistics().num_sessions_parked == 0

    def _engine(self, **options: Any) -> Engine:  # noqa: ANN401
        return Engine(
            self.model,
            kv_dtype=self.kv_dtype,
            sees_whole_items=self.whole.items,
            sees_whole_prompts=self.whole.prompts,
            positions=self.positions,
            **options,
        )

    def _submit(self, engine: Engine, case: Case, **options: Any) -> RequestId:  # noqa: ANN401
        return engine.submit(case, stop_token_ids=self.stop, **options)

    def _compare(self, engine: Engine, request_ids: Sequence[RequestId], how: str) -> None:
        for case, request_id in zip(self.cases, request_ids, strict=True):
            case.check(engine.tokens(request_id), how)

    def _strangers(self, engine: Engine, number: int) -> None:
        """Others, of all lengths, half of them sampling."""
        for index in range(number):
            other = Case(self._noise(self.rng.randint(1, 40)), (), ())
            num_tokens = self.rng.randint(4, 30)
            engine.submit(other, num_tokens=num_tokens, temperature=float(index % 2))

    def _drafts(self, case: Case) -> list[tuple[int, ...]]:
        """Right, wrong, half right, and right but too long."""
        noise = self._noise(6)
        half = case.expected[: len(case.expected) // 2]
        return [case.expected, noise, (*half, *noise), (*case.expected, *self.stop[:1], *noise)]

    def _noise(self, length: int) -> tuple[int, ...]:
        return tuple(self.rng.randrange(self.model.info.vocab_size) for _ in range(length))

    def _num_blocks(self, case: Case) -> int:
        return self.layout.num_blocks(len(case.prompt) + NUM_TOKENS, BLOCK_SIZE, 4096)


def _certain(case: Case) -> int:
    """Tokens before the first tie."""
    return next((index for index, margin in enumerate(case.margins) if margin < TIE), len(case.expected))


def _beginning(case: Case, rng: random.Random) -> Case:
    """The same prompt, shorter, with the media that are in it whole, and another last token."""
    inside = {t for span in case.spans for t in range(span.start + 1, span.start + span.num_tokens + 1)}
    ends = [end for end in range(len(case.prompt) // 2, len(case.prompt)) if end not in inside]
    end = rng.choice(ends)
    spans = tuple(span for span in case.spans if span.start + span.num_tokens <= end)
    hashes = {span.content_hash for span in spans}
    items = tuple(item for item in case.items if item.content_hash in hashes)
    placeholders = {case.prompt[t - 1] for t in inside}
    other = rng.choice([token for token in case.prompt if token not in placeholders])
    return Case((*case.prompt[:end], other), (), (), items, spans)
