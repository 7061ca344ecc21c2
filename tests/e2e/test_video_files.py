"""Video files against a real server: what is damaged is told, and their sound is audio."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import numpy as np
import pytest
from support.audio_files import encoded, tone, video
from support.raw_socket import pcm
from support.server import Server
from support.vision_files import grey_steps, movie, without

pytestmark = pytest.mark.slow


def post_parts(server: Server, model: str, *parts: dict[str, Any]) -> httpx.Response:
    question = [] if model == "audio" else [{"type": "text", "text": "What happens?"}]
    messages = [{"role": "user", "content": [*parts, *question]}]
    body = {"model": model, "messages": messages, "max_tokens": 4}
    return httpx.post(f"{server.api}/chat/completions", json=body, timeout=60)


def part(kind: str, data: bytes) -> dict[str, Any]:
    return {"type": kind, kind: {"url": f"data:video/mp4;base64,{base64.b64encode(data).decode()}"}}


def test_usage_tells_which_frames_were_replaced_by_which(text_server: Server) -> None:
    film = movie(grey_steps(60), codec="libx264", options={"g": "12", "bf": "2"})
    picture = {"type": "text", "text": "Look at this:"}
    for _ in range(2):  # opened, and kept
        answer = post_parts(text_server, "vision", picture, part("video_url", without(film, 24, 39))).json()
        replaced = answer["usage"]["prompt_tokens_details"]["replaced_frames"]
        assert {each["param"] for each in replaced} == {"messages[0].content[1]"}
        assert all(2.3 < each["wanted_s"] < 4.9 for each in replaced)
        assert all(each["shown_s"] is None or each["shown_s"] > each["wanted_s"] for each in replaced)
    whole = post_parts(text_server, "vision", part("video_url", film)).json()
    assert "replaced_frames" not in whole["usage"]["prompt_tokens_details"]


def test_a_videos_sound_is_transcribed(server: Server, lights: bytes) -> None:
    samples = (np.frombuffer(pcm(lights), "<i2") / 32_768).astype(np.float32)
    texts = [
        httpx.post(f"{server.api}/audio/transcriptions", files={"file": ("a", data)}, timeout=60).json()[
            "text"
        ]
        for data in (video(samples, rate=16_000), encoded(samples, container="mp4", codec="aac"))
    ]
    assert texts[0] == texts[1] != ""
    silent = httpx.post(f"{server.api}/audio/transcriptions", files={"file": ("a", video(None))}, timeout=60)
    assert (silent.status_code, silent.json()["error"]["param"]) == (400, "file")
    assert "no audio track" in silent.json()["error"]["message"]


def test_a_model_that_listens_hears_a_video_that_is_sent_as_audio(text_server: Server) -> None:
    sound = tone(1.0, rate=16_000)
    answers = [
        post_parts(text_server, "audio", part("audio_url", data)).json()
        for data in (video(sound, rate=16_000), encoded(sound, container="mp4", codec="aac"))
    ]
    tokens = [answer["usage"]["prompt_tokens_details"]["audio_tokens"] for answer in answers]
    assert tokens[0] == tokens[1] > 5
    refused = post_parts(text_server, "audio", part("video_url", video(sound)))
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (400, "unsupported_media")
    assert error["param"] == "messages[0].content[0]"
