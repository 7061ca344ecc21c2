"""Live frames over real sockets: encoded once, read while nobody asks, answered as a clip from scratch is."""

from __future__ import annotations

import base64
import sys
from functools import partial
from pathlib import Path
from typing import Any

import live_camera
import pytest
import trio
from sensorium.actors.text.generation import TextModel, answer_one
from sensorium.client import Client
from sensorium.client.cli import camera
from sensorium.client.cli.watch import watch_it
from sensorium.client.realtime.conversation_machine import DialogueOptions
from sensorium.media.vision.config import read_vision_config
from sensorium.media.vision.images import patch_item
from sensorium.media.vision.live_frames import open_frame
from sensorium.protocols.chat.content import ChatMessage, MediaPart, TextPart
from sensorium.protocols.chat.request import Conversation
from sensorium.protocols.engine.messages import MediaItems, SamplingParams
from support.command_line import Run
from support.live_answers import LiveTalk, live_talk, text, words_of
from support.server import Server, wait_until
from support.vision_files import movie, picture, png

pytestmark = pytest.mark.slow

FPS = 2
NUM_FRAMES = 120
"""That a session remembers at most: 60 seconds of them."""


def frame(index: int) -> bytes:
    return png(48, 64, 300 + index)


def show(talk: LiveTalk, index: int, *, binary: bool = False) -> None:
    """Send frame `index`, at its time."""
    event = {"type": "input_image_buffer.append", "timestamp_ms": 1000 * index // FPS}
    if binary:
        talk.session.send(event)
        talk.session.socket.send(frame(index))
    else:
        talk.session.send(event | {"image": base64.b64encode(frame(index)).decode()})


def from_scratch(server: Server, folder: Path, frames: range, question: str, *, origin: int = 0) -> str:
    """The answer to the same pairs in one prompt that shares nothing with anybody; `origin`: the frame from
    which times are counted."""
    config = read_vision_config(folder).bounded(2**21).video
    seen = [open_frame(frame(index), config, num_frames=NUM_FRAMES).pixels for index in frames]
    items = tuple(
        patch_item(seen[start : start + 2], config.pixels, "video") for start in range(0, len(seen), 2)
    )
    times = tuple((start - origin + 0.5) / FPS for start in frames[::2])
    messages = (
        ChatMessage(role="user", content=(MediaPart("video", b"", "clip"),), extra={}, param="a"),
        ChatMessage(role="user", content=(TextPart(question),), extra={}, param="b"),
    )
    model = server.service.models["vision"].text
    assert model is not None

    async def transcribe(model: TextModel = model) -> str:
        conversation = Conversation(messages=messages, template_kwargs={})
        prompt = await model.prompter.build(conversation, [MediaItems("video", items, times)])
        answer = await answer_one(model, prompt, SamplingParams(max_tokens=12), cache_salt="somebody else")
        return answer.text

    return trio.from_thread.run(transcribe, trio_token=server.token)


def test_a_question_over_a_running_video_costs_its_own_tokens(
    text_server: Server, folders: dict[str, Path]
) -> None:
    engine = text_server.service.models["vision"].engine
    with live_talk(text_server) as talk:
        before = engine.statistics()
        for index in range(12):
            show(talk, index, binary=index % 2 == 1)
        wait_until(lambda: engine.statistics().num_windows_encoded - before.num_windows_encoded == 6)
        wait_until(lambda: engine.statistics().num_running + engine.statistics().num_waiting == 0)
        ready = engine.statistics()
        talk.add(text("What changed?"))
        done = talk.respond()
        after = engine.statistics()
        details = done["usage"]["input_token_details"]
        assert details["image_tokens"] == details["cached_tokens_details"]["image_tokens"] > 0
        assert after.num_windows_encoded == ready.num_windows_encoded
        assert after.num_prefill_tokens - ready.num_prefill_tokens <= 60
        assert words_of(done) == from_scratch(text_server, folders["vision"], range(12), "What changed?")


def test_a_question_right_behind_an_eviction_costs_its_own_tokens(
    text_server: Server, folders: dict[str, Path]
) -> None:
    """What stays was read before the oldest went."""
    engine = text_server.service.models["vision"].engine
    with live_talk(text_server, video={"retention_s": 4.0}) as talk:
        before = engine.statistics()
        for index in range(20, 30):
            show(talk, index)
            encoded = before.num_windows_encoded + (index - 20 + 1) // 2
            wait_until(partial(lambda most: engine.statistics().num_windows_encoded >= most, encoded))
        gone = talk.session.until("input_image_buffer.evicted")
        ready = engine.statistics()
        assert gone["timestamps_ms"] == [10_000, 10_500, 11_000, 11_500]
        talk.add(text("What changed?"))
        done = talk.respond()
        after = engine.statistics()
        details = done["usage"]["input_token_details"]
        assert details["image_tokens"] == details["cached_tokens_details"]["image_tokens"] > 0
        assert after.num_windows_encoded - before.num_windows_encoded == 5
        assert after.num_prefill_tokens - ready.num_prefill_tokens <= 45
        seen = range(24, 30)
        assert words_of(done) == from_scratch(
            text_server, folders["vision"], seen, "What changed?", origin=20
        )


def test_bad_frames_are_named_and_the_session_goes_on(text_server: Server) -> None:
    with live_talk(text_server) as talk:
        show(talk, 0)
        talk.session.send(
            {
                "type": "input_image_buffer.append",
                "timestamp_ms": 500,
                "image": base64.b64encode(b"no picture").decode(),
            }
        )
        assert talk.error()["code"] == "invalid_media"
        cut = base64.b64encode(frame(1)[:200]).decode()
        talk.session.send({"type": "input_image_buffer.append", "timestamp_ms": 1000, "image": cut})
        assert talk.error()["code"] == "invalid_media"
        talk.session.send({"type": "input_image_buffer.append", "timestamp_ms": 1500, "image": ""})
        assert talk.error()["code"] == "invalid_media"
        show(talk, 4)
        talk.add(text("?"))
        assert talk.respond()["usage"]["input_token_details"]["image_tokens"] > 0


def test_the_example_shows_a_film_and_asks(text_server: Server, tmp_path: Path) -> None:
    film = tmp_path / "film.mp4"
    film.write_bytes(movie([picture(48, 64, seed) for seed in range(40)], fps=10))
    (answer,) = live_camera.main(str(film), "What changed?", text_server.url, model="vision", speed=4.0)
    assert answer


@pytest.mark.parametrize("source", ["camera", "screen"])
def test_the_example_shows_what_a_device_sees(
    text_server: Server, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """ffmpeg's test picture, drawn in real time, is the camera; it is unplugged after a second."""
    device = "testsrc=size=64x48:rate=20:duration=1,realtime"
    monkeypatch.setattr(camera, "_CAMERAS", {sys.platform: ("lavfi", device)})
    monkeypatch.setattr(camera, "_SCREENS", {sys.platform: ("lavfi", "")})
    monkeypatch.setenv("DISPLAY", device)
    (answer,) = live_camera.main(source, "What changed?", text_server.url, model="vision")
    assert answer


def test_a_film_is_watched_from_the_command_line(text_server: Server, run: Run, tmp_path: Path) -> None:
    film = tmp_path / "film.mp4"
    film.write_bytes(movie([picture(48, 64, seed) for seed in range(20)], fps=10))
    answer = run(
        "watch",
        str(film),
        "What changed?",
        "--every",
        "0.8",
        "--model",
        "vision",
        "--max-output-tokens",
        "4",
        "--base-url",
        text_server.url,
    )
    assert answer.returncode == 0, answer
    assert 2 <= sum(line.startswith("0:0") for line in answer.stdout.splitlines()) <= 4


def test_watching_does_not_remember_everything_that_was_ever_said(
    text_server: Server, tmp_path: Path
) -> None:
    truncation: list[Any] = []

    class Noting(Client):
        def realtime(self, *args: Any, **options: Any) -> Any:  # noqa: ANN401
            session = super().realtime(*args, **options)
            truncation.append(options["truncation"])
            return session

    film = tmp_path / "film.mp4"
    film.write_bytes(movie([picture(48, 64, seed) for seed in range(5)], fps=10))
    with Noting(text_server.url) as client:
        assert watch_it(client, str(film), "?", "vision", 0.0, DialogueOptions(max_output_tokens=4)) == 0
    (kept,) = truncation
    assert kept["token_limits"] == {"post_instructions": 8192}


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("no-such-film.mp4", "no such film: no-such-film.mp4"),
        ("/dev/video97", "cannot open /dev/video97"),
        ("screen", "no screen: DISPLAY is not set"),
        (__file__, "cannot open"),
    ],
)
def test_what_cannot_be_watched_is_said(
    text_server: Server, run: Run, monkeypatch: pytest.MonkeyPatch, source: str, named: str
) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    answer = run("watch", source, "?", "--model", "vision", "--base-url", text_server.url)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert named in answer.stderr
    answer = run("watch", source, "?", "--model", "text", "--base-url", text_server.url)
    assert (answer.returncode, "takes no live frames" in answer.stderr) == (2, True)
