"""Files by address: pictures, clips and recordings of another server, in every API that takes them."""

from __future__ import annotations

import base64
import dataclasses
import io
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from sensorium.actors.config.server import EngineConfig, FetchConfig, FileConfig
from support.server import Server, make_config, running_server, wait_until
from support.vision_files import grey_steps, movie, png


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Tests print nothing."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, lights: bytes) -> Path:
    folder = tmp_path_factory.mktemp("files")
    (folder / "a.png").write_bytes(png(40, 56))
    (folder / "clip.mp4").write_bytes(movie(grey_steps(8)))
    (folder / "lights.wav").write_bytes(lights)
    (folder / "text").write_bytes(b"no picture")
    return folder


@pytest.fixture(scope="module")
def host(files: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(files))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def fetching(folders: dict[str, Path], files: Path) -> Iterator[Server]:
    engine = EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="32MiB", max_running=8)
    config = make_config(
        "tiny-whisper",
        str(folders["vision"]),
        engine=engine,
        files=FileConfig(decode_workers=1, max_upload_mib=0.05),
    )
    fetch = FetchConfig(
        allowed_media_networks=("127.0.0.1",), allowed_media_folder=(files,), max_fetch_mib=1.0
    )
    with running_server(dataclasses.replace(config, fetch=fetch)) as server:
        yield server


@pytest.fixture
def server(fetching: Server) -> Iterator[Server]:
    yield fetching
    fetching.wait_quiet()
    wait_until(lambda: fetching.service.budget.num_bytes == 0)


def post_body(server: Server, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{server.api}{path}", json={"model": "vision", **body}, timeout=60)


def chat(server: Server, *parts: dict[str, Any]) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": list(parts)}], "max_tokens": 2, "temperature": 0}
    return post_body(server, "/chat/completions", body)


def part(kind: str, url: str) -> dict[str, Any]:
    return {"type": kind, kind: {"url": url}}


def test_a_fetched_picture_is_the_picture(server: Server, host: str, files: Path) -> None:
    inline = "data:image/png;base64," + base64.b64encode((files / "a.png").read_bytes()).decode()
    found = [
        chat(server, part("image_url", url)).json()
        for url in (inline, f"{host}/a.png", f"file://{files}/a.png")
    ]
    texts = {each["choices"][0]["message"]["content"] for each in found}
    assert len(texts) == 1
    assert len({each["usage"]["prompt_tokens"] for each in found}) == 1


def test_a_clip_is_fetched_and_one_address_once(server: Server, host: str) -> None:
    before = server.service.addresses.fetcher
    assert before is not None
    num = before.statistics().num_fetched
    clip = part("video_url", f"{host}/clip.mp4")
    assert chat(server, clip, clip).status_code == 200
    assert before.statistics().num_fetched == num + 1
    metrics = httpx.get(f"{server.url}/metrics").text
    assert f"sensorium_fetched_files_total {num + 1}.0" in metrics


def test_what_cannot_be_had_is_422_with_its_field(server: Server, host: str) -> None:
    for url, code in (
        (f"{host}/none", "fetch_refused"),
        ("http://10.0.0.1/a.png", "url_refused"),
        ("http://127.0.0.2/a.png", "url_refused"),
        ("file:///etc/passwd", "url_refused"),
    ):
        found = chat(server, {"type": "text", "text": "?"}, part("image_url", url))
        error = found.json()["error"]
        assert (found.status_code, error["code"]) == (422, code)
        assert error["param"] == "messages[0].content[1].image_url.url"


def test_addresses_that_parsers_read_differently_are_400(server: Server) -> None:
    for url in ("http://a\\@10.0.0.1/", "http:/a", "https://a b/", "http://a/\n", "file:/etc/passwd"):
        error = chat(server, part("image_url", url))
        assert error.status_code == 400, url
        assert error.json()["error"]["param"] == "messages[0].content[0].image_url.url"


def test_what_is_there_must_be_what_is_said(server: Server, host: str) -> None:
    found = chat(server, part("image_url", f"{host}/text"))
    assert (found.status_code, found.json()["error"]["param"]) == (400, "messages[0].content[0]")


def test_responses_keep_what_was_fetched(server: Server, host: str, files: Path) -> None:
    (files / "soon-gone.png").write_bytes(png(40, 56, seed=3))
    content = [{"type": "input_image", "image_url": f"{host}/soon-gone.png"}]
    first = post_body(
        server, "/responses", {"input": [{"role": "user", "content": content}], "max_output_tokens": 2}
    )
    assert first.status_code == 200, first.text
    (files / "soon-gone.png").unlink()
    body = {"input": "And now?", "previous_response_id": first.json()["id"], "max_output_tokens": 2}
    assert post_body(server, "/responses", body).status_code == 200


def test_messages_take_addresses(server: Server, host: str) -> None:
    def send(url: str) -> httpx.Response:
        content = [{"type": "image", "source": {"type": "url", "url": url}}]
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 2}
        return post_body(server, "/messages", body)

    assert send(f"{host}/a.png").status_code == 200
    assert send(f"{host}/none").status_code == 422


def transcribe(server: Server, *, files: Any = None, **fields: str) -> httpx.Response:  # noqa: ANN401
    files = files or {"x": (None, "")} | {name: (None, value) for name, value in fields.items()}
    files.pop("x", None)
    return httpx.post(f"{server.api}/audio/transcriptions", files=files, timeout=60)


def test_recordings_are_fetched_beyond_the_size_of_an_upload(
    server: Server, host: str, lights: bytes
) -> None:
    assert len(lights) > server.service.config.files.max_upload_bytes
    found = transcribe(server, url=f"{host}/lights.wav")
    assert found.status_code == 200, found.text
    assert "kitchen" in found.json()["text"].lower()


def test_a_recordings_address_is_named_in_what_is_wrong(server: Server, host: str) -> None:
    for url, status in (
        (f"{host}/none", 422),
        (f"{host}/text", 400),
        ("http://10.0.0.1/", 422),
        ("ftp://a/b", 400),
    ):
        found = transcribe(server, url=url)
        assert (found.status_code, found.json()["error"]["param"]) == (status, "url")
    both = {"url": (None, f"{host}/lights.wav"), "file": ("a.wav", io.BytesIO(b"RIFF"))}
    found = transcribe(server, files=both)
    assert (found.status_code, found.json()["error"]["param"]) == (400, "url")


def test_a_file_that_was_sent_is_not_opened_again_and_may_be_left_out(server: Server, files: Path) -> None:
    def jobs() -> int:
        return server.service.media.statistics().num_jobs

    data = base64.b64encode(png(60, 60, seed=9)).decode()
    image = part("image_url", f"data:image/png;base64,{data}") | {"uuid": "mine"}
    first = chat(server, image).json()
    before = jobs()
    for again in (image, {"type": "image_url", "image_url": None, "uuid": "mine"}):
        found = chat(server, again).json()
        assert found["choices"][0]["message"] == first["choices"][0]["message"]
    assert jobs() == before
    missing = chat(server, {"type": "image_url", "uuid": "another"})
    error = missing.json()["error"]
    assert (missing.status_code, error["code"]) == (400, "media_not_kept")
    assert error["param"] == "messages[0].content[0]"
    assert "sensorium_media_cache_hits_total" in httpx.get(f"{server.url}/metrics").text
