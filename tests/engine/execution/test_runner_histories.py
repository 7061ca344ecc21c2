"""The real runner under the real scheduler, in random company: every request gets what it gets alone.

A toy model with placed items and one or three position axes; requests with every rule of sampling, grammars,
probes, scored prompts, drafts and sessions; pools hardly larger than one request, small chunks, one to three
plans in flight. `test_scheduler_machine.py` does the same with a fake whose tokens depend on every block.
"""

from __future__ import annotations

import json
import random

import msgspec
import pytest
import torch
from sensorium.engine.execution.grammar_store import GrammarStore
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models.qwen3_vl.positions import rotary_positions
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.protocols.engine.messages import (
    ContentHash,
    EncoderItem,
    Grammar,
    Lane,
    MediaSpan,
    NgramDraft,
    ProbabilityProbe,
    ReasoningBudget,
    Request,
    RequestId,
    Sample,
    SampleRequest,
    SamplingParams,
    SessionKey,
)
from support.plan_loop import to_features
from support.runner_conformance import CaseLoop, RunnerCase
from support.toy_model import DIM, ToyModel
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

VOCAB = 300
END = 256
BLOCK = 4
LETTERS = range(97, 105)
GRAMMARS = [Grammar("regex", "[a-d]{3,9}(x|yz)*q"), Grammar("choice", json.dumps(["abc", "abd", "zebra"]))]


