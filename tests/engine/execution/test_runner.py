"""The runner keeps its side of `engine/planning/plan.py`, on a toy model: containment, state, memory,
logprobs.

What needs Whisper is in `tests/engine/models/whisper/test_runner.py`.
"""

from __future__ import annotations

import json

import msgspec
import pytest
import torch
from sensorium.engine.execution.grammar_store import GrammarStore
from sensorium.engine.execution.runner import Runner
from sensorium.engine.planning.plan import (
    EncodeStep,
    MediaRows,
    Plan,
    SequenceId,
    SequenceStart,
    SequenceStep,
    TransferId,
    TransferStep,
)
from sensorium.protocols.engine.messages import (
    Grammar,
    ProbabilityProbe,
    RequestId,
    Sample,
    SamplingParams,
    TokensSampled,
)
from sensorium.protocols.errors import ModelLoadError
from support.plan_loop import Job, Placed, run_jobs, to_features
from support.toy_model import DIM, POISON, ToyModel
from support.toy_runner import GOOD, GREEDY, full_above, greedy, make, run, sampled, step
from tokenizers import Tokenizer, decoders, models, pre_tokenizers


@pytest.mark.parametrize("rotary_axes", [1, 3])
def test_answers_are_those_of_the_model(rotary_axes: int) -> None:
    """Many at once, chunked, preempted and drafted."""
    model = ToyModel(rotary_axes=rotary_axes)
    generator = torch.Generator().manual_seed(1)
    for chunk, preempt_every in ((1000, None), (3, None), (1000, 3)):
        jobs: list[Job] = []
        for i in range(8):
            prompt = tuple(torch.randint(0, 32, (3 + 5 * i,), generator=generator).tolist())
            want = greedy(model, prompt, 12)
            draft = ((), want, want[:5], (*want[:4], 0, 0, 0))[i % 4]
            jobs.append(Job(prompt, None, GREEDY, draft, joins_at=i % 3))
        run_jobs(make(model, num_blocks=200), jobs, prompt_chunk=chunk, preempt_every=preempt_every)
        for job in jobs:
            assert (tuple(job.tokens), job.finish) == (greedy(model, job.prompt, 12), "length")


@pytest.mark.parametrize("prompt_chunk", [2, 1000])
@pytest.mark.parametrize("rotary_axes", [1, 3])
def test_media_rows_replace_placeholders(prompt_chunk: int, rotary_axes: int) -> None:
    model = ToyModel(rotary_axes=rotary_axes)
    runner = make(model)
    item = torch.randn(5, DIM)
    assert not runner.execute(Plan(0, encodes=(EncodeStep(3, to_features(item)),))).encode_errors
    prompt = (1, 2, 0, 0, 0, 0, 0, 3)
    job = Job(prompt, None, msgspec.structs.replace(GREEDY, max_tokens=1), media=(Placed(3, 2, 5),))
    other = Job(prompt, None, job.sampling)
    run_jobs(runner, [other, job], prompt_chunk=prompt_chunk)
    assert job.tokens == [int(model.dense_logits(prompt, 2 * item, 2)[-1].argmax())]
    assert other.tokens == [int(model.dense_logits(prompt)[-1].argmax())]


def test_adapters_of_a_model_that_takes_none_are_refused() -> None:
    """They would change nothing."""
    model = ToyModel()
    with pytest.raises(ModelLoadError, match="toy: this toy model takes no adapters"):
        Runner(model, num_blocks=8, adapters={})


def test_what_should_come_from_another_engine_is_to_be_computed() -> None:
    """Nothing moves blocks yet: every transfer fails in its own step."""
    step = TransferStep(TransferId(3), "other", (b"name",), (0,))
    result = make(ToyModel()).execute(Plan(0, transfers=(step,), awaits_transfers=True))
    assert (result.transfers_finished, result.transfers_failed) == ((), (3,))


def test_rotary_positions_are_those_of_the_step() -> None:
    """Three axes given as the token's own position are the same as none given."""
    model = ToyModel(rotary_axes=3)
    prompt = (4, 5, 6, 7)
    plain, shifted = tuple(range(4)), (0, 1, 5, 9)
    results = [
        run(make(model), step(0, prompt, msgspec.structs.replace(GREEDY, logprobs=0), positions=positions))[0]
        for positions in (None, (plain, plain, plain), (plain, shifted, plain))
    ]
    assert results[0] == results[1]
    assert results[0].logprobs != results[2].logprobs


