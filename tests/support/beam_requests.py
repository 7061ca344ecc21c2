"""Requests for the answer of several beams to the fake runner, and the answers that they must get."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from sensorium.engine.text.beam_search import Beam, BeamSearch
from sensorium.protocols.engine.messages import (
    Request,
    RequestId,
    Sample,
    SampleRequest,
    SamplingParams,
    TextGenerated,
)
from support.fake_runner import decode, likeliest_alone

STOPS = (7, 11, 13, 17, 19, 23)
"""So many that answers end by themselves."""


def beams(name: str, num: int = 3, *, prompt: Sequence[int] = (1, 2, 3), **sampling: object) -> SampleRequest:
    """A request for an answer of at most 8 tokens, of `num` beams."""
    params = SamplingParams(max_tokens=8, stop_token_ids=STOPS, num_beams=num)
    return Request(RequestId(name), tuple(prompt), Sample(msgspec.structs.replace(params, **sampling)))


def searched(request: SampleRequest) -> tuple[Beam, list[int]]:
    """The answer that `request` must get; for each step, from how many of the last one's beams its go on."""
    sampling = request.task.sampling
    search = BeamSearch(
        sampling.num_beams,
        max_tokens=sampling.max_tokens,
        stop_token_ids=sampling.stop_token_ids,
        length_penalty=sampling.length_penalty,
        patience=sampling.patience,
    )
    num_parents: list[int] = []
    while not search.is_over:
        num_parents.append(len({beam.parent for beam in search.running}))
        if len(num_parents) == 2:
            sampling = msgspec.structs.replace(sampling, begin_suppress_token_ids=())
        prompts = [request.prompt_token_ids + beam.token_ids for beam in search.running]
        parts = [
            msgspec.structs.replace(
                request, task=msgspec.structs.replace(request.task, sampling=sampling), prompt_token_ids=each
            )
            for each in prompts
        ]
        search.advance([likeliest_alone(part) for part in parts])
    return search.best(), num_parents


def expect_answer(answer: TextGenerated, request: SampleRequest) -> None:
    """It is that of the search, as any other's answer would be told."""
    best, _ = searched(request)
    expected = TextGenerated(
        request.request_id,
        best.token_ids,
        text=decode(best.token_ids),
        logprobs=best.logprobs if request.task.sampling.logprobs is not None else (),
        num_cached=answer.num_cached,
        finish_reason=best.finish_reason,
    )
    assert answer == expected