def make_store() -> GrammarStore:
    """Tokens are bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    store = GrammarStore(tokenizer.to_str(), vocab_size=VOCAB, stop_token_ids=(END,))
    for grammar in GRAMMARS:
        store.compile(grammar)
    return store


def make_item(name: str) -> EncoderItem:
    generator = torch.Generator().manual_seed(int(name))
    return EncoderItem(ContentHash(name), to_features(torch.randn(4, DIM, generator=generator)), 4)


def draw_sampling(rng: random.Random, number: int) -> SamplingParams:
    grammar = rng.choice([None, None, *GRAMMARS])
    stops: tuple[int, ...] = rng.choice([(END,), tuple(range(0, VOCAB, 11))])
    return SamplingParams(
        max_tokens=rng.choice([1, 2, 8, 24]),
        temperature=rng.choice([0, 0, 0.8, 20.0]),
        top_p=rng.choice([1, 0.9]),
        top_k=rng.choice([0, 3, 40]),
        min_p=rng.choice([0, 0.02]),
        seed=rng.choice([None, number]),
        stop_token_ids=stops if grammar is not None or rng.random() < 0.7 else (),
        ignore_eos=rng.random() < 0.1,
        presence_penalty=rng.choice([0, 0.7]),
        frequency_penalty=rng.choice([0, 0.3]),
        repetition_penalty=rng.choice([1, 1.3]),
        logit_bias=rng.choice([(), ((99, 2.0),)]),
        bad_words=rng.choice([(), (), ((98,), (97, 100), (99, 99, 101))]),
        no_repeat_ngram_size=rng.choice([0, 0, 0, 2, 3]),
        min_tokens=rng.choice([0, 0, 5]),
        grammar=grammar,
        reasoning_budget=rng.choice(
            [None, None, ReasoningBudget(3, (LETTERS[0],), (LETTERS[1], LETTERS[2]), is_open=True)]
        ),
        logprobs=rng.choice([None, 2]),
        prompt_logprobs=rng.choice([None, None, 1]),
    )


def draw_requests(rng: random.Random, rotary_axes: int) -> list[SampleRequest]:
    """Prompts that begin alike, some with an item in them."""
    beginnings = [tuple(rng.choices(LETTERS, k=rng.randint(4, 20))) for _ in range(3)]
    requests: list[SampleRequest] = []
    for number in range(8):
        prompt = rng.choice(beginnings)
        media: tuple[MediaSpan, ...] = ()
        if rng.random() < 0.4:
            grid = (1, 2, 2) if rotary_axes == 3 else None
            media = (MediaSpan(ContentHash(rng.choice("12")), len(prompt), 4, grid),)
            prompt += (1,) * 4
        prompt += tuple(rng.choices(LETTERS, k=rng.randint(1, 6)))
        requests.append(
            Request(
                RequestId(f"r{number}"),
                prompt,
                Sample(
                    draw_sampling(rng, number),
                    probe=ProbabilityProbe(rng.randrange(len(prompt)), 99) if rng.random() < 0.3 else None,
                ),
                media=media,
                lane=Lane(priority=rng.choice([0, 0, -1, 1])),
            )
        )
    return requests


def with_guesses(rng: random.Random, request: SampleRequest, answer: tuple[int, ...]) -> SampleRequest:
    """Drafts, right for a while, and sessions must change nothing."""
    kind = rng.random()
    if kind < 0.3:
        draft = (*answer[: rng.randint(0, 24)], 98, 97)
        request = msgspec.structs.replace(
            request, task=msgspec.structs.replace(request.task, draft_token_ids=draft)
        )
    elif kind < 0.5:
        request = msgspec.structs.replace(
            request, task=msgspec.structs.replace(request.task, ngram=NgramDraft(4, 3, 1))
        )
    session = SessionKey(request.request_id) if rng.random() < 0.3 else None
    return msgspec.structs.replace(request, session=session)


def draw_config(rng: random.Random, requests: list[SampleRequest]) -> SchedulerConfig:
    """Room for the largest request, and hardly more."""
    most = max(len(each.prompt_token_ids) + each.task.sampling.max_tokens for each in requests)
    return SchedulerConfig(
        num_blocks=-(-most // BLOCK) + rng.randint(0, 6),
        block_size=BLOCK,
        positions=rotary_positions,
        max_running=rng.choice([2, 6]),
        max_tokens_per_step=rng.choice([3, 8, 64]),
        max_prefill_chunk=rng.choice([None, 1, 3]),
        max_encodes_per_step=1,
        prefix_caching=rng.random() < 0.7,
        max_parked_blocks=rng.choice([None, 0, 3]),
        vocab_size=VOCAB,
    )


def expect_the_same(loop: CaseLoop, alone: CaseLoop, request_id: RequestId) -> None:
    """Tokens and the end exactly, what is measured up to rounding."""
    end, expected = loop.ends[request_id], alone.ends[request_id]
    assert loop.tokens[request_id] == alone.tokens[request_id]
    assert (end.finish_reason, end.error) == (expected.finish_reason, expected.error)
    first, expected = loop.first[request_id], alone.first[request_id]
    assert first.probe_probability == pytest.approx(expected.probe_probability, abs=1e-4)
    assert (first.prompt_logprobs is None) == (expected.prompt_logprobs is None)
    if first.prompt_logprobs is not None and expected.prompt_logprobs is not None:
        assert first.prompt_logprobs.logprobs == pytest.approx(expected.prompt_logprobs.logprobs, abs=1e-3)
        assert len(first.prompt_logprobs.top) == len(first.prompt_logprobs.logprobs)


@pytest.mark.parametrize("seed", range(12))
def test_company_and_history_change_nothing(seed: int) -> None:
    torch.set_num_threads(1)
    rng = random.Random(seed)
    model = ToyModel(vocab_size=VOCAB, seed=seed, rotary_axes=rng.choice([1, 3]))
    requests, store = draw_requests(rng, model.rotary_axes), make_store()
    roomy = SchedulerConfig(num_blocks=40, block_size=BLOCK, prefix_caching=False, positions=rotary_positions)

    def make_loop(config: SchedulerConfig) -> CaseLoop:
        def make_runner() -> Runner:
            return Runner(model, num_blocks=config.num_blocks, block_size=BLOCK, grammars=store)

        return CaseLoop(RunnerCase(make_runner, [make_item("1"), make_item("2")], requests, config))

    alone: dict[RequestId, CaseLoop] = {}
    for request in requests:
        alone[request.request_id] = loop = make_loop(roomy)
        loop.add(request)
        loop.run()
    for _ in range(3):
        loop = make_loop(draw_config(rng, requests))
        max_in_flight = rng.choice([1, 2, 3])
        for request in rng.sample(requests, len(requests)):
            answer = tuple(alone[request.request_id].tokens[request.request_id])
            loop.add(with_guesses(rng, request, answer))
            for _ in range(rng.randint(0, 4)):
                while len(loop.in_flight) >= max_in_flight:
                    loop.finish()
                loop.plan()
        loop.run(max_in_flight=max_in_flight)
        for request in requests:
            expect_the_same(loop, alone[request.request_id], request.request_id)
