"""Embeddings that a client made with `transformers`: a server answers as if it had been sent the files."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import make_embeddings
import pytest
from sensorium.actors.config.server import FileConfig
from sensorium.engine.models.embedded import CHECKPOINTS
from support.server import Server, make_config, running_server

pytestmark = pytest.mark.slow

DATA = Path(make_embeddings.__file__).parent / "data"
PLACE = "messages[0].content[0]"


@pytest.fixture(scope="module")
def taking() -> Iterator[Server]:
    """A server of both embedded models that takes embeddings."""
    files = FileConfig(decode_workers=1, enable_mm_embeds=True)
    with running_server(make_config("tiny-qwen3-vl", "tiny-qwen3-asr", files=files)) as server:
        yield server
        server.wait_quiet()


@pytest.fixture(scope="module")
def picture() -> dict[str, Any]:
    return make_embeddings.picture_part(CHECKPOINTS / "tiny-qwen3-vl", DATA / "shapes.png")


def complete(
    server: Server, model: str, *parts: dict[str, Any], salt: str = "", path: str = "chat/completions"
) -> httpx.Response:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": list(parts)}],
        "temperature": 0,
        "logprobs": True,
        "return_token_ids": True,
        "cache_salt": salt or None,
    }
    if path == "responses":
        content = [{**each, "type": "input_text"} if "text" in each else each for each in parts]
        body = {"model": model, "input": [{"role": "user", "content": content}], "temperature": 0}
    return httpx.post(f"{server.api}/{path}", json=body, timeout=120)


def answer(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()["choices"][0]
    return found


def file_part(name: str) -> dict[str, Any]:
    text = base64.b64encode((DATA / name).read_bytes()).decode()
    if name.endswith(".wav"):
        return {"type": "input_audio", "input_audio": {"data": text, "format": "wav"}}
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{text}"}}


QUESTION = {"type": "text", "text": "What is where?"}


def test_a_picture_is_answered_token_for_token(taking: Server, picture: dict[str, Any]) -> None:
    given = answer(complete(taking, "tiny-qwen3-vl", picture, QUESTION, salt="rows"))
    windows = taking.service.models["tiny-qwen3-vl"].engine.statistics().num_windows_encoded
    expected = answer(complete(taking, "tiny-qwen3-vl", file_part("shapes.png"), QUESTION, salt="file"))
    assert given["token_ids"] == expected["token_ids"]
    assert "a large red circle" in given["message"]["content"]
    logprobs = [[each["logprob"] for each in found["logprobs"]["content"]] for found in (given, expected)]
    assert logprobs[0] == pytest.approx(logprobs[1], abs=1e-3)
    assert taking.service.models["tiny-qwen3-vl"].engine.statistics().num_windows_encoded == windows + 1
    other = answer(complete(taking, "tiny-qwen3-vl", picture, {"type": "text", "text": "Where is the star?"}))
    assert other["message"]["content"] == "The star is in the center."


def test_sound_is_heard_token_for_token(taking: Server) -> None:
    part = make_embeddings.sound_part(CHECKPOINTS / "tiny-qwen3-asr", DATA / "kitchen_lights.wav")
    given = answer(complete(taking, "tiny-qwen3-asr", part))
    expected = answer(complete(taking, "tiny-qwen3-asr", file_part("kitchen_lights.wav")))
    assert given["token_ids"] == expected["token_ids"]
    assert "kitchen" in given["message"]["content"]


def test_what_was_sent_is_known_by_its_name_and_shared_by_its_content(
    taking: Server, picture: dict[str, Any]
) -> None:
    first = complete(taking, "tiny-qwen3-vl", {**picture, "uuid": "shapes"}, QUESTION, salt="name").json()
    known = {"type": "image_embeds", "image_embeds": None, "uuid": "shapes"}
    again = complete(taking, "tiny-qwen3-vl", known, QUESTION, salt="name").json()
    assert again["choices"][0]["token_ids"] == first["choices"][0]["token_ids"]
    details = again["usage"]["prompt_tokens_details"]
    assert details["cached_tokens"] >= first["usage"]["prompt_tokens"] // 16 * 16
    unknown = complete(taking, "tiny-qwen3-vl", known, QUESTION, salt="another")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (400, "media_not_kept")


def test_responses_take_them_too(taking: Server, picture: dict[str, Any]) -> None:
    found = complete(taking, "tiny-qwen3-vl", picture, QUESTION, path="responses").json()
    assert "a large red circle" in found["output"][0]["content"][0]["text"]
    body = {"model": "tiny-qwen3-vl", "previous_response_id": found["id"], "input": "Where is the star?"}
    next_one = httpx.post(f"{taking.api}/responses", json=body, timeout=120)
    assert next_one.status_code == 200, next_one.text


def test_what_is_wrong_is_named_and_hurts_nobody(taking: Server, picture: dict[str, Any]) -> None:
    own = picture["image_embeds"]
    infinite = base64.b64encode(b"\0\0\x80\x7f" * own["shape"][0] * own["shape"][1]).decode()
    for changed, field in (
        ({"shape": [own["shape"][0] * 2, own["shape"][1] // 2]}, "shape"),
        ({"dtype": "bfloat16"}, "data"),
        ({"data": infinite}, "data"),
        ({"image_grid_thw": [1, 2, 24]}, ""),
        ({"image_grid_thw": [1, 1, 48]}, "image_grid_thw"),
        ({"image_grid_thw": [1, 10, 10]}, "image_grid_thw"),
    ):
        part = {"type": "image_embeds", "image_embeds": {**own, **changed}}
        refused = complete(taking, "tiny-qwen3-vl", part, QUESTION)
        if not field:  # another picture's shape, and a good one
            assert refused.status_code == 200, refused.text
            continue
        assert (refused.status_code, refused.json()["error"]["param"]) == (
            400,
            f"{PLACE}.image_embeds.{field}",
        ), refused.text
    wrong = complete(taking, "tiny-qwen3-asr", picture)
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "unsupported_media")
    assert "circle" in answer(complete(taking, "tiny-qwen3-vl", picture, QUESTION))["message"]["content"]


def test_they_are_off_by_default(text_server: Server, picture: dict[str, Any]) -> None:
    refused = complete(text_server, "vision", picture, QUESTION)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == f"{PLACE}.image_embeds"
    assert "--enable-mm-embeds" in refused.json()["error"]["message"]
