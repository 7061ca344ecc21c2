"""What the server's process writes to standard error: its own lines and nothing else."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from support.raw_socket import raw_session
from support.server import Server
from support.text_folder import byte_level_tokenizer, make_text_folder
from transformers import Olmo2Config

pytestmark = pytest.mark.slow

TORN = 'sensorium_requests_total{route="/v1/completions",status="400"} 1.0'


def test_each_line_of_a_json_log_is_an_object_that_names_its_request(tmp_path: Path) -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    olmo = Olmo2Config(vocab_size=byte_level_tokenizer().get_vocab_size(), **sizes)
    folder = make_text_folder(tmp_path / "olmo", olmo)  # transformers loads it, with a bar
    command = [sys.executable, "-m", "sensorium", "serve", str(folder), "tiny-whisper", "--port", "0"]
    command += ["--log-format", "json", "--num-threads", "1", "--api-key", "s3cret"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().removeprefix("listening on ").strip()
            with httpx.Client(base_url=url, headers={"Authorization": "Bearer s3cret"}) as client:
                client.get("/health")
                made = client.post("/v1/completions", json={"prompt": "a", "max_tokens": 2})
                with socket.create_connection((client.base_url.host, client.base_url.port)) as raw:
                    raw.sendall(b"NONSENSE\n\r\n")
                    assert raw.recv(100).startswith(b"HTTP/1.1 400 ")
                with socket.create_connection((client.base_url.host, client.base_url.port)) as raw:
                    head = "POST /v1/completions HTTP/1.1", "host: localhost", "authorization: Bearer s3cret"
                    more = (
                        "content-type: application/json",
                        "transfer-encoding: chunked",
                        "x-request-id: torn",
                    )
                    raw.sendall("\r\n".join([*head, *more, "", "zz\r\n"]).encode())
                    assert raw.recv(100).startswith(b"HTTP/1.1 400 ")
                deadline = time.monotonic() + 20
                while TORN not in (counted := client.get("/metrics").text) and time.monotonic() < deadline:
                    time.sleep(0.02)  # a request is counted when its task ends, after its answer has left
                lost = client.get("/nowhere%0a", headers={"X-Request-Id": "mine"})
            with raw_session(
                f"ws{url.removeprefix('http')}/v1/realtime",
                additional_headers={"Authorization": "Bearer s3cret"},
            ):
                pass
        finally:
            process.send_signal(signal.SIGTERM)
            _, stderr = process.communicate(timeout=60)
    lines = [json.loads(line) for line in stderr.splitlines()]
    entries = [
        line for line in lines if line["logger"] != "sensorium.kernels.native"
    ]  # of no compiler, a warning
    assert all(line["level"] == "info" for line in entries), stderr
    assert lost.headers["x-request-id"] == "mine"
    by_id = {line["request_id"]: line for line in lines if line["logger"] == "sensorium.access"}
    assert by_id[made.headers["x-request-id"]]["path"] == "/v1/completions"
    assert by_id["mine"]["status"] == 404
    assert [(line["status"], line["path"]) for line in lines if "refused" in line] == [(400, "-")]
    assert 'sensorium_requests_refused_total{status="400"} 1.0' in counted
    assert by_id["torn"]["status"] == 400
    assert TORN in counted
    assert not any(line.get("path") == "/health" for line in lines)
    assert [line["status"] for line in lines if line.get("method") == "WEBSOCKET"] == [101, 101]
    assert "s3cret" not in stderr


def test_every_answer_has_an_id_and_a_session_too(server: Server) -> None:
    for path in ("/health", "/v1/models", "/v1/models/none", "/nowhere"):
        answer = httpx.get(f"{server.url}{path}", headers={"X-Request-Id": f"a{path}"})
        assert answer.headers["x-request-id"] == f"a{path}"
    assert httpx.get(f"{server.url}/ping").headers["x-request-id"].startswith("req_")
    with raw_session(server.realtime, additional_headers={"X-Request-Id": "of-a-session"}) as session:
        assert session.socket.response is not None
        assert session.socket.response.headers["x-request-id"] == "of-a-session"


def test_where_standard_output_is_on_a_full_disk_the_log_says_where_it_listens() -> None:
    command = [sys.executable, "-m", "sensorium", "serve", "tiny-whisper", "--port=0", "--engine-process=off"]
    with (
        open("/dev/full", "w") as full,
        subprocess.Popen(command, stdout=full, stderr=subprocess.PIPE, text=True) as process,
    ):
        try:
            assert process.stderr is not None
            line = next(each for each in iter(process.stderr.readline, "") if "listening on " in each)
            assert "No space left on device" in line
            url = line.rpartition("listening on ")[2].strip()
            assert httpx.get(f"{url}/health", timeout=60).status_code == 200
            process.send_signal(signal.SIGTERM)
            _, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0, stderr
