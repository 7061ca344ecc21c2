"""`/v1/completions`: prompts of four kinds, parameters, and bodies that the `openai` package accepts."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import openai.types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.chat.completions import (
    Completion,
    CompletionChoice,
    CompletionLogprobs,
    CompletionRequest,
    completion_params,
    parse_completion,
    prompts_of,
)
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.shared.generation import FinishedBy, PromptLogprob, sse, usage


def parse(**fields: object) -> CompletionRequest:
    return parse_completion(json.dumps({"prompt": "Hello", **fields}).encode())


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a", ("a",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], ((1, 2),)),
        ([[1], [2, 3]], ((1,), (2, 3))),
    ],
)
def test_prompts(prompt: object, expected: object) -> None:
    assert prompts_of(parse(prompt=prompt)) == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": ["a", ""]}, "prompt[1]"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": [1, -1]}, "prompt[1]"),
        ({"prompt": [[1], [-1]]}, "prompt[1][0]"),
        ({"prompt": 3}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": ["a"] * 65, "n": 2}, "prompt"),
        ({"suffix": "end"}, "suffix"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"echo": True, "max_tokens": -1}, "max_tokens"),
        ({"echo": True, "logprobs": 1, "stream": True}, "logprobs"),
        ({"temperature": 3}, "temperature"),
    ],
)
def test_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse(**fields)
    assert caught.value.param == param


def test_parameters() -> None:
    assert completion_params(parse(), vocab_size=10).max_tokens == 16
    params = completion_params(parse(echo=True, logprobs=2, max_tokens=0), vocab_size=10)
    assert (params.max_tokens, params.logprobs, params.prompt_logprobs) == (1, 2, 2)
    assert completion_params(parse(logprobs=0), vocab_size=10).logprobs == 0
    assert completion_params(parse(), vocab_size=10).logprobs is None


LOGPROBS = st.lists(st.tuples(st.text(max_size=3), st.floats(-20, 0)), max_size=4)


@given(st.text(), LOGPROBS, st.sampled_from(["stop", "length"]), st.integers(0, 9))
def test_openai_reads_every_body(
    text: str, pairs: list[tuple[str, float]], reason: FinishedBy, count: int
) -> None:
    logprobs = CompletionLogprobs(
        [token for token, _ in pairs],
        [value for _, value in pairs],
        [{token: value} for token, value in pairs],
        list(range(len(pairs))),
    )
    body = Completion(
        id="cmpl-1",
        created=1,
        model="m",
        choices=[
            CompletionChoice(
                index=0,
                text=text,
                logprobs=logprobs,
                finish_reason=reason,
                prompt_logprobs=[None, {"3": PromptLogprob(logprob=-1.0, decoded_token="a", rank=1)}],
            )
        ],
        usage=usage(count, 2, 1),
    )
    parsed = openai.types.Completion.model_validate_json(msgspec.json.encode(body), strict=True)
    assert parsed.choices[0].text == text
    assert parsed.choices[0].logprobs is not None
    assert parsed.choices[0].logprobs.token_logprobs == [value for _, value in pairs]
    assert parsed.usage is not None
    assert parsed.usage.total_tokens == count + 2
    assert parsed.usage.prompt_tokens_details is not None
    assert parsed.usage.prompt_tokens_details.cached_tokens == 1
    event = sse(body)
    assert event.startswith(b"data: {")
    assert event.endswith(b"}\n\n")
    assert b"\n" not in event[:-2]
