"""Streams of text: order, ends, overruns, and tokens that come too late."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import trio
from sensorium.actors.inference.detokenizer import DetokenizerActor, StreamId, TextStream
from sensorium.engine.text.text_decoder import TextDecoder, WindowedDecoder
from sensorium.protocols.engine.messages import (
    FinishReason,
    RequestId,
    SamplingParams,
    TextGenerated,
    TokensSampled,
)
from sensorium.protocols.errors import InternalError, UnavailableError
from support.fake_runner import decode
from trio.testing import wait_all_tasks_blocked

R = RequestId("r")


def make_decoder() -> WindowedDecoder:
    return WindowedDecoder(decode)


def text(number: int, reason: FinishReason | None = None) -> TextGenerated:
    return TextGenerated(R, (number,), finish_reason=reason, text=str(number))


def sampled(*token_ids: int, reason: FinishReason | None = None) -> TokensSampled:
    return TokensSampled(R, token_ids, finish_reason=reason)


async def test_a_stream_ends_after_its_last_message() -> None:
    stream = TextStream(R)
    for each in (text(1), text(2, "stop")):
        assert stream.put_nowait(each)
    assert stream.is_finished
    assert stream.put_nowait(text(3)), "nothing comes after the end"
    assert [each.text async for each in stream] == ["1", "2"]
    with pytest.raises(trio.EndOfChannel):
        await stream.receive()


async def test_an_overrun_keeps_what_was_there_and_says_so() -> None:
    stream = TextStream(R, capacity=2)
    assert [stream.put_nowait(text(number)) for number in range(3)] == [True, True, False]
    parts = [each async for each in stream]
    assert [each.text for each in parts] == ["0", "1", ""]
    assert (parts[-1].finish_reason, parts[-1].error) == ("error", "the reader fell 2 messages behind")


async def test_a_failed_stream_raises_after_what_was_there() -> None:
    stream = TextStream(R)
    stream.put_nowait(text(1))
    stream.fail(UnavailableError("down"))
    stream.fail(UnavailableError("the first error counts"))
    assert (await stream.receive()).text == "1"
    for _ in range(2):
        with pytest.raises(UnavailableError, match="down"):
            await stream.receive()


async def test_a_finished_stream_cannot_fail() -> None:
    stream = TextStream(R)
    stream.put_nowait(text(1, "stop"))
    stream.fail(UnavailableError("down"))
    assert [each.text async for each in stream] == ["1"]


def nothing(request_id: RequestId, stream_id: StreamId) -> None:
    """Where no request is ended."""


async def test_text_does_not_wait_for_all_who_come_and_go_to_have_had_a_turn(nursery: trio.Nursery) -> None:
    actor = DetokenizerActor(make_decoder=make_decoder, abort=nothing, stop=nothing)
    await nursery.start(actor.run)
    stream = TextStream(R)
    actor.handle.open(StreamId(0), stream)
    for number in range(1, 1000):
        actor.handle.open(StreamId(number), TextStream(R))
        actor.handle.close(StreamId(number))
    actor.handle.decode([(StreamId(0), sampled(1, reason="stop"))])
    for _ in range(10):
        await trio.lowlevel.checkpoint()
    assert stream.is_finished
    assert actor.num_streams == 0


async def test_a_whole_stream_gets_one_message_with_everything(nursery: trio.Nursery) -> None:
    actor = DetokenizerActor(make_decoder=make_decoder, abort=nothing, stop=nothing)
    await nursery.start(actor.run)
    stream = TextStream(R, stride=None)
    actor.handle.open(StreamId(1), stream)
    parts = [
        TokensSampled(R, (1, 2), (-0.5, -1.0), num_draft_accepted=1, probe_probability=0.25),
        TokensSampled(R, (3,), (-2.0,), num_draft_accepted=2),
        TokensSampled(R, (), finish_reason="stop"),
    ]
    for part in parts:
        actor.handle.decode([(StreamId(1), part)])
    assert [each async for each in stream] == [
        TextGenerated(
            R,
            (1, 2, 3),
            (-0.5, -1.0, -2.0),
            text="bcd",
            finish_reason="stop",
            num_draft_accepted=3,
            probe_probability=0.25,
        ),
    ]


@pytest.mark.parametrize("stop", [(), ("never",)])
async def test_a_stream_with_a_stride_gets_so_many_tokens_a_message(
    nursery: trio.Nursery, stop: tuple[str, ...]
) -> None:
    actor = DetokenizerActor(make_decoder=make_decoder, abort=nothing, stop=nothing)
    await nursery.start(actor.run)
    stream = TextStream(R, stride=3)
    actor.handle.open(StreamId(1), stream, SamplingParams(max_tokens=9, stop=stop))
    parts = [
        TokensSampled(R, (0, 1), (-0.5, -1.0), num_cached=4, probe_probability=0.25),
        TokensSampled(R, (2, 3), (-2.0, -2.5), num_draft_accepted=1),
        TokensSampled(R, (4,), (-3.0,), num_draft_accepted=1),
        TokensSampled(R, (5,), (-3.5,), finish_reason="length"),
    ]
    for part in parts:
        actor.handle.decode([(StreamId(1), part)])
    received = [each async for each in stream]
    assert [(each.text, each.token_ids, each.logprobs) for each in received] == [
        ("abcd", (0, 1, 2, 3), (-0.5, -1.0, -2.0, -2.5)),
        ("ef", (4, 5), (-3.0, -3.5)),
    ]
    assert [each.finish_reason for each in received] == [None, "length"]
    assert [each.num_draft_accepted for each in received] == [1, 1]
    first, last = received
    assert (first.num_cached, first.probe_probability) == (4, 0.25)
    assert (last.num_cached, last.probe_probability) == (0, None)
    assert actor.num_streams == 0


async def test_slow_and_closed_readers_hold_nobody_up(nursery: trio.Nursery) -> None:
    aborted: list[tuple[RequestId, StreamId]] = []
    actor = DetokenizerActor(
        make_decoder=make_decoder,
        abort=lambda request_id, stream_id: aborted.append((request_id, stream_id)),
        stop=nothing,
    )
    await nursery.start(actor.run)
    slow, closed, good = TextStream(R, capacity=1), TextStream(R), TextStream(R)
    ids = [StreamId(number) for number in range(3)]
    for stream_id, stream in zip(ids, (slow, closed, good), strict=True):
        actor.handle.open(stream_id, stream)
    actor.handle.close(ids[1])
    for token in range(3):
        actor.handle.decode([(stream_id, sampled(token)) for stream_id in ids])
    actor.handle.decode([(ids[2], sampled(reason="length"))])
    await wait_all_tasks_blocked()
    assert aborted == [(R, ids[0])]
    assert [each.text async for each in slow] == ["a", ""]
    assert not closed.is_finished
    assert [each.text async for each in good] == ["a", "b", "c", ""]
    assert actor.num_streams == 0


@pytest.mark.parametrize("whole", [False, True])
async def test_a_stop_string_ends_the_stream_and_aborts_the_request(
    nursery: trio.Nursery, whole: bool
) -> None:
    stopped: list[tuple[RequestId, StreamId]] = []
    actor = DetokenizerActor(
        make_decoder=make_decoder,
        stop=lambda request_id, stream_id: stopped.append((request_id, stream_id)),
        abort=nothing,
    )
    await nursery.start(actor.run)
    stream = TextStream(R, stride=None if whole else 1)
    actor.handle.open(StreamId(1), stream, SamplingParams(max_tokens=9, stop=("cd",)))
    for token in range(6):
        actor.handle.decode([(StreamId(1), sampled(token))])
    parts = [each async for each in stream]
    assert "".join(part.text for part in parts) == "ab"
    assert tuple(token for part in parts for token in part.token_ids) == (0, 1)
    assert (parts[-1].finish_reason, parts[-1].stop) == ("stop", "cd")
    await wait_all_tasks_blocked()
    assert stopped == [(R, StreamId(1))]
    assert actor.num_streams == 0


async def test_text_of_a_whole_stream_is_made_once(nursery: trio.Nursery) -> None:
    calls: list[int] = []

    def counting(token_ids: Sequence[int]) -> str:
        calls.append(len(token_ids))
        return decode(token_ids)

    actor = DetokenizerActor(make_decoder=lambda: WindowedDecoder(counting), abort=nothing, stop=nothing)
    await nursery.start(actor.run)
    stream = TextStream(R, stride=None)
    actor.handle.open(StreamId(1), stream)
    for token in range(8):
        actor.handle.decode([(StreamId(1), sampled(token, reason="length" if token == 7 else None))])
    assert (await stream.receive()).text == "abcdefgh"
    assert calls == [8]


async def test_a_decoder_that_breaks_ends_its_own_request(nursery: trio.Nursery) -> None:
    class Panic(BaseException):
        pass

    class Breaking:
        def push(self, token_ids: Sequence[int]) -> str:
            raise broken.pop()

        def flush(self) -> str:
            return ""

    broken: list[BaseException] = [ValueError("a defect"), Panic("a panic")]
    aborted: list[tuple[RequestId, StreamId]] = []
    decoders: list[Callable[[], TextDecoder]] = [Breaking, Breaking, make_decoder]
    actor = DetokenizerActor(
        make_decoder=lambda: decoders.pop(0)(),
        abort=lambda request_id, stream_id: aborted.append((request_id, stream_id)),
        stop=nothing,
    )
    await nursery.start(actor.run)
    streams = [TextStream(R) for _ in range(3)]
    for number, stream in enumerate(streams):
        actor.handle.open(StreamId(number), stream)
    await wait_all_tasks_blocked()
    actor.handle.decode([(StreamId(number), sampled(0)) for number in range(3)])
    actor.handle.decode([(StreamId(number), sampled(reason="length")) for number in range(3)])
    await wait_all_tasks_blocked()
    for stream in streams[:2]:
        with pytest.raises(InternalError, match="could not be made"):
            await stream.receive()
    assert [each.text async for each in streams[2]] == ["a", ""]
    assert aborted == [(R, StreamId(0)), (R, StreamId(1))]
    assert actor.num_streams == 0
