"""Chats full of media over HTTP: what was there before is neither opened, nor encoded, nor read again."""

from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest
from sensorium.actors.config.server import FileConfig
from support.audio_files import plain_wav, tone
from support.live_answers import as_messages, chat, picture, text
from support.server import Server, make_config, running_server
from support.vision_files import movie, png
from support.vision_files import picture as pixels

pytestmark = pytest.mark.slow

BLOCK = 16
"""Tokens: what is shared is whole blocks."""
Part = dict[str, Any]


def clip(first: int, num_frames: int) -> Part:
    data = movie([pixels(48, 64, first + index) for index in range(num_frames)], fps=2)
    return {
        "type": "video_url",
        "video_url": {"url": f"data:video/mp4;base64,{base64.b64encode(data).decode()}"},
    }


def user(*parts: Part | str) -> list[Part]:
    content = [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]
    return [{"role": "user", "content": content}]


def test_ten_turns_over_ten_pictures_compute_only_what_is_new(text_server: Server) -> None:
    engine, media = text_server.service.models["vision"].engine, text_server.service.media
    items, num_read, num_images = [], 0, 0
    for turn in range(10):
        jobs, before = media.statistics().num_jobs, engine.statistics()
        items.append(picture(png(40, 48, 900 + turn), f"What is picture {turn}?"))
        done = chat(text_server, "vision", as_messages(items), max_tokens=4)
        items.append(text(done["text"], "assistant"))
        usage, after = done["usage"], engine.statistics()
        details = usage["prompt_tokens_details"]
        assert details["image_tokens"] > num_images
        num_images = details["image_tokens"]
        # All that the turn before read, to the last whole block.
        assert details["cached_tokens"] >= num_read // BLOCK * BLOCK
        num_read = usage["prompt_tokens"]
        num_new = num_read - details["cached_tokens"]
        assert after.num_prefill_tokens - before.num_prefill_tokens == num_new
        assert after.num_windows_encoded - before.num_windows_encoded == 1
        # Measured by its header, and opened; the others were.
        assert media.statistics().num_jobs - jobs == 2


def test_several_clips_in_one_prompt(text_server: Server) -> None:
    engine = text_server.service.models["vision"].engine
    one, other = clip(950, 4), clip(960, 6)

    def answer_about(*parts: Part | str) -> dict[str, Any]:
        return chat(text_server, "vision", user(*parts))

    nothing = answer_about("?")["usage"]["prompt_tokens"]
    before = engine.statistics().num_windows_encoded
    alone = [answer_about(part, "?") for part in (one, other)]
    assert engine.statistics().num_windows_encoded - before == 2 + 3
    both = answer_about(one, "then", other, "?")
    assert engine.statistics().num_windows_encoded - before == 2 + 3, "they are known"
    extra = answer_about("then?")["usage"]["prompt_tokens"] - nothing
    tokens = [found["usage"]["prompt_tokens"] - nothing for found in alone]
    assert both["usage"]["prompt_tokens"] == nothing + sum(tokens) + extra
    shown = [found["usage"]["prompt_tokens_details"]["video_tokens"] for found in (*alone, both)]
    assert shown[2] == shown[0] + shown[1] > shown[0] > 0
    twice = answer_about(one, "then", one, "?")
    assert twice["usage"]["prompt_tokens_details"]["video_tokens"] == 2 * shown[0]
    turned = answer_about(other, "then", one, "?")
    assert len({found["text"] for found in (both, twice, turned)}) >= 2, "their order matters"
    # In a later message, and beside a picture.
    later = chat(
        text_server,
        "vision",
        [*user(one, "?"), {"role": "assistant", "content": "A"}, *user(other, IMAGE, "?")],
    )
    details = later["usage"]["prompt_tokens_details"]
    assert details["video_tokens"] == shown[2]
    assert details["image_tokens"] > 0
    assert engine.statistics().num_windows_encoded - before == 2 + 3 + 1


IMAGE: Part = {
    "type": "image_url",
    "image_url": {"url": f"data:image/png;base64,{base64.b64encode(png(40, 48, 999)).decode()}"},
}
SOUND: Part = {
    "type": "input_audio",
    "input_audio": {"data": base64.b64encode(plain_wav(tone(0.5))).decode(), "format": "wav"},
}


