"""The `sensorium` command: what it prints, what it listens to, how it leaves.

Servers are processes of their own; what ends by itself is called here, since most of a process' time would go
into loading torch.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import time
import wave
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from support.command_line import QUICK, SENSORIUM, Run, serving
from support.raw_socket import pcm, raw_session, silence

pytestmark = pytest.mark.slow

BREAKS = """
import torch
from sensorium.actors.cli import main
from sensorium.engine.execution.runner import Runner
run, steps = Runner._run_sequences, []
def broken(self, given):
    steps.append(given)
    if len(steps) > 8:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
    return run(self, given)
Runner._run_sequences = broken
main()
"""
"""A server whose device fails a few steps after its start."""


@contextmanager
def started(
    *arguments: str, command: Sequence[str] = SENSORIUM, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """A process, killed at the end if it still runs."""
    with subprocess.Popen(
        [*command, *arguments],
        env=os.environ | QUICK | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def leaves(process: subprocess.Popen[str], which: signal.Signals) -> tuple[int, str, str]:
    """Its exit code and what it printed after a signal. The limit is for hangs, also on a busy machine."""
    process.send_signal(which)
    stdout, stderr = process.communicate(timeout=180)
    return process.returncode, stdout, stderr


def wait_for_library(process: subprocess.Popen[str], name: str) -> None:
    """Return when the process has mapped a file with `name` in its path."""
    end = time.monotonic() + 180
    while name not in Path(f"/proc/{process.pid}/maps").read_text():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_it_leaves_with_an_error_when_its_device_is_lost() -> None:
    arguments = ("tiny-qwen3-asr", "--port", "0", "--engine-process", "off")
    with serving(*arguments, command=(sys.executable, "-c", BREAKS)) as (process, url):
        body = {"prompt": "x", "max_tokens": 99, "ignore_eos": True}
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=60)
        assert answer.status_code == 503
        assert "lost to this process" in answer.json()["error"]["message"]
        _, stderr = process.communicate(timeout=180)
    assert process.returncode == 1
    assert "CRITICAL tiny-qwen3-asr: the device failed: CUDA error" in stderr
    assert stderr.rstrip().splitlines()[-1].startswith("sensorium: the device failed: CUDA error")


def test_it_says_where_it_listens_and_leaves_on_a_signal() -> None:
    """Also one whose other streams are closed, as a daemon's are, and whose options are variables."""
    closing = ("sh", "-c", 'exec "$@" <&- 2>&-', "sh", *SENSORIUM)
    with serving(command=closing, SENSORIUM_PORT="0", SENSORIUM_API_KEY="k1") as (process, url):
        assert httpx.get(f"{url}/health", timeout=60).status_code == 200
        assert httpx.get(f"{url}/v1/models").status_code == 401
        headers = {"Authorization": "Bearer k1"}
        models = httpx.get(f"{url}/v1/models", headers=headers).json()["data"]
        assert [model["id"] for model in models] == ["tiny-qwen3-vl", "tiny-qwen3-asr"]
        assert leaves(process, signal.SIGINT) == (0, "", "")  # one line, and it was read before


def test_a_session_is_told_and_its_turn_finished(lights: bytes) -> None:
    """Under `nohup`, so that it outlives its terminal."""
    arguments = ("tiny-whisper", "--port", "0", "--engine-process", "off")
    with serving(*arguments, command=("nohup", *SENSORIUM)) as (process, url):
        status = Path(f"/proc/{process.pid}/status").read_text().split()
        assert int(status[status.index("SigIgn:") + 1], 16) & 1 << (signal.SIGHUP - 1)
        with raw_session(f"ws{url.removeprefix('http')}/v1/realtime") as session:
            session.configure(turn_detection={"type": "server_vad"})
            session.append(pcm(lights)[: 2 * 24_000] + silence(0.1))
            session.until("speech_started")
            process.send_signal(signal.SIGTERM)
            code, _ = session.until_closed()
            assert code == 1012
            assert session.seen("completed")
            assert session.seen("error")[-1]["error"]["code"] == "server_draining"
        stdout, stderr = process.communicate(timeout=20)
        assert (process.returncode, stdout) == (0, ""), stderr


