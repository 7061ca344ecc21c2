"""What breaks inside hurts as few as possible: one session, or the requests in flight; never the server."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import threading
import time
import wave
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sensorium.actors.http import event_stream
from sensorium.actors.inference.engine import Engine
from sensorium.engine.execution.runner import Runner
from sensorium.engine.planning.plan import Plan, SequenceId, StepResult
from sensorium.media.speech.voice_activity import FrameCutter
from support.event_frames import event_frames
from support.raw_socket import RawSession, pcm, raw_session
from support.server import Server, make_config, running_server, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def breaking_server() -> Iterator[Server]:
    with running_server(make_config()) as server:
        yield server


@pytest.fixture
def server(breaking_server: Server) -> Iterator[Server]:
    with breaking_server.free_loop():
        yield breaking_server
    wait_until(lambda: breaking_server.service.is_ready)
    breaking_server.wait_quiet()


def transcribe(server: Server, data: bytes, **form: str) -> httpx.Response:
    url = f"{server.api}/audio/transcriptions"
    return httpx.post(url, files={"file": ("a.wav", data)}, data=form, timeout=60)


def wav(samples: bytes) -> bytes:
    """A 16 kHz file."""
    target = io.BytesIO()
    with wave.open(target, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(samples)
    return target.getvalue()


def speak(session: RawSession, audio: bytes) -> None:
    session.configure()
    session.append(audio)
    session.commit()


def test_a_session_whose_code_breaks_ends_alone(
    server: Server, lights: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with raw_session(server.realtime) as broken, raw_session(server.realtime) as other:
        original = FrameCutter.reset

        def explode(self: FrameCutter) -> None:
            raise RuntimeError("a defect")

        monkeypatch.setattr(FrameCutter, "reset", explode)
        broken.append(pcm(lights))
        broken.send({"type": "input_audio_buffer.clear"})
        code, _ = broken.until_closed()
        assert code == 1011
        error = broken.seen("error")[-1]["error"]
        assert (error["type"], error["code"]) == ("server_error", "internal_error")
        assert "defect" not in str(broken.events)
        monkeypatch.setattr(FrameCutter, "reset", original)
        speak(other, pcm(lights))
        assert other.until("completed")["transcript"]
    assert "a defect" in caplog.text


def test_a_broken_device_fails_what_is_in_flight_and_comes_back(
    server: Server, lights: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raw_session(server.realtime) as session:
        session.configure()
        broken = threading.Event()

        def explode(self: Runner, plan: object) -> None:
            broken.set()
            raise RuntimeError("the device is gone")

        with monkeypatch.context() as patch:
            patch.setattr(Runner, "execute", explode)
            failed = transcribe(server, lights)
            assert failed.status_code == 503
            assert failed.json()["error"]["code"] == "unavailable"
            assert failed.headers["retry-after"]
            assert "device is gone" not in failed.text
            assert broken.is_set()
        wait_until(lambda: httpx.get(f"{server.url}/health").status_code == 200)
        assert transcribe(server, lights).status_code == 200
        # The session lived on.
        session.append(pcm(lights))
        session.commit()
        assert session.until("completed")["transcript"]


def test_a_turn_that_a_device_breaks_under_is_answered_when_it_is_back(
    server: Server, lights: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, execute, whole = transcribe(server, lights).json()["text"], Runner.execute, [False]

    def explode(self: Runner, plan: Plan) -> StepResult:
        if whole:
            whole.clear()
            raise RuntimeError("the device is gone")
        return execute(self, plan)

    with raw_session(server.realtime) as session:
        session.configure()
        monkeypatch.setattr(Runner, "execute", explode)
        session.append(pcm(lights))
        session.commit()
        assert session.until("completed")["transcript"] == text
    assert not whole


def test_a_killed_decode_process_is_one_requests_error(server: Server, lights: bytes) -> None:
    assert transcribe(server, lights).status_code == 200
    for process in decode_processes():
        os.kill(process, signal.SIGKILL)
    answers = [transcribe(server, lights).status_code for _ in range(3)]
    assert answers[-1] == 200
    assert set(answers) <= {200, 503}


@pytest.mark.parametrize("num_bytes", [200_000, 4_000_000])
def test_a_full_disk_is_503_and_not_the_clients_fault(server: Server, lights: bytes, num_bytes: int) -> None:
    """For the form that is spooled, and for what a worker makes of it: the kernel refuses larger files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    large = lights + bytes(2_000_000) if num_bytes < 2_000_000 else wav(bytes(2 * 16_000 * 90))
    for process in decode_processes():
        os.kill(process, signal.SIGKILL)  # the next ones inherit the limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        refused = transcribe(server, large)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        for process in decode_processes():
            os.kill(process, signal.SIGKILL)
    assert refused.status_code == 503, refused.text
    assert refused.json()["error"]["code"] == "insufficient_storage"
    assert int(refused.headers["retry-after"]) >= 1
    assert transcribe(server, lights).status_code == 200


def decode_processes() -> list[int]:
    """Python children of this process: the decode workers."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
            command = (path.parent / "cmdline").read_bytes()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and b"multiprocessing" in command and b"spawn_main" in command:
            found.append(int(path.parent.name))
    return found


def test_a_stream_that_breaks_midway_says_so(
    server: Server, conversation: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = Runner.execute
    num_tokens: Counter[SequenceId] = Counter()

    def break_later(self: Runner, plan: Plan) -> StepResult:
        num_tokens.update(step.sequence_id for step in plan.sequences if step.feeds_sampled)
        if len(num_tokens) > 3:  # ranges in order, so that the text of the first is sent
            raise RuntimeError("the device is gone")
        return execute(self, plan)

    monkeypatch.setattr(Runner, "execute", break_later)
    # In one language each window is one answer, and each is told what the one before it said.
    response = transcribe(
        server, conversation, stream="true", language="en", condition_on_previous_text="true"
    )
    monkeypatch.undo()
    frames = event_frames(response.text)
    assert response.status_code == 200
    assert frames[0].startswith("data: ")
    assert json.loads(frames[-2].removeprefix("data: "))["error"]["code"] == "unavailable"
    assert frames[-1] == "data: [DONE]"


def test_a_slow_stream_is_kept_alive(server: Server, lights: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    execute = Runner.execute

    def slowly(self: Runner, plan: Plan) -> StepResult:
        time.sleep(0.1)
        return execute(self, plan)

    monkeypatch.setattr(Runner, "execute", slowly)
    monkeypatch.setattr(event_stream, "_KEEP_ALIVE_S", 0.03)
    frames = transcribe(server, lights, stream="true").text.strip().split("\n\n")
    assert frames.count(": keep-alive") > 2
    assert frames[-1] == "data: [DONE]"


def test_the_loop_stays_free_while_the_device_works(
    server: Server, lights: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute = Runner.execute

    def slowly(self: Runner, plan: Plan) -> StepResult:
        time.sleep(0.3)
        return execute(self, plan)

    monkeypatch.setattr(Runner, "execute", slowly)
    with raw_session(server.realtime) as session:
        speak(session, pcm(lights))
        delays = []
        for _ in range(10):
            started = time.monotonic()
            assert session.socket.ping().wait(5)
            delays.append(time.monotonic() - started)
        assert sorted(delays)[5] < 0.2
        monkeypatch.undo()
        session.until("completed")


def test_what_only_another_process_can_mend_is_not_alive(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for health, status in (("restarting", 200), ("failed", 503)):
        monkeypatch.setattr(Engine, "health", health)
        for path in ("live", "ping"):
            assert httpx.get(f"{server.url}/{path}").status_code == status, health
