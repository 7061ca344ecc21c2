"""One real server for all end-to-end tests; after each of them nothing may be held any more."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile
from sensorium.actors.config.server import EngineConfig, ListenConfig
from support.asr_folder import make_asr_folder
from support.audio_files import sound_file
from support.chat_templates import QWEN3
from support.command_line import Run, running
from support.server import Server, make_config, running_server
from support.text_folder import QwenShape, make_qwen3_folder
from support.vl_folder import make_vl_folder

DATA = Path(__file__).parents[2] / "examples" / "data"


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Server]:
    """A server of tiny-whisper with the default limits."""
    with running_server(make_config()) as server:
        yield server


@pytest.fixture
def server(shared_server: Server) -> Iterator[Server]:
    """The shared server; the test fails if it leaves anything held, or held the loop."""
    with shared_server.left_quiet():
        yield shared_server


@pytest.fixture(scope="session")
def lights() -> bytes:
    """A WAV file of one short English sentence, 16 kHz."""
    return (DATA / "kitchen_lights.wav").read_bytes()


@pytest.fixture(scope="session")
def conversation() -> bytes:
    """A WAV file of six sentences in three languages, with pauses between them."""
    return (DATA / "conversation.wav").read_bytes()


@pytest.fixture(scope="session")
def sentences() -> bytes:
    """A WAV file of the first three of them, which is more than a window of tiny-whisper."""
    samples, _ = soundfile.read(DATA / "conversation.wav", frames=round(10.4 * 16_000), dtype="float32")
    return sound_file(samples)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random checkpoints of a text, a vision and an audio model."""
    root = tmp_path_factory.mktemp("models")
    return {
        "text": make_qwen3_folder(root / "text"),
        "vision": make_vl_folder(root / "vision"),
        "audio": make_asr_folder(root / "audio"),
    }


@pytest.fixture(scope="session")
def shared_text_server(folders: dict[str, Path]) -> Iterator[Server]:
    """A server of the three; `text` is the default."""
    engine = EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="32MiB", max_running=8)
    with running_server(make_config(*map(str, folders.values()), engine=engine)) as server:
        yield server


@pytest.fixture
def text_server(shared_text_server: Server) -> Iterator[Server]:
    """The shared one; the test fails if it leaves anything held, or held the loop."""
    with shared_text_server.left_quiet():
        yield shared_text_server


@pytest.fixture(scope="session")
def chat_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A random model with Qwen3's template, which servers call `chat`."""
    folder = make_qwen3_folder(
        tmp_path_factory.mktemp("models") / "chat", shape=QwenShape(max_positions=4096)
    )
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"chat_template": QWEN3}))
    return str(folder)


@pytest.fixture(scope="session")
def shared_chat_server(chat_folder: str) -> Iterator[Server]:
    """A server of it."""
    engine = EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="64MiB", max_running=64)
    with running_server(make_config(chat_folder, engine=engine)) as server:
        yield server


@pytest.fixture
def chat_server(shared_chat_server: Server) -> Iterator[Server]:
    """The shared one; the test fails if it leaves anything held, or held the loop."""
    with shared_chat_server.left_quiet():
        yield shared_chat_server


@pytest.fixture(scope="session")
def shared_keyed_server(chat_folder: str) -> Iterator[Server]:
    """A server of the same model, for the holders of two keys."""
    engine = EngineConfig(device="cpu", dtype="float32", num_threads=1, kv_memory="64MiB", max_running=8)
    listen = ListenConfig(port=0, drain_s=5.0, api_key=("one", "another"))
    with running_server(make_config(chat_folder, engine=engine, listen=listen)) as server:
        yield server


@pytest.fixture
def keyed_server(shared_keyed_server: Server) -> Iterator[Server]:
    """The shared one; the test fails if it leaves anything held, or held the loop."""
    with shared_keyed_server.left_quiet():
        yield shared_keyed_server


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Runs a command line to its end, in this process."""
    with running(monkeypatch, capfd) as found:
        yield found


@pytest.fixture
def hangups() -> Iterator[None]:
    """Servers learn that their terminal has closed, also where the tests themselves run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
