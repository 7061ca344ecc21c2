"""Runs the lines of code that the console shows: curl, Python (the SDK and `openai`), JavaScript in Node."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile
import soxr
from PIL import Image
from sensorium.actors.config.server import DEFAULT_MODELS
from support.server import Server, make_config, running_server

ROOT = Path(__file__).parents[2]
DATA = ROOT / "examples" / "data"
SNIPPETS = ROOT / "actors" / "http" / "console" / "static" / "snippets.js"
MODULE = ROOT / "client" / "js" / "sensorium.js"
SEES, HEARS = DEFAULT_MODELS
LIGHTS = "Set the kitchen lights to ninety percent"
NODE = shutil.which("node")
LIVE = {"model": HEARS, "language": "en", "delay": "low", "turns": "server_vad", "recording": "pcm"}
FILE = {"file": "speech.wav", "model": HEARS, "language": "en", "keywords": ["kitchen"], "task": "transcribe"}
PICTURE = {
    "type": "image_url",
    "image_url": {"url": "data:"},
    "file": {"name": "shapes.png", "kind": "image", "type": "image/png"},
}
QUESTION = {"type": "text", "text": "What is where?"}
TEXT = {"role": "user", "content": 'It\'s a "test":\nwhat can you do?'}
OPTIONS = {"temperature": 0, "max_tokens": 20}
CHAT = {"model": SEES, "messages": [TEXT], "options": OPTIONS, "live": False}
ABOUT_PICTURE = CHAT | {"messages": [{"role": "user", "content": [PICTURE, QUESTION]}], "options": {}}
WATCHED = CHAT | {"messages": [{"role": "user", "content": [QUESTION]}], "options": {}, "live": True}
# What a page has and Node has not.
PAGE = """
const { readFileSync } = await import("node:fs");
const chosenFile = new File([readFileSync("speech.wav")], "speech.wav", { type: "audio/wav" });
globalThis.document = { querySelector: () => ({ files: [chosenFile] }) };
"""

pytestmark = pytest.mark.skipif(NODE is None, reason="Node is not installed: apt-get install nodejs")


@pytest.fixture(scope="module")
def console() -> Iterator[Server]:
    """A server of one model that sees and one that hears."""
    with running_server(make_config(*DEFAULT_MODELS)) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the lines are run: with the files that they name."""
    shutil.copy(DATA / "kitchen_lights.wav", tmp_path / "speech.wav")
    shutil.copy(DATA / "shapes.png", tmp_path)
    Image.open(tmp_path / "shapes.png").convert("RGB").save(tmp_path / "frame.jpg")
    samples, rate = soundfile.read(tmp_path / "speech.wav", dtype="float32")
    soundfile.write(tmp_path / "speech-24kHz.wav", soxr.resample(samples, rate, 24_000), 24_000)
    return tmp_path


def lines(function: str, url: str, language: str, *chosen: object) -> str:
    """What a function of `snippets.js` writes for a server without keys."""
    arguments = ", ".join(json.dumps(each) for each in (f"{url}/", False, *chosen))
    program = f"""
    const snippets = await import({json.dumps(SNIPPETS.as_uri())});
    process.stdout.write(snippets.{function}({arguments}).{language});
    """
    return output(NODE or "node", "--input-type=module", "-e", program)


def output(*command: str, cwd: Path | None = None) -> str:
    """What a program prints; AssertionError with its errors if it fails."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


@pytest.mark.parametrize("language", ["python", "openai"])
@pytest.mark.parametrize(
    ("function", "chosen", "expected"),
    [
        ("liveCode", (LIVE,), LIGHTS),
        ("filesCode", (FILE,), LIGHTS),
        ("chatCode", (CHAT,), ""),
        ("chatCode", (WATCHED,), "red circle"),
        ("serverCode", (), HEARS),
    ],
)
def test_python(
    console: Server, folder: Path, function: str, chosen: tuple[object, ...], expected: str, language: str
) -> None:
    printed = output(sys.executable, "-c", lines(function, console.url, language, *chosen), cwd=folder)
    assert printed.strip()
    assert expected in " ".join(printed.split())
    console.wait_quiet()


def test_python_with_a_picture(console: Server, folder: Path) -> None:
    printed = output(
        sys.executable, "-c", lines("chatCode", console.url, "python", ABOUT_PICTURE), cwd=folder
    )
    assert "red circle" in printed
    console.wait_quiet()


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed: apt-get install curl")
@pytest.mark.parametrize(
    ("function", "chosen", "expected"),
    [
        ("liveCode", (LIVE,), '"value":"ek_'),
        ("filesCode", (FILE,), f"{LIGHTS}."),
        ("chatCode", (CHAT,), "data: [DONE]"),
        ("serverCode", (), HEARS),
    ],
)
def test_curl(
    console: Server, folder: Path, function: str, chosen: tuple[object, ...], expected: str
) -> None:
    written = lines(function, console.url, "curl", *chosen)
    requests = written[written.index("curl ") :]  # `sensorium listen` stands in front, and takes a microphone
    assert expected in output("sh", "-ec", requests.replace("curl ", "curl -sS --fail "), cwd=folder)
    console.wait_quiet()


@pytest.mark.parametrize(
    ("function", "chosen", "expected"),
    [("filesCode", (FILE,), f"{LIGHTS}."), ("chatCode", (CHAT,), ""), ("serverCode", (), HEARS)],
)
def test_javascript(
    console: Server, folder: Path, function: str, chosen: tuple[object, ...], expected: str
) -> None:
    """The live view's lines need a microphone: `tests/e2e/browser/test_embedding.py` has a page like them."""
    written = lines(function, console.url, "javascript", *chosen)
    module = f"{console.url}/console/sdk/sensorium.js"
    assert module in written
    program = PAGE + written.replace(module, MODULE.as_uri())
    printed = output(NODE or "node", "--input-type=module", "-e", program, cwd=folder)
    assert printed.strip()
    assert expected in " ".join(printed.split())
    console.wait_quiet()
