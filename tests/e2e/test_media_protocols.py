"""A model of `transformers` that sees and hears: one answer over chat, responses, messages and a session;
files known by name; what users type for a placeholder."""

from __future__ import annotations

import base64
import threading
import wave
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from io import BytesIO
from typing import Any

import httpx
import pytest
import soundfile
from PIL import Image
from sensorium.actors.config.server import FetchConfig
from support.audio_files import encoded
from support.live_answers import chat, live_talk, picture, words_of
from support.omni_families import OMNI_FAMILIES, make_omni_folder
from support.server import Server, make_config, running_server
from support.vision_files import movie, png, saved
from support.vision_files import picture as picture_of

pytestmark = pytest.mark.slow

MODEL = "omni"
QUESTION = "What is it?"
Part = dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = make_omni_folder(tmp_path_factory.mktemp("models") / MODEL, OMNI_FAMILIES[1])
    config = replace(make_config(str(folder)), fetch=FetchConfig(allowed_media_networks=("127.0.0.1",)))
    with running_server(config) as running:
        yield running


class _OnePicture(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        data = png(40, 56, 1)
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Tests print nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where `image(1)` is."""
    with HTTPServer(("127.0.0.1", 0), _OnePicture) as host:
        thread = threading.Thread(target=host.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{host.server_address[1]}/a.png"
        finally:
            host.shutdown()
            thread.join()


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


def refused(server: Server, path: str, **body: object) -> tuple[int, Part]:
    answer = httpx.post(f"{server.api}/{path}", json={"model": MODEL} | body, timeout=60)
    assert answer.status_code >= 400, answer.text
    error: Part = answer.json()["error"]
    return answer.status_code, error


def response_text(server: Server, *content: Part) -> str:
    given = [{"role": "user", "content": [*content, {"type": "input_text", "text": QUESTION}]}]
    response = post(server, "responses", input=given, max_output_tokens=12)
    return words_of({"output": [each for each in response["output"] if each["type"] == "message"]})


def message_text(server: Server, *blocks: Part) -> str:
    content = [*blocks, {"type": "text", "text": QUESTION}]
    message = post(server, "messages", messages=[{"role": "user", "content": content}], max_tokens=12)
    return "".join(block["text"] for block in message["content"])


def audio(data: bytes, kind: str) -> Part:
    return {"type": "input_audio", "input_audio": {"data": base64_of(data), "format": kind}}


def test_compressed_sound_is_answered_alike_over_protocols_and_lossless_as_the_wav(
    server: Server, lights: bytes
) -> None:
    samples, rate = soundfile.read(BytesIO(lights), dtype="int16", frames=8000)
    files = {}
    for kind in ("WAV", "FLAC"):
        out = BytesIO()
        soundfile.write(out, samples, rate, format=kind, subtype="PCM_16")
        files[kind.lower()] = out.getvalue()
    floats = samples.astype("float32") / 2**15
    files["ogg"] = encoded(floats, container="ogg", codec="libopus")
    files["mp3"] = encoded(floats, container="mp3", codec="libmp3lame")
    answers = {kind: chat(server, MODEL, user(audio(data, kind), QUESTION)) for kind, data in files.items()}
    tokens = {kind: each["usage"]["prompt_tokens_details"]["audio_tokens"] for kind, each in answers.items()}
    assert answers["flac"]["text"] == answers["wav"]["text"]
    assert tokens["flac"] == tokens["wav"] > 0
    for kind in ("ogg", "mp3"):  # an encoder's delay may be a token more
        assert 0 <= tokens[kind] - tokens["wav"] <= 2
        assert response_text(server, audio(files[kind], kind)) == answers[kind]["text"]


def test_a_picture_by_address_is_the_picture_itself(server: Server, address: str) -> None:
    asked = chat(server, MODEL, user(image(1), QUESTION))["text"]
    part = {"type": "image_url", "image_url": {"url": address}}
    assert chat(server, MODEL, user(part, QUESTION))["text"] == asked
    assert response_text(server, {"type": "input_image", "image_url": address}) == asked
    for url in (address, image(1)["image_url"]["url"]):
        block = {"type": "image", "source": {"type": "url", "url": url}}
        assert message_text(server, block) == asked


def film(*seeds: int) -> Part:
    data = movie([picture_of(48, 64, seed) for seed in seeds], fps=2)
    return {"type": "video_url", "video_url": {"url": f"data:video/mp4;base64,{base64_of(data)}"}}


def test_a_film_is_answered_alike_over_responses(server: Server) -> None:
    clip, other = film(1, 2, 3, 4), film(5, 6, 7, 8)
    asked = chat(server, MODEL, user(clip, QUESTION))
    assert asked["usage"]["prompt_tokens_details"]["video_tokens"] > 0
    assert response_text(server, clip) == asked["text"]
    assert len({asked["text"], response_text(server, other), chat(server, MODEL, user(QUESTION))["text"]}) > 1


def test_video_and_sound_have_no_place_in_messages(server: Server, lights: bytes) -> None:
    for block in (
        film(1, 2),
        {"type": "video", "source": {}},
        sound(lights),
        {"type": "audio", "source": {}},
    ):
        status, error = refused(server, "messages", messages=user(block), max_tokens=2)
        assert status == 400
        assert "`messages[0].content[0]" in error["message"], error


def test_an_assistants_picture_is_refused_and_a_tools_is_answered_as_the_users(server: Server) -> None:
    url = image(1)["image_url"]["url"]
    status, error = refused(
        server, "chat/completions", messages=[*user("?"), {"role": "assistant", "content": [image(1)]}]
    )
    assert (status, error["param"]) == (400, "messages[1].content[0]"), error
    shown = {"type": "input_image", "image_url": url}
    status, error = refused(server, "responses", input=[{"role": "assistant", "content": [shown]}])
    assert (status, error["param"]) == (400, "input[0].content[0]"), error
    source = {"type": "base64", "media_type": "image/png", "data": url.split(",")[1]}
    block = {"type": "image", "source": source}
    status, error = refused(
        server, "messages", messages=[*user("?"), {"role": "assistant", "content": [block]}], max_tokens=2
    )
    assert status == 400
    assert "`messages[1].content[0]" in error["message"], error
    call = {"id": "c1", "type": "function", "function": {"name": "see", "arguments": "{}"}}
    answer = chat(
        server,
        MODEL,
        [
            *user("Look."),
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": [image(1)]},
        ],
    )
    alone = chat(server, MODEL, user(image(1), QUESTION))
    assert (
        answer["usage"]["prompt_tokens_details"]["image_tokens"]
        == alone["usage"]["prompt_tokens_details"]["image_tokens"]
    )


def test_a_turned_picture_is_answered_as_the_upright_one(server: Server) -> None:
    def part(turned: Image.Image, **options: Any) -> Part:  # noqa: ANN401 (Pillow's)
        url = f"data:image/png;base64,{base64_of(saved(turned, **options))}"
        return {"type": "image_url", "image_url": {"url": url}}

    upright = Image.fromarray(picture_of(40, 72, 1))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise
    engine = server.service.models[MODEL].engine
    asked = chat(server, MODEL, user(part(upright), QUESTION))
    encoded_before = engine.statistics().num_windows_encoded
    turned = chat(
        server, MODEL, user(part(upright.transpose(Image.Transpose.ROTATE_90), exif=exif), QUESTION)
    )
    assert (turned["text"], turned["usage"]["prompt_tokens"]) == (
        asked["text"],
        asked["usage"]["prompt_tokens"],
    )
    assert engine.statistics().num_windows_encoded == encoded_before, "equal pixels"


@pytest.mark.parametrize(
    ("kwargs", "key", "words"),
    [
        ({"max_pixels": 10**9}, "max_pixels", "allowed: up to"),
        ({"num_frames": 10**6}, "num_frames", "allowed: up to"),
        ({"pixels": 3}, "pixels", "allowed: size, do_resize, fps"),
    ],
)
def test_what_a_request_may_not_ask_for_is_named(server: Server, kwargs: Part, key: str, words: str) -> None:
    body = {"messages": user(image(1), QUESTION), "mm_processor_kwargs": kwargs}
    status, error = refused(server, "chat/completions", **body)
    assert (status, error["param"]) == (400, f"mm_processor_kwargs.{key}"), error
    assert words in error["message"]


def test_limits_of_the_server_are_named(server: Server) -> None:
    large = saved(Image.new("1", (9000, 9000)))
    url = f"data:image/png;base64,{base64_of(large)}"
    part = {"type": "image_url", "image_url": {"url": url}}
    status, error = refused(server, "chat/completions", messages=user("?", part))
    assert (status, error["param"]) == (413, "messages[0].content[1]"), error
    frames = {"type": "video_url", "video_url": {"url": "data:video/jpeg;base64," + "," * 5000}}
    status, error = refused(server, "chat/completions", messages=user(frames))
    assert (status, error["param"]) == (413, "messages[0].content[0].video_url.url"), error


def test_far_too_many_pictures_are_refused_by_count_before_any_is_opened(server: Server) -> None:
    data = base64_of(png(8, 8, 1))
    url = f"data:image/png;base64,{data}"
    source = {"type": "base64", "media_type": "image/png", "data": data}
    jobs = server.service.media.statistics().num_jobs
    for path, part, body in (
        ("chat/completions", {"type": "image_url", "image_url": {"url": url}}, {}),
        ("responses", {"type": "input_image", "image_url": url}, {}),
        ("messages", {"type": "image", "source": source}, {"max_tokens": 2}),
    ):
        field = "input" if path == "responses" else "messages"
        status, error = refused(server, path, **{field: [{"role": "user", "content": [part] * 2000}]}, **body)
        assert status == 413, error
        assert f"`{field}[0].content[64]`: the request has 2,000 media parts" in error["message"]
        assert error.get("param", f"{field}[0].content[64]") == f"{field}[0].content[64]"
    assert server.service.media.statistics().num_jobs == jobs, "none was opened"
