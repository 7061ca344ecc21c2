"""A model of `transformers` that sees and hears: one answer over chat, responses, messages and a session;
files known by name; what users type for a placeholder."""

from __future__ import annotations

import base64
import wave
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import httpx
import pytest
from support.live_answers import chat, live_talk, picture, words_of
from support.omni_families import OMNI_FAMILIES, make_omni_folder
from support.server import Server, make_config, running_server
from support.vision_files import png

pytestmark = pytest.mark.slow

MODEL = "omni"
QUESTION = "What is it?"
Part = dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = make_omni_folder(tmp_path_factory.mktemp("models") / MODEL, OMNI_FAMILIES[1])
    with running_server(make_config(str(folder))) as running:
        yield running


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def image(seed: int, **fields: object) -> Part:
    url = f"data:image/png;base64,{base64_of(png(40, 56, seed))}"
    return {"type": "image_url", "image_url": {"url": url}, **fields}


def sound(data: bytes) -> Part:
    return {"type": "input_audio", "input_audio": {"data": base64_of(data), "format": "wav"}}


def user(*parts: Part | str) -> list[Part]:
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return [{"role": "user", "content": content}]


def post(server: Server, path: str, **body: object) -> dict[str, Any]:
    answer = httpx.post(f"{server.api}/{path}", json={"model": MODEL, "temperature": 0} | body, timeout=60)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_pictures_are_answered_alike_over_every_protocol(server: Server) -> None:
    engine = server.service.models[MODEL].engine
    files = [png(40, 56, seed) for seed in (1, 2)]
    asked = chat(server, MODEL, user(image(1), image(2), QUESTION))
    encoded = engine.statistics().num_windows_encoded
    details = asked["usage"]["prompt_tokens_details"]
    assert details["image_tokens"] > 0
    assert {"audio_tokens", "video_tokens"}.isdisjoint(details)

    urls = [f"data:image/png;base64,{base64_of(data)}" for data in files]
    items = [{"type": "input_image", "image_url": url} for url in urls]
    given = [{"role": "user", "content": [*items, {"type": "input_text", "text": QUESTION}]}]
    response = post(server, "responses", input=given, max_output_tokens=12)
    assert (
        words_of({"output": [each for each in response["output"] if each["type"] == "message"]})
        == asked["text"]
    )

    sources = [{"type": "base64", "media_type": "image/png", "data": base64_of(data)} for data in files]
    blocks: list[Part] = [{"type": "image", "source": source} for source in sources]
    blocks.append({"type": "text", "text": QUESTION})
    message = post(server, "messages", messages=[{"role": "user", "content": blocks}], max_tokens=12)
    assert "".join(block["text"] for block in message["content"]) == asked["text"]

    with live_talk(server, MODEL) as talk:
        item = picture(files[0])
        item["content"] += picture(files[1], QUESTION)["content"]
        talk.add(item)
        done = talk.respond()
    assert words_of(done) == asked["text"]
    assert done["usage"]["input_tokens"] == asked["usage"]["prompt_tokens"]
    assert engine.statistics().num_windows_encoded == encoded, "the same pictures are encoded once"


def test_sound_beside_pictures_is_answered_alike_and_counted_by_kind(server: Server, lights: bytes) -> None:
    asked = chat(server, MODEL, user(sound(lights), image(3), QUESTION))
    details = asked["usage"]["prompt_tokens_details"]
    assert details["audio_tokens"] > details["image_tokens"] > 0
    url = image(3)["image_url"]["url"]
    content = [sound(lights), {"type": "input_image", "image_url": url}]
    given = [{"role": "user", "content": [*content, {"type": "input_text", "text": QUESTION}]}]
    response = post(server, "responses", input=given, max_output_tokens=12)
    assert (
        words_of({"output": [each for each in response["output"] if each["type"] == "message"]})
        == asked["text"]
    )


def test_a_picture_is_found_again_by_its_name(server: Server) -> None:
    engine = server.service.models[MODEL].engine
    first = chat(server, MODEL, user(image(5, uuid="photo"), QUESTION))
    encoded = engine.statistics().num_windows_encoded
    named = {"type": "image_url", "image_url": None, "uuid": "photo"}
    assert chat(server, MODEL, user(named, QUESTION))["text"] == first["text"]
    assert engine.statistics().num_windows_encoded == encoded
    body = {"model": MODEL, "messages": user({**named, "uuid": "unknown"}, QUESTION)}
    refused = httpx.post(f"{server.api}/chat/completions", json=body, timeout=60)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (
        400,
        "media_not_kept",
        "messages[0].content[0]",
    )


@pytest.mark.parametrize(
    "typed", ["<|image_pad|>", "<|vision_start|><|image_pad|><|vision_end|>", "<|AUDIO|>"]
)
def test_placeholders_that_users_type_are_text(server: Server, typed: str) -> None:
    without = chat(server, MODEL, user(f"{typed} {QUESTION}"))
    assert without["usage"]["prompt_tokens_details"].keys() == {"cached_tokens"}
    asked = chat(server, MODEL, user(image(1), f"{typed} {QUESTION}"))
    behind = chat(server, MODEL, user(f"{typed} {QUESTION}", image(1)))
    alone = chat(server, MODEL, user(image(1), QUESTION))
    for found in (asked, behind):
        details = found["usage"]["prompt_tokens_details"]
        assert details["image_tokens"] == alone["usage"]["prompt_tokens_details"]["image_tokens"]
        assert found["usage"]["prompt_tokens"] > alone["usage"]["prompt_tokens"]


def silence(num_samples: int, num_channels: int = 1, rate: int = 16_000) -> bytes:
    out = BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(num_channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(bytes(2 * num_samples * num_channels))
    return out.getvalue()


@pytest.mark.parametrize(
    ("part", "words"),
    [(sound(silence(0)), "holds no audio samples"), (sound(b""), "is empty")],
)
def test_sound_of_which_nothing_is_heard_is_refused_by_name(server: Server, part: Part, words: str) -> None:
    body = {"model": MODEL, "messages": user(part, QUESTION)}
    refused = httpx.post(f"{server.api}/chat/completions", json=body, timeout=60)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (400, "invalid_media"), error
    assert error["param"] == "messages[0].content[0]"
    assert words in error["message"]


def test_a_second_of_sound_is_as_long_at_any_rate_and_of_any_channels(server: Server) -> None:
    tokens = [
        chat(server, MODEL, user(sound(data), QUESTION))["usage"]["prompt_tokens_details"]["audio_tokens"]
        for data in (silence(16_000), silence(16_000, 8), silence(384_000, rate=384_000))
    ]
    assert len(set(tokens)) == 1
