"""A runner without a model: the answer to each prompt is given by a function.

It keeps the whole contract of `actors/inference/executor.py: Runner` as far as text is generated, so
scheduling, drafts, preemption and stop strings work as with a model (`tests/support/runner_conformance.py`).
Encodings of media hold nothing. Alignments and vectors of texts fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from ..engine.models.info import ModelInfo
from ..engine.planning.plan import Plan, SequenceId, SequenceStart, SequenceStep, StepResult
from ..protocols.engine.messages import (
    FinishReason,
    Prefill,
    PromptLogprobs,
    Sample,
    TaskFailed,
    TokensSampled,
)

Answers = Callable[[Sequence[int]], Sequence[int]]
"""From a prompt's token ids to those of its answer, stop tokens left out. It must depend on the prompt alone:
a preempted request is asked for again."""

_BYTES_PER_SLOT: Final = 1
"""Of each encoding; a slot has to hold something."""
_NO_ANSWER: Final = "a scripted model generates text and nothing else"


@dataclass(slots=True)
class _Sequence:
    start: SequenceStart
    answer: tuple[int, ...]
    generated: list[int]
    error: str | None = None
    is_over: bool = False


@dataclass(slots=True)
class ScriptedRunner:
    """Answers each prompt with `answers(prompt_token_ids)`, then a stop token.

    Every token has the log-probability 0. Sampling options do not change the answer, but `max_tokens` cuts
    it. A request for which `answers` raises fails alone, with the exception in its error.
    """

    answers: Answers
    info: ModelInfo
    num_blocks: int
    block_size: int
    _sequences: dict[SequenceId, _Sequence] = field(default_factory=dict)

    def execute(self, plan: Plan) -> StepResult:
        """See `Runner.execute`."""
        for sequence_id in plan.ends:
            self._sequences.pop(sequence_id, None)
        return StepResult(
            step=plan.step,
            outcomes=tuple(self._run(step) for step in plan.sequences),
            wholes={
                whole.request.request_id: TaskFailed(whole.request.request_id, _NO_ANSWER)
                for whole in plan.wholes
            },
            encoder_bytes={encode.slot: _BYTES_PER_SLOT for encode in plan.encodes},
            transfers_failed=tuple(each.transfer_id for each in plan.transfers),
        )

    def _run(self, step: SequenceStep) -> TokensSampled:
        if step.begin is not None:
            self._sequences[step.sequence_id] = self._begin(step.begin)
        sequence = self._sequences[step.sequence_id]
        request_id, task = sequence.start.request_id, sequence.start.task
        if sequence.is_over:
            return TokensSampled(request_id)
        if sequence.error is not None:
            sequence.is_over = True
            return TokensSampled(request_id, error=sequence.error, fault="defect")
        if isinstance(task, Sample):
            return _sample(step, sequence, task)
        sequence.is_over = step.answers
        return TokensSampled(request_id, finish_reason="stop" if step.answers else None)

    def _begin(self, start: SequenceStart) -> _Sequence:
        sequence = _Sequence(start, (), list(start.generated))
        if not isinstance(start.task, Sample | Prefill):
            sequence.error = _NO_ANSWER
        elif isinstance(start.task, Sample):
            try:
                sequence.answer = tuple(self.answers(start.prompt_token_ids))
            except Exception as error:  # a script is somebody else's code; the request reports what it raised
                sequence.error = f"the script raised {error!r}"
        return sequence


def _sample(step: SequenceStep, sequence: _Sequence, task: Sample) -> TokensSampled:
    """Accept the draft as far as it is the answer, and add the token that follows."""
    sampling, request_id = task.sampling, sequence.start.request_id
    probability = None if step.probe is None else 0.0
    prompt_logprobs = _prompt_logprobs(step, sequence.start, task)
    if not step.answers:
        return TokensSampled(request_id, probe_probability=probability, prompt_logprobs=prompt_logprobs)
    draft = step.token_ids[len(step.token_ids) - step.num_draft :]
    new: list[int] = []
    reason: FinishReason | None = None
    for proposed in (*draft, None):
        if len(sequence.generated) >= len(sequence.answer):
            reason = "stop"
            break
        token = sequence.answer[len(sequence.generated)]
        new.append(token)
        sequence.generated.append(token)
        if len(sequence.generated) >= sampling.max_tokens:
            reason = "length"
            break
        if token != proposed:
            break
    sequence.is_over = reason is not None
    return TokensSampled(
        request_id,
        token_ids=tuple(new),
        logprobs=() if sampling.logprobs is None else (0.0,) * len(new),
        top_logprobs=tuple(((token, 0.0),) for token in new) if sampling.logprobs else (),
        num_draft=step.num_draft,
        num_draft_accepted=len(new) - (reason != "stop"),
        probe_probability=probability,
        prompt_logprobs=prompt_logprobs,
        finish_reason=reason,
    )


def _prompt_logprobs(step: SequenceStep, start: SequenceStart, task: Sample) -> PromptLogprobs | None:
    """0 for each prompt token that a fed prompt token predicts."""
    if task.sampling.prompt_logprobs is None:
        return None
    num = max(0, min(step.start + step.num_rows, len(start.prompt_token_ids) - 1) - step.start)
    return PromptLogprobs((0.0,) * num, ((),) * num, (1,) * num)
