"""How the scripts end that run until somebody stops them: by Ctrl-C, or because there is no server."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import websockets.sync.client
from openai import OpenAI
from sensorium import LocalEngine
from sensorium.client import AsyncClient, Client

EXAMPLES = Path(__file__).parents[2] / "examples"
SPEECH = str(EXAMPLES / "data" / "kitchen_lights.wav")


def run(monkeypatch: pytest.MonkeyPatch, script: str, *arguments: str) -> object:
    """What the script exits with."""
    monkeypatch.setattr(sys, "argv", [script, *arguments])
    monkeypatch.syspath_prepend(EXAMPLES)
    with pytest.raises((SystemExit, KeyboardInterrupt)) as ended:  # the latter would end pytest
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    assert isinstance(ended.value, SystemExit)
    return ended.value.code


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("chat_with_image.py", [SPEECH, "What?"]),
        ("demo.py", ["http://127.0.0.1:1"]),
        ("live_camera.py", ["camera", "What?"]),
        ("live_file.py", [SPEECH]),
        ("plot_words.py", [SPEECH, "words.png"]),
        ("structured_output.py", ["tiny-qwen3-vl"]),
        ("telephone_call.py", [SPEECH]),
        ("transcribe_file.py", [SPEECH]),
        ("voice_agent.py", [SPEECH]),
    ],
)
def test_ctrl_c_leaves_no_traceback(
    monkeypatch: pytest.MonkeyPatch, script: str, arguments: list[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "__init__", stop)
    monkeypatch.setattr(AsyncClient, "__init__", stop)
    monkeypatch.setattr(LocalEngine, "__init__", stop)
    monkeypatch.setattr(OpenAI, "__init__", stop)
    monkeypatch.setattr(websockets.sync.client, "connect", stop)
    assert run(monkeypatch, script, *arguments) == 130


def test_a_call_without_a_server_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "refused" in str(run(monkeypatch, "telephone_call.py", SPEECH, "--url", "ws://127.0.0.1:1"))


def test_a_call_to_an_address_of_http_names_the_one_to_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "telephone_call.py", "--url", "http://127.0.0.1:1") == 2
    assert "expected ws://HOST:PORT/v1/calls" in capsys.readouterr().err


@pytest.mark.parametrize(
    "script",
    [
        "chat_with_image.py",
        "interop/openai_realtime.py",
        "interop/vllm_realtime.py",
        "live_camera.py",
        "live_file.py",
        "plot_words.py",
        "structured_output.py",
        "transcribe_file.py",
        "voice_agent.py",
    ],
)
def test_help_is_what_a_script_does(monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    text = (EXAMPLES / script).read_text("utf-8")
    first = text.split('"""')[1].splitlines()[0]
    assert str(run(monkeypatch, script, "--help")).startswith(first)
