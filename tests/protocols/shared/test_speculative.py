"""`prediction` and `speculative`: what they may say, and what an engine is asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sensorium.protocols.chat.request import ChatRequest, parse_chat
from sensorium.protocols.engine.messages import NgramDraft
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.shared.speculative import (
    MAX_PREDICTION_CHARS,
    Speculative,
    ngram_draft,
    predicted_text,
)


def parse(**fields: Any) -> ChatRequest:  # noqa: ANN401
    body = {"messages": [{"role": "user", "content": "a"}], **fields}
    return parse_chat(json.dumps(body).encode())[0]


def content(what: object) -> dict[str, object]:
    return {"type": "content", "content": what}


def test_a_prediction_is_a_text_or_parts_of_one() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    for content in ("ab", parts):
        prediction = parse(prediction={"type": "content", "content": content}).prediction
        assert prediction is not None
        assert predicted_text(prediction) == "ab"


@pytest.mark.parametrize(
    ("wish", "default", "expected"),
    [
        (None, 0, None),
        (None, 3, NgramDraft(3)),
        ({}, 0, NgramDraft()),
        ({}, 3, NgramDraft(3)),
        ({"num_speculative_tokens": 0}, 3, None),
        ({"num_speculative_tokens": 5}, 0, NgramDraft(5)),
        ({"prompt_lookup_max": 1}, 0, NgramDraft(8, 1, 1)),
        ({"prompt_lookup_min": 6}, 0, NgramDraft(8, 6, 6)),
        ({"prompt_lookup_max": 9, "prompt_lookup_min": 3}, 0, NgramDraft(8, 9, 3)),
    ],
)
def test_what_is_looked_up(wish: dict[str, int] | None, default: int, expected: NgramDraft | None) -> None:
    speculative = parse(speculative=wish).speculative
    assert isinstance(speculative, Speculative | None)
    assert ngram_draft(speculative, default) == expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prediction": {"type": "text", "content": "a"}}, "prediction.type"),
        ({"prediction": {"type": "content"}}, "prediction.content"),
        ({"prediction": content([{"type": "image", "text": ""}])}, "prediction.content[0].type"),
        ({"prediction": content("a" * (MAX_PREDICTION_CHARS + 1))}, "prediction.content"),
        ({"speculative": {"method": "eagle"}}, "speculative.method"),
        ({"speculative": {"num_speculative_tokens": 65}}, "speculative.num_speculative_tokens"),
        ({"speculative": {"num_speculative_tokens": -1}}, "speculative.num_speculative_tokens"),
        ({"speculative": {"prompt_lookup_max": 17}}, "speculative.prompt_lookup_max"),
        ({"speculative": {"prompt_lookup_max": 2, "prompt_lookup_min": 3}}, "speculative.prompt_lookup_min"),
        ({"speculative": {"prompt_lookup_min": 17}}, "speculative.prompt_lookup_min"),
        ({"speculative": {"model": "small"}}, "speculative.model"),
    ],
)
def test_what_is_none_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parse(**fields)
    assert caught.value.param == param
