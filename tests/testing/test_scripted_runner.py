"""The scripted runner keeps the promises of a real one, under the real scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sensorium.engine.models.info import ModelInfo
from sensorium.engine.planning.limits import SchedulerConfig
from sensorium.engine.planning.plan import (
    EncodeStep,
    Plan,
    SequenceId,
    SequenceStart,
    SequenceStep,
    WholeStep,
)
from sensorium.protocols.engine.messages import (
    Align,
    ContentHash,
    Features,
    MediaSpan,
    Pool,
    ProbabilityProbe,
    Request,
    RequestId,
    Sample,
    SamplingParams,
    TaskFailed,
    TokensSampled,
)
from sensorium.testing import ScriptedRunner
from support.fake_runner import item
from support.runner_conformance import RunnerCase, check_runner

INFO = ModelInfo(name="scripted", folder=Path("scripted"), family="scripted", vocab_size=100, max_context=128)
SAMPLING = SamplingParams(max_tokens=30)


def by_position(prompt: Sequence[int]) -> tuple[int, ...]:
    """An answer that goes on the same where its first half is part of the prompt."""
    return tuple((31 * prompt[0] + 7 * position) % 100 for position in range(len(prompt), 36))


def make(num_blocks: int = 128) -> ScriptedRunner:
    return ScriptedRunner(by_position, INFO, num_blocks=num_blocks, block_size=4)


def begun(runner: ScriptedRunner, task: Sample | Pool, *, num_draft: int = 0) -> TokensSampled:
    """What the first step of a request gives, whose prompt is four tokens."""
    prompt = (3, 1, 4, 1)
    draft = by_position(prompt)[:num_draft]
    step = SequenceStep(
        SequenceId(0),
        (*prompt, *draft),
        0,
        tuple(range(8)),
        num_draft=num_draft,
        begin=SequenceStart(RequestId("r"), prompt, (), task),
        probe=ProbabilityProbe(1, 5),
    )
    (outcome,) = runner.execute(Plan(1, sequences=(step,))).outcomes
    assert isinstance(outcome, TokensSampled)
    return outcome


def test_it_keeps_what_every_runner_owes_the_scheduler() -> None:
    requests = []
    for number in range(6):
        prompt = tuple(range(1 + number, 9 + 2 * number))
        media = (MediaSpan(ContentHash("picture"), 1, 4),) if number % 2 else ()
        requests.append(Request(RequestId(f"r{number}"), prompt, Sample(SAMPLING), media=media))
    config = SchedulerConfig(num_blocks=128, block_size=4, max_context=INFO.max_context)
    check_runner(RunnerCase(make, [item("picture", 4)], requests, config))


def test_a_draft_is_accepted_and_max_tokens_cut_it() -> None:
    answer = by_position((3, 1, 4, 1))
    whole = begun(make(), Sample(SAMPLING), num_draft=5)
    assert (whole.token_ids, whole.num_draft_accepted, whole.finish_reason) == (answer[:6], 5, None)
    cut = begun(make(), Sample(SamplingParams(max_tokens=3)), num_draft=5)
    assert (cut.token_ids, cut.num_draft_accepted, cut.finish_reason) == (answer[:3], 2, "length")


def test_probabilities_are_certain() -> None:
    found = begun(make(), Sample(SamplingParams(max_tokens=9, logprobs=1, prompt_logprobs=0)))
    assert found.logprobs == (0.0,)
    assert found.top_logprobs == (((found.token_ids[0], 0.0),),)
    assert found.probe_probability == 0.0
    assert found.prompt_logprobs is not None
    assert found.prompt_logprobs.ranks == (1, 1, 1)


def test_a_script_that_raises_fails_its_own_request() -> None:
    def broken(prompt: Sequence[int]) -> Sequence[int]:
        raise LookupError("no such line")

    runner = ScriptedRunner(broken, INFO, num_blocks=8, block_size=4)
    found = begun(runner, Sample(SAMPLING))
    assert (found.error, found.fault) == ("the script raised LookupError('no such line')", "defect")
    step = SequenceStep(SequenceId(0), (), 4, tuple(range(8)), feeds_sampled=True)
    assert runner.execute(Plan(2, sequences=(step,))).outcomes == (TokensSampled(RequestId("r")),)


def test_vectors_and_alignments_fail_and_say_so() -> None:
    assert "generates text" in (begun(make(), Pool("last")).error or "")
    request = Request(RequestId("align"), (1, 2, 3), Align(1, 2, 10))
    encode = EncodeStep(0, Features((1, 1), b"1234"))
    result = make().execute(Plan(1, encodes=(encode,), wholes=(WholeStep(request, 0),)))
    failed = result.wholes[RequestId("align")]
    assert isinstance(failed, TaskFailed)
    assert "generates text" in failed.error
    assert result.encoder_bytes.keys() == {0}
