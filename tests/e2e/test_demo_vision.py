"""What the demo shows to the embedded tiny-qwen3-vl, live, and the same files as requests: answered right."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from dataclasses import replace

import demo_vision
import httpx
import pytest
from drawing import draw
from make_demo_pictures import SHAPES, SIGN
from PIL import Image
from sensorium.client import Client
from sensorium.client.terminal import LiveText
from support import live_answers
from support.live_answers import as_messages, chat, live_talk, words_of
from support.server import Server, make_config, running_server
from support.vision_files import saved

pytestmark = pytest.mark.slow

QUESTIONS: dict[str, list[dict[str, str]]] = json.loads(
    (demo_vision.DATA / "pictures.json").read_text("utf-8")
)


@pytest.fixture(scope="module")
def seeing() -> Iterator[Server]:
    with running_server(make_config("tiny-qwen3-vl")) as server:
        yield server
        server.wait_quiet()


def test_every_answer_in_the_demo_is_right(seeing: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with Client(seeing.url) as client:
        answers = demo_vision.show(client, LiveText(), "tiny-qwen3-vl")
    assert [each.answer for each in answers] == [each.expected for each in answers]
    assert {each.file for each in answers} == set(QUESTIONS)
    film = next(each for each in answers if each.file.endswith(".mp4"))
    assert film.num_read > 0, "it watched before it was asked"
    assert not replace(film, answer="It rains.").is_right
    assert film.answer in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(QUESTIONS))
def test_the_same_files_are_answered_over_http(seeing: Server, name: str) -> None:
    data = base64.b64encode((demo_vision.DATA / name).read_bytes()).decode()
    kind, mime = ("image_url", "image/png") if name.endswith(".png") else ("video_url", "video/mp4")
    for each in QUESTIONS[name]:
        part = {"type": kind, kind: {"url": f"data:{mime};base64,{data}"}}
        body = {
            "messages": [{"role": "user", "content": [part, {"type": "text", "text": each["question"]}]}],
            "temperature": 0,
        }
        answer = httpx.post(f"{seeing.url}/v1/chat/completions", json=body, timeout=60).json()
        assert answer["choices"][0]["message"]["content"] == each["answer"]
        assert answer["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("name", "size", "num_frames", "fps", "settings"),
    [
        ("shapes.png", (192, 256), 1, 1, {}),
        ("shapes.png", (360, 640), 6, 2, {}),
        ("shapes.png", (640, 360), 2, 1, {"min_change": 0}),
        ("sign.png", (192, 256), 2, 2, {"min_change": 0}),
        ("sign.png", (300, 300), 1, 1, {}),
        ("sign.png", (640, 360), 3, 1, {}),
    ],
)
def test_a_still_shown_live_is_answered_as_a_chat_over_it(
    seeing: Server, name: str, size: tuple[int, int], num_frames: int, fps: int, settings: dict[str, int]
) -> None:
    scene = {"shapes.png": SHAPES, "sign.png": SIGN}[name]
    data = saved(Image.fromarray(draw(scene, *size, random.Random(name))))
    question, expected = QUESTIONS[name][0]["question"], QUESTIONS[name][0]["answer"]
    messages = as_messages([live_answers.picture(data, question)])
    assert chat(seeing, "tiny-qwen3-vl", messages, max_tokens=100)["text"] == expected
    with live_talk(seeing, "tiny-qwen3-vl", max_output_tokens=100, video=settings) as talk:
        for index in range(num_frames):
            event = {"type": "input_image_buffer.append", "timestamp_ms": 1000 * index // fps}
            talk.session.send(event | {"image": base64.b64encode(data).decode()})
        talk.add(live_answers.text(question))
        assert words_of(talk.respond()) == expected
