"""What a client sends reaches its session in order; audio that waits comes together."""

from __future__ import annotations

import base64
import io
import json
import threading

import msgspec
import pytest
import trio
from PIL import Image
from sensorium.actors.live.audio import PIECE_BYTES, AudioBatch
from sensorium.actors.live.inbound import Intake
from sensorium.protocols.realtime.events import InputAudioBufferCommit, InvalidEvent
from sensorium.protocols.realtime.items import ItemReference, NewItem, read_input
from sensorium.protocols.realtime.responses import ResponseCreate
from sensorium.protocols.realtime.video import InputImageBufferAppend
from sensorium.protocols.realtime.vllm_events import FlatControl
from sensorium.realtime.events import DrainStarted, SessionEvent


def appended(audio: bytes) -> str:
    event = {"type": "input_audio_buffer.append", "audio": base64.b64encode(audio).decode()}
    return msgspec.json.encode(event).decode()


COMMIT = '{"type":"input_audio_buffer.commit"}'


async def everything(intake: Intake) -> list[AudioBatch | SessionEvent | FlatControl]:
    received = []
    while intake.num_waiting:
        received.append(await intake.receive())
    return received


async def test_audio_that_waits_comes_together_and_nothing_passes_it() -> None:
    intake = Intake()
    for frame in (appended(b"ab"), b"cd", COMMIT, b"ef", COMMIT, COMMIT, appended(b"gh")):
        await intake.take(frame)
    assert [
        b"|".join(piece.data for piece in event.pieces) if isinstance(event, AudioBatch) else type(event)
        for event in await everything(intake)
    ] == [b"ab|cd", InputAudioBufferCommit, b"ef", InputAudioBufferCommit, InputAudioBufferCommit, b"gh"]


async def test_what_comes_together_is_bounded() -> None:
    intake = Intake()
    sizes = [6_000, 6_000, 6_000, PIECE_BYTES, 1, 3 * PIECE_BYTES, 5]
    for size in sizes:
        await intake.take(bytes(size))
    batches = await everything(intake)
    totals = [
        sum(len(piece.data) for piece in batch.pieces) for batch in batches if isinstance(batch, AudioBatch)
    ]
    assert len(totals) == len(batches)
    assert sum(totals) == sum(sizes)
    assert max(totals) <= PIECE_BYTES
    assert len(batches) < sum(-(-size // PIECE_BYTES) for size in sizes)


async def test_many_items_in_one_frame_are_read_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = list[threading.Thread]()

    def noted(raw: list[msgspec.Raw]) -> tuple[NewItem | ItemReference, ...]:
        threads.append(threading.current_thread())
        return read_input(raw)

    monkeypatch.setattr("sensorium.protocols.realtime.codec.read_input", noted)
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}]}
    frame = {"type": "response.create", "response": {"conversation": "none", "input": [item] * 1000}}
    intake = Intake(answers=True)
    await intake.take(msgspec.json.encode(frame).decode())
    (event,) = await everything(intake)
    assert isinstance(event, ResponseCreate)
    assert len(event.input or ()) == 1000
    assert threads
    assert threading.current_thread() not in threads


async def test_nothing_is_taken_by_who_is_cancelled() -> None:
    intake = Intake()
    with trio.move_on_after(1) as scope:
        await intake.receive()
    assert scope.cancelled_caught
    await intake.take(b"ab")
    assert isinstance(await intake.receive(), AudioBatch)
    assert intake.num_waiting == 0


async def test_a_frame_that_was_announced_and_never_came_is_named() -> None:
    intake = Intake(answers=True)
    for number in (1, 2):
        event = {"type": "input_image_buffer.append", "event_id": f"event_{number}"}
        await intake.take(json.dumps(event))
    await intake.take(b"a picture")
    refused, frame = await everything(intake)
    assert isinstance(refused, InvalidEvent)
    assert (refused.param, refused.event_id) == ("image", "event_1")
    assert isinstance(frame, InputImageBufferAppend)
    assert (frame.event_id, frame.image) == ("event_2", b"a picture")
    assert intake.num_events == 3, "all of them came"


async def test_a_picture_that_nobody_announced_is_not_sound() -> None:
    whole = io.BytesIO()
    Image.new("RGB", (8, 8)).save(whole, "JPEG")
    pictures = [whole.getvalue(), whole.getvalue()[:-2], b"\x89PNG\r\n\x1a\n", b"RIFF\x00\x00\x00\x00WEBP"]
    sounds = [b"\xff\xd8\xff\xe0 and so on", b"\xff\xd8\xff", b"RIFF\x00\x00\x00\x00WAVE", b"", b"\x00\x01"]
    intake = Intake(answers=True)
    for frame in pictures:
        await intake.take(frame)
    refused = await everything(intake)
    assert [event.code for event in refused if isinstance(event, InvalidEvent)] == 4 * ["frame_not_announced"]
    for frame in sounds:
        await intake.take(frame)
    assert all(isinstance(event, AudioBatch) for event in await everything(intake))
    await intake.take('{"type":"input_image_buffer.append"}')
    await intake.take(pictures[0])
    assert [type(event) for event in await everything(intake)] == [InputImageBufferAppend]
    deaf = Intake()
    await deaf.take(pictures[0])
    assert all(isinstance(event, AudioBatch) for event in await everything(deaf))


async def test_what_may_not_wait_for_room_goes_before_what_fills_it() -> None:
    intake = Intake()
    intake.put_at_once(DrainStarted())
    assert await everything(intake) == [DrainStarted()]
    for _ in range(64):
        await intake.take(COMMIT)
    intake.put_at_once(DrainStarted())
    assert intake.num_waiting == 65
    first, *rest = await everything(intake)
    assert first == DrainStarted()
    assert len(rest) == 64