def test_decode_steps_feed_what_the_runner_sampled() -> None:
    model = ToyModel()
    runner, prompt = make(model), (4, 5, 6)
    want = greedy(model, prompt, 4)
    got = run(runner, step(0, prompt))[0].token_ids
    for position in range(3, 6):
        again = SequenceStep(SequenceId(0), (), position, tuple(range(8)), feeds_sampled=True)
        got += run(runner, again)[0].token_ids
    assert got == want


def test_a_finished_sequence_is_answered_with_nothing_until_it_is_ended() -> None:
    model = ToyModel()
    runner, prompt = make(model), (4, 5, 6)
    first = greedy(model, prompt, 1)
    stopping = msgspec.structs.replace(GREEDY, stop_token_ids=first)
    ended = run(runner, step(0, prompt, stopping))[0]
    assert (ended.token_ids, ended.finish_reason) == ((), "stop")
    stale = SequenceStep(SequenceId(0), (), 3, tuple(range(8)), feeds_sampled=True)
    assert run(runner, stale) == (TokensSampled(RequestId("r0")),)
    assert run(runner, stale, ends=(SequenceId(0),))[0].error is not None
    short = msgspec.structs.replace(GREEDY, max_tokens=1)
    assert run(runner, step(1, prompt, short))[0].finish_reason == "length"
    assert run(runner, msgspec.structs.replace(stale, sequence_id=SequenceId(1))) == (
        TokensSampled(RequestId("r1")),
    )


def test_ended_sequences_leave_nothing() -> None:
    runner = make()
    run(runner, step(0, (1, 2)), step(1, (1, 99)))
    runner.execute(Plan(0, ends=(SequenceId(0), SequenceId(1), SequenceId(7))))
    assert not runner._sequences


FAULTS: dict[str, dict[str, object]] = {
    "never begun": {"begin": None},
    "not a draft": {"num_draft": 3},
    "none was sampled": {"feeds_sampled": True},
    "vocabulary": {"token_ids": (1, 32, 3)},
    "outside the vocabulary": {"token_ids": (1, -1, 3)},
    "positions": {"start": -1, "answers": False},
    "200 positions": {"start": 198, "answers": False, "block_table": tuple(range(60))},
    "fit 1 blocks": {"block_table": (1,), "token_ids": (1,) * 5, "answers": False},
    "one of 64": {"block_table": (64,)},
    "a block of the table": {"block_table": (-1,)},
    "answers behind 2 tokens": {"token_ids": (1, 2)},
    "item of this request is gone": {"media": (MediaRows(9, 0, 1, 0),)},
    "no rows 2 to 3": {"media": (MediaRows(0, 2, 2, 0),)},
    "of 5 rows has no rows 4 to 5": {"media": (MediaRows(0, 0, 2, 4),)},
    "1 axes, not 3": {"positions": ((0, 1, 2),) * 3},
}


@pytest.mark.parametrize("named", FAULTS)
def test_a_faulty_sequence_fails_alone(named: str) -> None:
    runner = make()
    runner.execute(Plan(0, encodes=(EncodeStep(0, to_features(torch.randn(5, DIM))),)))
    alone = run(make(), step(0, GOOD))[0]
    bad = msgspec.structs.replace(step(1, GOOD), **FAULTS[named])
    result = run(runner, bad, step(0, GOOD), msgspec.structs.replace(bad, sequence_id=SequenceId(2)))
    assert named in (result[0].error or "")
    assert result[0].fault == "defect"
    assert named in (result[2].error or "")
    assert result[1] == alone
    # The next plan was made before this was known.
    if bad.begin is not None:
        assert run(runner, msgspec.structs.replace(bad, begin=None)) == (TokensSampled(RequestId("r1")),)


def test_a_misplaced_newest_token_is_a_fault() -> None:
    runner = make()
    run(runner, step(0, GOOD))
    stale = SequenceStep(SequenceId(0), (), 7, tuple(range(8)), feeds_sampled=True)
    assert "position 3" in (run(runner, stale)[0].error or "")


def test_logits_that_are_not_numbers_fail_their_sequence_and_poison_no_block() -> None:
    model = ToyModel(nan_token=9)
    runner = make(model)
    steps = (step(0, (1, 9, 2)), step(1, GOOD))
    result = run(runner, *steps)
    assert "not finite" in (result[0].error or "")
    assert result[0].fault == "not_finite"
    assert result[1].token_ids == greedy(model, GOOD, 1)
    # Its blocks are given to a healthy sequence.
    healthy = step(2, (1, 2), block_table=steps[0].block_table)
    assert run(runner, healthy, ends=(SequenceId(0),))[0].token_ids == greedy(model, (1, 2), 1)