def test_a_terminal_that_closes_drains_the_server(lights: bytes, hangups: None) -> None:
    """Kernel and shell both tell of it, and the server's processes are told, too."""
    with serving("tiny-whisper", "--port", "0") as (process, url):
        with raw_session(f"ws{url.removeprefix('http')}/v1/realtime") as session:
            session.configure(turn_detection={"type": "server_vad"})
            session.append(pcm(lights)[: 2 * 24_000] + silence(0.1))
            session.until("speech_started")
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            assert children
            for pid in [*map(int, children), process.pid, process.pid]:
                os.kill(pid, signal.SIGHUP)
            code, _ = session.until_closed()
            assert code == 1012
            assert session.seen("completed")
            assert session.seen("error")[-1]["error"]["code"] == "server_draining"
        assert process.wait(20) == 0


def test_what_models_brought_is_not_looked_through_for_garbage(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would hold the loop for tens of milliseconds each time."""

    async def loads(*_: object, on_ready: Callable[[str], None], **__: object) -> None:
        monkeypatch.setattr(gc, "freeze", lambda: print("frozen"))
        on_ready("http://127.0.0.1:1")

    monkeypatch.setattr("sensorium.actors.server.serve", loads)
    done = run("serve", "--port", "0")
    assert (done.returncode, done.stdout) == (0, "frozen\nlistening on http://127.0.0.1:1\n")


def test_a_page_that_is_not_served_cannot_be_opened(run: Run) -> None:
    done = run("serve", "--no-console", "--open")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "sensorium: --open opens the page that --no-console leaves out; give one of the two\n"
    )


def test_a_port_in_use_is_one_line(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("serve", "--port", str(port))
    assert done.returncode == 1
    message = f"cannot listen on 127.0.0.1:{port}: Address already in use; say another --port"
    assert done.stderr == f"sensorium: {message}\n"


def test_a_missing_model_folder_is_one_line_that_names_it(run: Run, tmp_path: Path) -> None:
    done = run("serve", str(tmp_path / "nowhere"), "--port", "0", "--engine-process", "off")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert str(tmp_path / "nowhere") in done.stderr


def test_a_missing_weights_file_is_one_line_that_names_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "whisper"}))
    done = run("serve", str(tmp_path), "--port", "0", "--engine-process", "off")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert str(tmp_path) in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--port", "70000"), "sensorium: --port is 70000; allowed: 0 to 65535"),
        (("--max-sessions", "0"), "sensorium: --max-sessions is 0; allowed: at least 1"),
        (("tiny-whisper", "tiny-whisper"), "sensorium: two models share the name 'tiny-whisper'"),
        (("--api-key", ""), "sensorium: --api-key is ''; allowed: a text that is not empty"),
        (("./nowhere", "--allowed-media-folder", ""), "sensorium: --allowed-media-folder is ''"),
        (("./nowhere", "--api-key-file="), "sensorium: --api-key-file is ''"),
        (("./nowhere", "--api_key_file="), "sensorium: --api_key_file is ''"),
        (("./nowhere", ""), "sensorium: MODEL is ''"),
        (
            ("./nowhere", "--max-model-len=9"),
            "sensorium: --max-model-len is not an option: it is called --max-",
        ),
    ],
)
def test_a_bad_option_is_named(run: Run, arguments: tuple[str, ...], message: str) -> None:
    done = run("serve", *arguments)
    assert done.returncode == 1
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "option", ["api_key", "api_key_file", "allowed_media_folder", "allowed_media_domains"]
)
@pytest.mark.parametrize("value", ["", " "])
def test_a_variable_that_nobody_filled_in_opens_nothing(
    run: Run, tmp_path: Path, option: str, value: str
) -> None:
    """As in `-e SENSORIUM_API_KEY=$KEY` without a KEY."""
    variable = f"SENSORIUM_{option.upper()}"
    done = run("serve", str(tmp_path / "nowhere"), **{variable: value})
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith(f"sensorium: {variable} is ''; allowed: a text that is not empty")


@pytest.mark.parametrize("value", ["/srv:", ":", '["", "/srv"]'])
def test_no_folder_of_several_is_empty(run: Run, tmp_path: Path, value: str) -> None:
    """As in `$A:$B` without a B: it would be the working folder."""
    done = run("serve", str(tmp_path / "nowhere"), SENSORIUM_ALLOWED_MEDIA_FOLDER=value)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "SENSORIUM_ALLOWED_MEDIA_FOLDER is" in done.stderr
    assert "allowed: paths that are not empty" in done.stderr


def test_an_address_that_kubernetes_puts_into_our_variable_is_no_port(run: Run, tmp_path: Path) -> None:
    done = run(
        "serve", str(tmp_path / "nowhere"), "--engine-process", "off", SENSORIUM_PORT="tcp://10.0.0.7:8000"
    )
    first, second = done.stderr.splitlines()
    assert first == "sensorium: SENSORIUM_PORT is 'tcp://10.0.0.7:8000', not a port; it is ignored"
    assert str(tmp_path / "nowhere") in second  # so it went on


def test_a_variable_of_no_option_is_told(run: Run, tmp_path: Path) -> None:
    """`SENSORIUM_API_KEY` would have closed the server."""
    others = ("CLIENT_API_KEY", "SERVICE_PORT_HTTP", "PORT_8000_TCP_ADDR", "WEB_SERVICE_HOST")
    environment = {f"SENSORIUM_{name}": "x" for name in ("API_KEYS", *others)}
    done = run("serve", str(tmp_path / "nowhere"), "--engine-process", "off", **environment)
    first, second = done.stderr.splitlines()
    assert first == "sensorium: SENSORIUM_API_KEYS is not an option; it is ignored"
    assert str(tmp_path / "nowhere") in second  # so it went on


CODES = [(signal.SIGINT, 130), (signal.SIGTERM, 143)]


@pytest.mark.parametrize(("which", "code"), CODES)
def test_a_signal_during_a_download_ends_it_at_once(which: signal.Signals, code: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hub:
        url = f"http://127.0.0.1:{hub.getsockname()[1]}"
        with started("serve", "somebody/somemodel", "--port", "0", HF_ENDPOINT=url) as process:
            hub.settimeout(60)
            connection, _ = hub.accept()
            with connection:
                assert leaves(process, which) == (code, "", "")


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(("library", "engine_process"), [("msgspec", "on"), ("libtorch", "off")])
@pytest.mark.parametrize(("which", "code"), CODES)
def test_a_signal_while_packages_are_loaded_ends_it_at_once(
    which: signal.Signals, code: int, library: str, engine_process: str
) -> None:
    with started("serve", "--port", "0", "--engine-process", engine_process) as process:
        wait_for_library(process, library)
        assert leaves(process, which) == (code, "", "")


def test_a_benchmark_that_is_interrupted_says_nothing(tmp_path: Path) -> None:
    recording = tmp_path / "talk.wav"
    with wave.open(str(recording), "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(16_000)
        writer.writeframes(bytes(32_000))
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with started("bench", str(recording), "--base-url", url) as process:
            server.settimeout(60)
            connection, _ = server.accept()
            with connection:
                assert leaves(process, signal.SIGINT) == (130, "", "")


WRITES = """
import os, sys, types
commands = sys.modules["sensorium.actors.commands"] = types.ModuleType("commands")
commands.run = lambda _: print("shown", os.fstat(1)) or 0
from sensorium.actors.cli import main; main()
"""
A_SERVER = (*SENSORIUM, "serve", "tiny-whisper", "--port=0", "--log-level=error", "--engine-process=off")


@pytest.mark.parametrize("command", [(sys.executable, "-c", WRITES), A_SERVER], ids=["writes", "serves"])
def test_a_reader_that_has_enough_is_no_error(command: tuple[str, ...]) -> None:
    with started(command=command) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == 141
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_said_in_a_line(unbuffered: str) -> None:
    """Whether it shows while something is printed, or when all of it is written at the end."""
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    command = [sys.executable, "-c", WRITES]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=environment, timeout=60)
    assert (done.returncode, done.stderr) == (1, b"sensorium: No space left on device\n")


SHOWS = """
import sys
from sensorium.actors import cli, commands
sys.argv = ["sensorium", "models"]
commands.run = lambda _: print("días", sys.stdin.read(), "caf\\udce9") or 0
cli.main()
"""


@pytest.mark.parametrize(
    ("encoding", "shown"), [("ascii", b"d\\xedas  caf\\udce9\n"), ("utf-8", "días  caf\\udce9\n".encode())]
)
def test_no_text_is_lost_to_the_encoding_of_a_terminal(encoding: str, shown: bytes) -> None:
    environment = os.environ | {"PYTHONIOENCODING": encoding}
    done = subprocess.run(
        [sys.executable, "-c", SHOWS], env=environment, input=b"", capture_output=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == (shown, b"")


@pytest.mark.parametrize("optimize", ["", "1"])
def test_standard_output_may_be_closed(optimize: str) -> None:
    """Also where Python leaves out what is asserted. Of a server's other streams: above."""
    command = ("sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-c", WRITES)
    with started(command=command, PYTHONOPTIMIZE=optimize) as process:
        assert process.communicate(timeout=60) == ("", "")
    assert process.returncode == 0


def test_python_dash_m_is_the_command(run: Run) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sensorium", "--help"], capture_output=True, text=True, check=True, timeout=60
    )
    assert "Serve models over HTTP and WebSocket" in done.stdout


