"""A model of `transformers` that sees, over HTTP: as its own `generate` answers, each picture encoded
once."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.live_answers import chat
from support.media_checkpoints import Checkpoint
from support.media_families import BY_NAME
from support.media_family import make_media_folder
from support.server import Server, make_config, running_server
from support.vision_files import png

pytestmark = pytest.mark.slow

FAMILY = BY_NAME["llava"]
QUESTION = "What is the difference?"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_media_folder(tmp_path_factory.mktemp("models") / "llava", FAMILY)


@pytest.fixture(scope="module")
def llava(folder: Path) -> Iterator[Server]:
    with running_server(make_config(str(folder))) as server:
        yield server


def image(height: int, width: int, seed: int) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(png(height, width, seed)).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def ask(*parts: dict[str, Any] | str) -> list[dict[str, Any]]:
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return [{"role": "user", "content": content}]


def test_a_chat_about_pictures_is_what_generate_answers(llava: Server, folder: Path) -> None:
    engine = llava.service.models["llava"].engine
    checkpoint = Checkpoint(folder, FAMILY)
    case = checkpoint.case((40, 56, 1), (70, 36, 2), QUESTION)
    before = engine.statistics().num_windows_encoded
    parts = (image(40, 56, 1), image(70, 36, 2), QUESTION)
    whole = {"temperature": 0, "max_tokens": len(case.expected), "ignore_eos": True}
    answer = chat(llava, "llava", ask(*parts), **whole)
    # A character that the last token begins is not shown.
    assert answer["text"] == checkpoint.source.side.text.decode(case.expected).rstrip("\ufffd")
    usage = answer["usage"]
    assert usage["prompt_tokens"] == len(case.prompt)
    assert usage["prompt_tokens_details"]["image_tokens"] == 2 * 16
    assert engine.statistics().num_windows_encoded - before == 2
    again = chat(llava, "llava", ask(*parts, "Again?"), **whole)
    assert engine.statistics().num_windows_encoded - before == 2, "nothing is encoded a second time"
    assert again["usage"]["prompt_tokens"] > usage["prompt_tokens"]


@pytest.mark.parametrize(
    ("part", "status", "words"),
    [
        ({"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}}, 400, "takes image, text"),
        (image(4, 1000, 3), 400, "one side may be at most 200 times"),
    ],
)
def test_what_it_does_not_take_is_refused_by_name(
    llava: Server, part: dict[str, Any], status: int, words: str
) -> None:
    body = {"model": "llava", "messages": ask(part, QUESTION), "max_tokens": 2}
    refused = httpx.post(f"{llava.api}/chat/completions", json=body, timeout=60)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (status, "messages[0].content[0]"), error
    assert words in error["message"]


@pytest.mark.parametrize("key", ["max_pixels", "pixels"])
def test_processor_options_that_do_not_apply_are_refused_by_name(llava: Server, key: str) -> None:
    body = {
        "model": "llava",
        "messages": ask(image(40, 56, 1), QUESTION),
        "mm_processor_kwargs": {key: 5000},
    }
    refused = httpx.post(f"{llava.api}/chat/completions", json=body, timeout=60)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, f"mm_processor_kwargs.{key}")
    assert "it takes no mm_processor_kwargs" in error["message"]
