"""`--response-store`: responses outlive the server, and what was being made has failed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from sensorium.actors.config.server import EngineConfig, ListenConfig, ResponseConfig, ServerConfig
from sensorium.actors.errors import ConfigError
from sensorium.actors.http.responses.shape import ResponseShape
from sensorium.protocols.errors import OverloadedError
from support.event_frames import event_frames
from support.server import Server, make_config, running_server, wait_until

pytestmark = pytest.mark.slow

KEY, OTHER_KEY = "one", "another"


def config(folder: Path, file: Path) -> ServerConfig:
    return make_config(
        str(folder),
        engine=EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="64MiB", max_running=8),
        listen=ListenConfig(port=0, drain_s=0.2, api_key=(KEY, OTHER_KEY)),
        responses=ResponseConfig(response_store=file),
    )


def call(server: Server, method: str, path: str = "", key: str = KEY, **body: object) -> httpx.Response:
    headers, url = {"Authorization": f"Bearer {key}"}, f"{server.api}/responses{path}"
    return httpx.request(method, url, json=body or None, headers=headers, timeout=60)


def create(server: Server, **body: Any) -> dict[str, Any]:  # noqa: ANN401 (JSON)
    answer = call(server, "POST", temperature=0, **({"max_output_tokens": 8} | body))
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def text_of(response: dict[str, Any]) -> str:
    found: str = response["output"][0]["content"][0]["text"]
    return found


def test_responses_outlive_the_server(folders: dict[str, Path], tmp_path: Path) -> None:
    file = tmp_path / "responses.db"
    with running_server(config(folders["text"], file)) as server:
        seen = create(server, input="Hello")
        more: dict[str, Any] = {"input": "And now?", "previous_response_id": seen["id"]}
        expected = create(server, **more)
        headers = {"Authorization": f"Bearer {KEY}"}
        body = {"input": "Hi", "stream": True, "max_output_tokens": 4}
        streamed = httpx.post(f"{server.api}/responses", json=body, headers=headers, timeout=60).text
        streamed_id = streamed.split('"id":"')[1].split('"')[0]
        forgotten = create(server, input="b")
        assert call(server, "DELETE", f"/{forgotten['id']}").json()["deleted"] is True
        other = config(folders["text"], file)
        with pytest.raises(ConfigError, match="another server uses it"), running_server(other):
            pass
        endless = create(server, input="a", background=True, max_output_tokens=1500, ignore_eos=True)
        wait_until(lambda: call(server, "GET", f"/{endless['id']}").json()["status"] == "in_progress")
    with running_server(config(folders["text"], file)) as server:
        assert call(server, "GET", f"/{seen['id']}").json() == seen
        assert call(server, "GET", f"/{seen['id']}", key=OTHER_KEY).status_code == 404
        assert call(server, "GET", f"/{forgotten['id']}").status_code == 404
        assert call(server, "GET", f"/{streamed_id}").json()["status"] in ("completed", "incomplete")
        items = call(server, "GET", f"/{seen['id']}/input_items").json()["data"]
        assert items[0]["content"] == [{"type": "input_text", "text": "Hello"}]
        failed = call(server, "GET", f"/{endless['id']}").json()
        assert failed["status"] == "failed"
        assert failed["error"]["message"] == "The server ended before this response was made."
        assert call(server, "POST", f"/{endless['id']}/cancel").json()["status"] == "failed"
        again = create(server, **more)
        assert text_of(again) == text_of(expected)
        assert again["usage"]["input_tokens"] == expected["usage"]["input_tokens"]
        reference = {"type": "item_reference", "id": seen["output"][0]["id"]}
        by_reference = create(
            server,
            input=[{"role": "user", "content": "Hello"}, reference, {"role": "user", "content": "And now?"}],
        )
        assert by_reference["usage"]["input_tokens"] == expected["usage"]["input_tokens"]


@pytest.mark.parametrize(
    ("takes", "gives"),
    [
        (lambda file: file.chmod(0o400), lambda file: file.chmod(0o600)),
        (
            lambda file: file.parent.rename(file.parent.with_name("away")),
            lambda file: file.parent.with_name("away").rename(file.parent),
        ),
    ],
    ids=["read-only", "moved away"],
)
def test_a_store_that_is_gone_is_said_and_used_again(
    folders: dict[str, Path],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    takes: Callable[[Path], object],
    gives: Callable[[Path], object],
) -> None:
    (tmp_path / "store").mkdir()
    file = tmp_path / "store" / "responses.db"
    with running_server(config(folders["text"], file)) as server:
        seen = create(server, input="Hello")
        takes(file)
        body: dict[str, Any] = {"input": "Hello", "max_output_tokens": 4}
        kinds: list[dict[str, Any]] = [{}, {"stream": True}, {"background": True}]
        for kind in kinds:
            refused = call(server, "POST", **body, **kind)
            assert (refused.status_code, refused.headers["Retry-After"]) == (503, "1")
            assert refused.json()["error"]["code"] == "response_store_unavailable"
        assert call(server, "DELETE", f"/{seen['id']}").status_code == 503
        assert call(server, "GET", f"/{seen['id']}").json() == seen
        assert call(server, "POST", **body, store=False).status_code == 200
        gives(file)
        wait_until(lambda: call(server, "POST", **body).status_code == 200)
        later = create(server, input="And now?", previous_response_id=seen["id"])
    levels = [each.levelname for each in caplog.records if "store of responses" in each.message]
    assert levels == ["ERROR", "WARNING"]
    with running_server(config(folders["text"], file)) as server:
        for each in (seen, later):
            assert call(server, "GET", f"/{each['id']}").json() == each


def test_a_stream_that_fails_is_kept_as_it_ended(
    text_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OverloadedError("It is too much.")

    monkeypatch.setattr(ResponseShape, "piece", fail)
    answer = call(text_server, "POST", model="vision", input="Hello", stream=True)
    name, data = event_frames(answer.text)[-2].split("\n")
    assert name == "event: response.failed"
    seen = json.loads(data.removeprefix("data: "))["response"]
    assert seen["error"]["message"] == "It is too much."
    assert call(text_server, "GET", f"/{seen['id']}").json() == seen
