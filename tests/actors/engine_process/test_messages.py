"""What is said arrives as it was said, however long it is; errors are the errors they were."""

from __future__ import annotations

import msgspec
import pytest
import trio
from sensorium.actors.engine_process import messages
from sensorium.actors.engine_process.chunking import read_message, send_message
from sensorium.actors.engine_process.messages import Message
from sensorium.actors.engine_process.multiplexer import Link, LinkLostError
from sensorium.protocols import errors
from sensorium.protocols.engine.messages import (
    Align,
    ContentHash,
    Features,
    PromptLogprobs,
    Request,
    RequestId,
    Sample,
    SamplingParams,
    TextGenerated,
)
from trio.testing import memory_stream_pair

IDS = tuple(range(100_000))
PAIRS = tuple((number, -0.5 * number) for number in range(3000))
LONG: list[Message] = [
    messages.Run(0, Request(RequestId("a"), IDS, Sample(SamplingParams(max_tokens=5)))),
    messages.Run(
        0,
        Request(
            RequestId("a"),
            (1, 2),
            Sample(
                SamplingParams(max_tokens=5, allowed_token_ids=IDS, logit_bias=PAIRS, stop=("x",)),
                draft_token_ids=IDS,
            ),
        ),
    ),
    messages.Run(1, Request(RequestId("a"), IDS, Align(1, 2, 3), encoder_hash=ContentHash("h"))),
    messages.Text(
        TextGenerated(
            RequestId("a"),
            IDS,
            text="text " * 100_000,
            logprobs=tuple(-float(number) for number in IDS),
            top_logprobs=(PAIRS[:20],) * 4000,
            prompt_logprobs=PromptLogprobs((-1.0,) * 9000, (PAIRS[:3],) * 9000, (1,) * 9000),
            finish_reason="stop",
        )
    ),
]


async def carried(*sent: Message) -> list[Message]:
    """What comes out at the other end of a stream."""
    ours, theirs = memory_stream_pair()
    here, there = Link(ours), Link(theirs)
    found: list[Message] = []

    async def take(call: int, parts: list[bytes]) -> None:
        assert call == len(found) + 1
        found.append((await read_message(parts))[0])
        if len(found) == len(sent):
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(here.run_sending)
        nursery.start_soon(there.run_receiving, take)
        for call, message in enumerate(sent, 1):
            await send_message(here, call, message)
    return found


@pytest.mark.parametrize("message", LONG, ids=["prompt", "sampling", "align", "answer"])
async def test_what_is_long_arrives(message: Message) -> None:
    assert await carried(message) == [message]


async def test_nothing_long_is_within_a_message() -> None:
    """So that decoding one does not hold the loop."""
    for message in LONG:
        assert isinstance(message, messages.Lengthy)
        body, _, slices = messages.detached(message.body)
        short = msgspec.structs.replace(message, body=body)
        text = len(body.text) if isinstance(body, TextGenerated) else 0
        assert len(messages.encode(short)) < 2000 + text
        assert max(len(messages.encode_slice(each)) for each in slices) < 80_000


@pytest.mark.parametrize(
    "error",
    [
        errors.BadRequestError("no", param="messages[0]", code="context_length_exceeded"),
        errors.OverloadedError("later", retry_after_s=7.0),
        errors.UnavailableError("down", code="engine_lost"),
        errors.ModelLoadError("no such folder"),
        errors.InternalError("ours"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors(error: errors.SensoriumError) -> None:
    found = messages.raised(messages.failed(error))
    assert type(found) is type(error)
    assert vars(found) == vars(error)


def test_an_error_of_a_class_of_our_own_is_of_the_nearest_that_all_know() -> None:
    class HangsError(errors.UnavailableError):
        pass

    found = messages.raised(messages.failed(HangsError("it hangs")))
    assert (type(found), found.message) == (errors.UnavailableError, "it hangs")


def test_features_travel_as_they_are() -> None:
    features = (
        Features((2, 3), bytes(24)),
        Features((4, 1), bytes(16), (1, 2, 2)),
        Features((4, 2), bytes(16), (1, 4, 4), "bfloat16"),
        Features((2, 4), bytes(32), num_before=2),
    )
    supply, buffers = messages.shapes_of(features)
    assert [data is each.data for data, each in zip(buffers, features, strict=True)] == 4 * [True]
    assert messages.features_of(supply, [bytes(each) for each in buffers]) == features


async def test_a_link_to_nobody() -> None:
    ours, theirs = memory_stream_pair()
    link = Link(ours)
    await theirs.aclose()

    async def take(call: int, parts: list[bytes]) -> None:
        raise AssertionError("there is nobody")

    with pytest.raises(LinkLostError):
        await link.run_receiving(take)
    link.send_nowait(1, b"x")
    with pytest.raises(LinkLostError):
        await link.send(1, b"x", [])