@pytest.mark.parametrize("prompt", [(1, 9, 2), (1, 2, 9)])
def test_a_chunk_that_is_not_numbers_fails_before_its_blocks_are_found(prompt: tuple[int, ...]) -> None:
    """Though nothing is sampled behind it; its neighbours in the step are told what they are told alone."""
    model = ToyModel(nan_token=9)
    steps = (step(0, prompt, answers=False), step(1, GOOD), step(2, GOOD, answers=False))
    result = run(make(model), *steps)
    assert "not finite" in (result[0].error or "")
    assert result[0].fault == "not_finite"
    assert result[1].token_ids == greedy(model, GOOD, 1)
    assert result[2].error is None


def test_prompt_log_probabilities_that_are_not_numbers_are_not_told() -> None:
    sampling = msgspec.structs.replace(GREEDY, prompt_logprobs=1)
    result = run(make(ToyModel(nan_token=9)), step(0, (1, 9, 2), sampling, answers=False))[0]
    assert "not finite" in (result.error or "")
    assert result.fault == "not_finite"
    assert result.prompt_logprobs is None


@pytest.mark.parametrize("prompt_chunk", [1, 3, 1000])
def test_prompt_log_probabilities_are_those_of_the_raw_logits(
    prompt_chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sensorium.engine.execution.tasks.sample.MAX_LOGITS", 32 * 4 * 2
    )  # two rows at a time
    model = ToyModel()
    prompt = (3, 1, 4, 1, 5, 9, 2, 6)
    sampling = msgspec.structs.replace(GREEDY, prompt_logprobs=2, suppress_token_ids=(1, 4), max_tokens=3)
    job = Job(prompt, None, sampling)
    run_jobs(make(model), [job, Job((1, 2), None, GREEDY)], prompt_chunk=prompt_chunk)
    want = model.dense_logits(prompt).log_softmax(-1)
    own = [value for part in job.prompt_logprobs for value in part.logprobs]
    top = [each for part in job.prompt_logprobs for each in part.top]
    assert own == pytest.approx([float(want[i, token]) for i, token in enumerate(prompt[1:])], abs=1e-4)
    assert [[token for token, _ in each] for each in top] == want[:-1].topk(2).indices.tolist()
    assert max(model.logit_rows[1:]) <= 3
    # The step that feeds position i tells of token i + 1; the last position belongs to the answer.
    assert [len(part.logprobs) for part in job.prompt_logprobs] == [
        min(prompt_chunk, 7 - start) for start in range(0, 7, prompt_chunk)
    ]


def test_log_probabilities_of_the_answer() -> None:
    model = ToyModel()
    job = Job((1, 2, 3), None, msgspec.structs.replace(GREEDY, logprobs=2), draft=greedy(model, (1, 2, 3), 6))
    run_jobs(make(model), [job])
    want = model.dense_logits([*job.prompt, *job.tokens]).log_softmax(-1)[2:-1]
    assert job.logprobs == pytest.approx([float(want[i, t]) for i, t in enumerate(job.tokens)], abs=1e-4)
    assert [[t for t, _ in top] for top in job.top_logprobs] == want.topk(2).indices.tolist()


def test_only_rows_that_are_needed_get_logits() -> None:
    model = ToyModel()
    runner = make(model)
    run(
        runner,
        step(0, tuple(range(20)), answers=False),
        step(1, GOOD),
        step(2, (1, 2, 3, 4), num_draft=2, begin=SequenceStart(RequestId("d"), (1, 2), (), Sample(GREEDY))),
    )
    assert model.logit_rows == [1 + 3]
    run(runner, step(3, tuple(range(20)), answers=False, probe=ProbabilityProbe(7, 3)))
    assert model.logit_rows[1:] == [1]
    run(runner, step(4, tuple(range(20)), answers=False))
    assert len(model.logit_rows) == 2


def test_many_logits_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sensorium.engine.execution.tasks.sample.MAX_LOGITS", 32 * 3)
    model = ToyModel()
    result = run(make(model), *(step(i, (i, i + 1)) for i in range(7)))
    assert model.logit_rows == [3, 3, 1]
    assert [each.token_ids for each in result] == [greedy(model, (i, i + 1), 1) for i in range(7)]


