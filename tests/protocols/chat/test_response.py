"""What chat answers: bodies and chunks that the `openai` package accepts, strictly."""

from __future__ import annotations

import msgspec
import openai.types.chat as openai_chat
from hypothesis import given
from hypothesis import strategies as st
from sensorium.protocols.chat.response import (
    AnswerMessage,
    CalledFunction,
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatFinishedBy,
    ChoiceLogprobs,
    ChunkChoice,
    Delta,
    FunctionDelta,
    TokenLogprob,
    ToolCall,
    ToolCallDelta,
    TopLogprob,
)
from sensorium.protocols.shared.generation import sse, usage

CALL = ToolCall(id="call_1", function=CalledFunction("f", "{}"))
MORE = ToolCallDelta(index=0, function=FunctionDelta(arguments="{"))
TOKENS = st.lists(st.tuples(st.text(max_size=3), st.floats(-20, 0)), max_size=4)


def logprobs_of(pairs: list[tuple[str, float]]) -> ChoiceLogprobs:
    return ChoiceLogprobs(
        [
            TokenLogprob(text, value, list(text.encode()), [TopLogprob(text, value, list(text.encode()))])
            for text, value in pairs
        ]
    )


@given(st.text(), TOKENS, st.sampled_from(["stop", "length", "tool_calls"]))
def test_openai_reads_every_body(text: str, pairs: list[tuple[str, float]], reason: ChatFinishedBy) -> None:
    body = ChatCompletion(
        id="chatcmpl-1",
        created=1,
        model="m",
        choices=[
            ChatChoice(
                index=0,
                message=AnswerMessage(content=text, reasoning_content=text, tool_calls=[CALL]),
                finish_reason=reason,
                logprobs=logprobs_of(pairs),
            )
        ],
        usage=usage(3, 2, 1),
    )
    parsed = openai_chat.ChatCompletion.model_validate_json(msgspec.json.encode(body), strict=True)
    assert parsed.choices[0].message.content == text
    assert [call.id for call in parsed.choices[0].message.tool_calls or ()] == ["call_1"]
    assert parsed.choices[0].logprobs is not None
    assert [token.logprob for token in parsed.choices[0].logprobs.content or []] == [v for _, v in pairs]


@given(st.text(), TOKENS, st.sampled_from(["stop", "length", "tool_calls", None]), st.booleans())
def test_openai_reads_every_chunk(
    text: str, pairs: list[tuple[str, float]], reason: ChatFinishedBy | None, is_first: bool
) -> None:
    delta = Delta(role="assistant", content="") if is_first else Delta(content=text, tool_calls=[MORE])
    chunk = ChatChunk(
        id="chatcmpl-1",
        created=1,
        model="m",
        choices=[ChunkChoice(index=0, delta=delta, finish_reason=reason, logprobs=logprobs_of(pairs))],
        usage=None,
    )
    event = sse(chunk)
    assert b"\n" not in event[:-2]
    parsed = openai_chat.ChatCompletionChunk.model_validate_json(event.removeprefix(b"data: "), strict=True)
    assert parsed.choices[0].delta.content == ("" if is_first else text)
    assert parsed.choices[0].finish_reason == reason


def test_openai_reads_the_chunk_with_the_usage() -> None:
    chunk = ChatChunk(id="chatcmpl-1", created=1, model="m", choices=[], usage=usage(3, 2, 1))
    event = sse(chunk).removeprefix(b"data: ")
    parsed = openai_chat.ChatCompletionChunk.model_validate_json(event, strict=True)
    assert parsed.usage is not None
    assert parsed.usage.completion_tokens == 2
