"""The commands that measure: what they print, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sensorium.client.bench.commands import bench, bench_text
from support.fake_server import Answer, serve_rest


@pytest.mark.slow
def test_a_measurement_that_is_refused_says_what_the_server_said(capsys: pytest.CaptureFixture[str]) -> None:
    body = b'{"error":{"message":"no such key","type":"t","param":null,"code":"invalid_api_key"}}'
    with serve_rest({"/v1/models": Answer(body, 401)}) as (url, _):
        assert bench_text(base_url=[url], api_key="wrong") == 1
    message = (
        "sensorium: no such key (401, invalid_api_key, the key is api_key, else SENSORIUM_CLIENT_API_KEY)\n"
    )
    assert capsys.readouterr().err == message


@pytest.mark.slow
def test_bench_prints_a_report_and_writes_json(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump = recording.with_name("result.json")
    with serve_rest({"/v1/audio/transcriptions": Answer(b'{"text":"one two"}')}) as (url, _):
        arguments = {"concurrency": [1], "requests": 2, "rounds": 1, "base_url": [url]}
        assert bench([recording], json=dump, **arguments) == 0  # type: ignore[arg-type]
    assert "whole files: latencies in ms" in capsys.readouterr().out
    assert json.loads(dump.read_text())["files"][0]["concurrency"] == 1
