"""Whole answers in pieces: the same JSON as at once, and nothing large in one call."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import UNSET
from sensorium.protocols.chat.completions import Completion, CompletionChoice, CompletionLogprobs
from sensorium.protocols.chat.response import (
    AnswerMessage,
    ChatChoice,
    ChatCompletion,
    ChoiceLogprobs,
    TokenLogprob,
    TopLogprob,
)
from sensorium.protocols.shared import json_chunks as module
from sensorium.protocols.shared.generation import PromptLogprob, usage
from sensorium.protocols.shared.json_chunks import ITEMS_AT_ONCE, answer_body

LENGTHS = [0, 1, ITEMS_AT_ONCE, ITEMS_AT_ONCE + 1, 3 * ITEMS_AT_ONCE]


def completion(num_choices: int, num_tokens: int) -> tuple[Completion, list[CompletionChoice]]:
    choices = [
        CompletionChoice(
            index=index,
            text='a "choices":[] b',
            finish_reason="stop",
            token_ids=list(range(num_tokens)) if index else UNSET,
            logprobs=CompletionLogprobs(
                tokens=[f'"{number}' for number in range(num_tokens)],
                token_logprobs=[None, *(-float(number) for number in range(1, num_tokens))][:num_tokens],
                top_logprobs=[None, *({"ä": -0.5} for _ in range(1, num_tokens))][:num_tokens],
                text_offset=list(range(num_tokens)),
            ),
        )
        for index in range(num_choices)
    ]
    return Completion(id="1", created=1, model='m"choices":[]', choices=[], usage=None), choices


def chat(num_tokens: int, num_top: int = 2) -> tuple[ChatCompletion, list[ChatChoice]]:
    top = [TopLogprob(f"<{number}>", -float(number), (226, 150, 129)) for number in range(num_top)]
    content = [TokenLogprob("a token", -0.123456789, tuple(b"a token"), top) for _ in range(num_tokens)]
    choice = ChatChoice(
        index=0,
        message=AnswerMessage(content="hello"),
        finish_reason="length",
        logprobs=ChoiceLogprobs(content),
        token_ids=tuple(range(num_tokens)),
    )
    prompt = [
        None,
        *({"7": PromptLogprob(logprob=-1.0, decoded_token="x", rank=1)} for _ in range(num_tokens)),
    ]
    envelope = ChatCompletion(
        id="1", created=1, model="m", choices=[], usage=usage(1, 2, 0), prompt_logprobs=prompt
    )
    return envelope, [choice]


@pytest.mark.parametrize("num_tokens", LENGTHS)
@pytest.mark.parametrize("num_choices", [0, 1, 3])
def test_pieces_make_the_same_answer(num_choices: int, num_tokens: int) -> None:
    for envelope, choices in (completion(num_choices, num_tokens), chat(num_tokens)):
        whole = msgspec.json.encode(msgspec.structs.replace(envelope, choices=choices))
        assert answer_body(envelope, iter(choices)) == whole


def test_the_longest_answer_is_never_encoded_nor_freed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """14,285 tokens with 20 alternatives each are 25 MB: 100 ms without Python's lock for anybody else."""
    sizes: list[int] = []
    encode = module._encode

    def counted(value: object) -> bytes:
        sizes.append(len(found := encode(value)))
        return found

    monkeypatch.setattr(module, "_encode", counted)
    envelope, choices = chat(14_285, 20)
    body = answer_body(envelope, iter(choices))
    assert len(body) > 15_000_000
    assert sum(sizes) > 0.99 * len(body)
    assert max(sizes) < 300_000
    assert choices[0].logprobs is not None
    assert choices[0].logprobs.content == [None] * 14_285