def test_an_unknown_option_is_an_error(run: Run) -> None:
    done = run("serve", "--prot", "1")
    assert done.returncode != 0
    assert "--prot" in done.stdout + done.stderr


def test_a_command_alone_shows_its_help(run: Run) -> None:
    shown = run()
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Usage: sensorium COMMAND" in shown.stdout


def test_help_shows_examples_and_models_lists_them(run: Run) -> None:
    assert "sensorium serve openai/whisper-base" in run("serve", "--help").stdout
    listed = run("models").stdout
    assert "tiny-qwen3-asr: transcribe · en, es, de · 4096 tokens of context" in listed
    assert "tiny-qwen3-vl: chat · text, images, video · 8192 tokens of context" in listed
    assert "tiny-whisper: transcribe · de, en, es · 8 s window" in listed


def test_two_models_and_a_transcription_over_the_command_line(
    run: Run, lights: bytes, tmp_path: Path
) -> None:
    names = ("--served-model-name", "a", "--served-model-name", "b")
    recording = tmp_path / "lights.wav"
    recording.write_bytes(lights)
    with serving("tiny-whisper", "tiny-whisper", *names, "--port", "0") as (_, url):
        texts = set()
        for name in ("a", "b"):
            files = {"file": ("a.wav", lights)}
            answer = httpx.post(
                f"{url}/v1/audio/transcriptions", files=files, data={"model": name}, timeout=60
            )
            texts.add(answer.json()["text"])
        assert len(texts) == 1
        done = run("transcribe", str(recording), "--base-url", url)
        assert texts.pop() in done.stdout


CAPACITIES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
PRINTS = f"""
import os, sys
from sensorium.actors import cli, commands
sys.argv = ["sensorium", "models"]
commands.run = lambda _: print(*(os.environ[name] for name in {CAPACITIES!r})) or 0
cli.main()
"""


@pytest.mark.parametrize(("given", "found"), [(None, "128 128"), ("7", "7 7")])
def test_caches_of_compiled_kernels_are_small_unless_somebody_says_otherwise(
    given: str | None, found: str
) -> None:
    """Each shape of live audio costs 256 KiB in them, and their own bound is 1024."""
    environment = {name: value for name, value in os.environ.items() if name not in CAPACITIES}
    if given is not None:
        environment |= dict.fromkeys(CAPACITIES, given)
    done = subprocess.run(
        [sys.executable, "-c", PRINTS],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == found