@pytest.mark.parametrize(
    ("model", "parts", "index", "words"),
    [
        ("vision", (IMAGE, SOUND, "?"), 1, "is audio; the model vision takes image, text, video"),
        ("vision", (SOUND, IMAGE, "?"), 0, "is audio; the model vision takes image, text, video"),
        ("audio", (SOUND, "?", IMAGE), 2, "is an image; the model audio takes audio, text"),
        ("audio", (SOUND, clip(970, 2)), 1, "is a video; the model audio takes audio, text"),
    ],
)
def test_sounds_beside_pictures_name_the_part_that_the_model_does_not_take(
    text_server: Server, model: str, parts: tuple[Part | str, ...], index: int, words: str
) -> None:
    """No model that is served takes both."""
    body = {"model": model, "messages": user("Look.") + user(*parts), "max_tokens": 2}
    refused = httpx.post(f"{text_server.api}/chat/completions", json=body, timeout=60)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, f"messages[1].content[{index}]"), error
    assert error["code"] == "unsupported_media"
    assert words in error["message"]


def test_one_chat_has_room_for_its_pictures_however_few_requests_may_be_in_hand() -> None:
    files = FileConfig(decode_workers=1, max_requests=1)
    with running_server(make_config("tiny-qwen3-vl", files=files)) as server:
        items = [picture(png(40, 48, 700 + index), "?") for index in range(12)]
        chat(server, "tiny-qwen3-vl", as_messages(items), max_tokens=1)


def test_a_tools_result_may_hold_a_picture(text_server: Server) -> None:
    """What a tool gave is in the prompt as it would be from the user: a screenshot, most often."""
    call = {"id": "c1", "type": "function", "function": {"name": "screenshot", "arguments": "{}"}}
    url = f"data:image/png;base64,{base64.b64encode(png(64, 96)).decode()}"
    answers = [
        chat(
            text_server,
            "vision",
            [
                {"role": "user", "content": "Look."},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c1", "content": content},
            ],
        )
        for content in ("done", [{"type": "image_url", "image_url": {"url": url}}])
    ]
    num_tokens = [answer["usage"]["prompt_tokens"] for answer in answers]
    assert num_tokens[1] > num_tokens[0]


@pytest.mark.parametrize("api", ["responses", "messages"])
def test_a_tools_result_may_hold_a_picture_in_the_other_shapes(text_server: Server, api: str) -> None:
    data = base64.b64encode(png(64, 96)).decode()

    def num_tokens(*files: Part) -> int:
        done = {"type": "input_text" if api == "responses" else "text", "text": "done"}
        bodies: dict[str, Part] = {
            "responses": {
                "max_output_tokens": 1,
                "input": [
                    {"role": "user", "content": "Look."},
                    {"type": "function_call", "call_id": "c1", "name": "screenshot", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "c1", "output": [done, *files]},
                ],
            },
            "messages": {
                "max_tokens": 1,
                "messages": [
                    {"role": "user", "content": "Look."},
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "c1", "name": "screenshot", "input": {}}],
                    },
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "c1", "content": [done, *files]}],
                    },
                ],
            },
        }
        url, body = f"{text_server.url}/v1/{api}", {"model": "vision"} | bodies[api]
        answer = httpx.post(url, json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        usage = answer.json()["usage"]
        return int(usage["input_tokens"]) + int(usage.get("cache_read_input_tokens", 0))

    source = {"type": "base64", "media_type": "image/png", "data": data}
    images: dict[str, Part] = {
        "responses": {"type": "input_image", "image_url": f"data:image/png;base64,{data}"},
        "messages": {"type": "image", "source": source},
    }
    assert num_tokens(images[api]) > num_tokens() + 3


@pytest.mark.parametrize(
    ("api", "part", "param"),
    [
        ("responses", {"type": "input_image", "file_id": "f"}, "input[0].output[0].file_id"),
        ("responses", {"type": "input_file", "file_data": "x"}, "input[0].output[0].type"),
        (
            "messages",
            {"type": "document", "source": {"type": "text", "data": "x", "media_type": "text/plain"}},
            "messages[0].content[0].content[0].type",
        ),
        (
            "messages",
            {"type": "image", "source": {"type": "file", "file_id": "f"}},
            "messages[0].content[0].content[0].source.type",
        ),
    ],
)
def test_what_else_a_tools_result_holds_is_refused_by_name(
    text_server: Server, api: str, part: Part, param: str
) -> None:
    result = {"type": "tool_result", "tool_use_id": "c1", "content": [part]}
    output = {"type": "function_call_output", "call_id": "c1", "output": [part]}
    bodies: dict[str, Part] = {
        "responses": {"input": [output]},
        "messages": {"max_tokens": 1, "messages": [{"role": "user", "content": [result]}]},
    }
    body: Part = {"model": "vision"} | bodies[api]
    answer = httpx.post(f"{text_server.url}/v1/{api}", json=body, timeout=60)
    assert answer.status_code == 400
    assert param in answer.text