def test_a_probe_is_the_raw_probability_at_its_position() -> None:
    model = ToyModel()
    sampling = msgspec.structs.replace(GREEDY, suppress_token_ids=(8,))
    prompt = (3, 1, 4, 1, 5)
    want = model.dense_logits(prompt).softmax(-1)
    for position in (0, 2, 4):
        probe = ProbabilityProbe(position, 8)
        job = Job(prompt, None, sampling, probe=probe)
        run_jobs(make(model), [Job((1,), None, GREEDY), job], prompt_chunk=2)
        assert job.probability == pytest.approx(float(want[position, 8]), abs=1e-5)
    outside = step(0, prompt, probe=ProbabilityProbe(5, 1))
    assert run(make(model), outside)[0].probe_probability is None


def test_faulty_items_fail_alone() -> None:
    """Refused by the check, tripped over while encoding in company, and too large for the memory."""
    runner = make(ToyModel(before_encode=full_above(2)))
    good = torch.randn(3, DIM)
    items = [good, torch.full((2, DIM), POISON), torch.randn(3, 4), good, good]
    encodes = tuple(EncodeStep(slot, to_features(item)) for slot, item in enumerate(items))
    result = runner.execute(Plan(0, encodes=encodes))
    assert set(result.encode_errors) == {1, 2}
    assert "out of range" in result.encode_errors[1]
    assert "not [rows" in result.encode_errors[2]
    assert result.encoder_bytes == dict.fromkeys((0, 3, 4), 3 * DIM * 4)
    full = make(ToyModel(before_encode=full_above(0)))
    errors = full.execute(Plan(0, encodes=encodes[:1])).encode_errors
    assert "1.00 GiB" in errors[0]
    assert run(full, step(0, GOOD))[0].error is None


def test_ends_and_frees_come_before_encodes_and_sequences() -> None:
    model = ToyModel()
    runner, item = make(model), torch.randn(1, DIM)
    encode = EncodeStep(0, to_features(item))
    listening = step(0, (1, 0), media=(MediaRows(0, 1, 1, 0),))
    runner.execute(Plan(0, encodes=(encode,), sequences=(listening,)))
    again = runner.execute(
        Plan(1, ends=(SequenceId(0),), frees=(0,), encodes=(encode,), sequences=(listening,))
    )
    assert sampled(again)[0].token_ids == (int(model.dense_logits((1, 0), 2 * item, 1)[-1].argmax()),)
    gone = runner.execute(Plan(2, ends=(SequenceId(0),), frees=(0,), sequences=(listening,)))
    assert "gone" in (sampled(gone)[0].error or "")


def byte_tokenizer() -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(alphabet)}, merges=[]))
    tokenizer.add_special_tokens(["<|end|>"])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.mark.parametrize("preempt_every", [None, 4])
def test_grammars_hold_through_the_runner(preempt_every: int | None) -> None:
    """In company, preempted and resumed; without a store or not ready, the sequence fails alone."""
    tokenizer, model = byte_tokenizer(), ToyModel(vocab_size=300)
    store = GrammarStore(tokenizer.to_str(), vocab_size=300, stop_token_ids=(256,))
    choices = ["red and green", "blue", "yellow and some more"]
    grammar = Grammar("choice", json.dumps(choices))
    store.compile(grammar)
    sampling = SamplingParams(max_tokens=40, stop_token_ids=(256,), temperature=30.0, grammar=grammar)
    jobs = [Job((5, 6), None, msgspec.structs.replace(sampling, seed=i)) for i in range(6)]
    jobs.append(Job((5, 6), None, GREEDY))
    unready = Job((5, 6), None, msgspec.structs.replace(sampling, grammar=Grammar("regex", "a")))
    run_jobs(make(model, grammars=store, num_blocks=200), [*jobs, unready], preempt_every=preempt_every)
    answers = [tokenizer.decode(job.tokens) for job in jobs[:6]]
    assert set(answers) <= set(choices)
    assert len(set(answers)) > 1
    assert all(job.finish == "stop" for job in jobs[:6])
    assert tuple(jobs[6].tokens) == greedy(model, (5, 6), 12)
    assert "not kept" in (unready.error or "")
    assert not store.is_ready(Grammar("regex", "a")), "nothing is compiled in the device's thread"
    without = Job((5, 6), None, sampling)
    run_jobs(make(model), [without])
    assert "grammar" in (without.error or "")


def test_warm_up_leaves_no_trace() -> None:
    for num_blocks in (64, 1):
        runner = make(num_blocks=num_blocks)
        runner.warm_up()
        assert not runner._sequences
        assert run(runner, step(0, GOOD, block_table=(0,)))[0] == run(make(), step(0, GOOD))[0]


@pytest.mark.parametrize(("num_blocks", "block_size"), [(0, 16), (16, 0)])
def test_a_cache_needs_a_block(num_blocks: int, block_size: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        make(num_blocks=num_blocks, block_size=block_size)
