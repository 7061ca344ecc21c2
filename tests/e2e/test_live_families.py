"""Live frames for a model of the general path: answered as the same film in a chat, token for token."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from support.live_answers import chat, live_talk, text, words_of
from support.server import Server, make_config, running_server, wait_until
from support.video_checkpoints import VIDEO_FAMILIES, make_video_folder
from support.vision_files import picture, saved

Messages = list[dict[str, Any]]

pytestmark = pytest.mark.slow

FAMILY = next(each for each in VIDEO_FAMILIES if each.name == "qwen2_5_vl")
FPS = 2
NUM_FRAMES = 7
"""The last is a pair by itself."""
QUESTION = "What changed?"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder: Path = make_video_folder(tmp_path_factory.mktemp("models") / "films", FAMILY)
    with running_server(make_config(str(folder))) as running:
        yield running


def frame(index: int) -> str:
    """A JPEG file in base64."""
    return base64.b64encode(saved(Image.fromarray(picture(24, 32, index)), "JPEG")).decode()


def film() -> dict[str, Any]:
    """The frames as a clip that its sender chose."""
    files = ",".join(map(frame, range(NUM_FRAMES)))
    return {"type": "video_url", "video_url": {"url": f"data:video/jpeg;fps={FPS};base64,{files}"}}


def test_frames_of_a_session_are_answered_as_the_same_film_in_a_chat(server: Server) -> None:
    engine = server.service.models["films"].engine
    with live_talk(server, "films") as talk:
        for index in range(NUM_FRAMES):
            event = {"type": "input_image_buffer.append", "timestamp_ms": 1000 * index // FPS}
            talk.session.send(event | {"image": frame(index)})
        wait_until(lambda: engine.statistics().num_windows_encoded == NUM_FRAMES // 2)
        talk.add(text(QUESTION))
        done = talk.respond()
    encoded = engine.statistics().num_windows_encoded
    assert encoded == NUM_FRAMES // 2 + 1
    messages: Messages = [
        {"role": "user", "content": [film()]},
        {"role": "user", "content": QUESTION},
    ]
    answer = chat(server, "films", messages, temperature=0, max_tokens=12)
    assert answer["text"] == words_of(done)
    assert answer["usage"]["prompt_tokens"] == done["usage"]["input_tokens"]
    num_video_tokens = answer["usage"]["prompt_tokens_details"]["video_tokens"]
    assert done["usage"]["input_token_details"]["image_tokens"] == num_video_tokens > 0
    assert engine.statistics().num_windows_encoded == encoded, "found again by content"


def test_fewer_frames_may_be_asked_for(server: Server) -> None:
    messages: Messages = [{"role": "user", "content": [film(), {"type": "text", "text": QUESTION}]}]
    body = {"model": "films", "messages": messages, "max_tokens": 2}
    tokens = []
    for options in ({}, {"videos_kwargs": {"size": {"longest_edge": 64 * 6}}}):
        answer = httpx.post(
            f"{server.api}/chat/completions", json=body | {"mm_processor_kwargs": options}, timeout=60
        )
        tokens.append(answer.json()["usage"]["prompt_tokens_details"]["video_tokens"])
    assert tokens[0] > tokens[1] > 0
    refused = httpx.post(
        f"{server.api}/chat/completions", json=body | {"mm_processor_kwargs": {"frames": 3}}, timeout=60
    )
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["param"] == "mm_processor_kwargs.frames", error
    assert "num_frames" in error["message"]
