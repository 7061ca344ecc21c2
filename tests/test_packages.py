"""The two distributions, built and installed: the code, which clients need, and the embedded models."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email import message_from_bytes
from pathlib import Path

import httpx
import pytest
from support.command_line import serving

ROOT = Path(__file__).resolve().parents[1]
MAX_CODE_BYTES = 2_200_000
MAX_PAGE_BYTES = 300_000
TO_INSTALL = "pip install ./engine/checkpoints"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The code's and the embedded models', built of a copy, in which nothing of earlier builds lies."""
    folder = tmp_path_factory.mktemp("wheels")
    left_out = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "tests", "examples")
    sources = shutil.copytree(ROOT, folder / "sources", ignore=left_out)
    build = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder)
    subprocess.run((sys.executable, *build, "./engine/checkpoints", "."), cwd=sources, check=True)
    code, models = sorted(folder.glob("*.whl"), key=lambda wheel: wheel.stat().st_size)
    return code, models


def installed(folder: Path, *wheels: Path) -> Path:
    """A new environment's Python, with these wheels and all that others wrote, but nothing of this clone."""
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    subprocess.run((*pip, "install", "--quiet", "--no-deps", "--no-index", *wheels), check=True)
    (packages,) = folder.glob("lib/*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))  # its own .pth files are not read
    return python


@pytest.fixture(scope="module")
def code_alone(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("code"), wheels[0])


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Away from the clone, and told nothing of it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)


def test_the_code_is_small_and_has_no_weights(wheels: tuple[Path, Path]) -> None:
    assert wheels[0].name.startswith("sensorium-")
    assert wheels[0].stat().st_size < MAX_CODE_BYTES
    names = zipfile.ZipFile(wheels[0]).namelist()
    assert not [name for name in names if "checkpoints" in name or name.endswith(".safetensors")]
    assert any(name.startswith("sensorium/kernels/cpu/") for name in names)
    assert "sensorium/testing/scripted.py" in names


def test_the_console_and_the_javascript_client_come_with_the_code(wheels: tuple[Path, Path]) -> None:
    folders = ("actors/http/console/static", "client/js")
    sizes = {
        each.filename: each.file_size
        for each in zipfile.ZipFile(wheels[0]).infolist()
        if each.filename.startswith(tuple(f"sensorium/{folder}/" for folder in folders))
    }
    kept = {f"sensorium/{folder}/{path.name}" for folder in folders for path in (ROOT / folder).iterdir()}
    assert set(sizes) == kept
    assert sum(sizes.values()) <= MAX_PAGE_BYTES


def test_every_model_comes_with_its_card_and_the_licence(wheels: tuple[Path, Path]) -> None:
    assert wheels[1].name.startswith("sensorium_checkpoints-")
    names = zipfile.ZipFile(wheels[1]).namelist()
    folders = {path.parent.name for path in (ROOT / "engine" / "checkpoints").glob("*/config.json")}
    assert len(folders) >= 3
    for folder in folders:
        kept = {path.name for path in (ROOT / "engine" / "checkpoints" / folder).iterdir()}
        assert {"README.md", "model.safetensors"} <= kept
        assert {f"sensorium_checkpoints/{folder}/{name}" for name in kept} <= set(names)
    assert [name for name in names if name.endswith(".py")] == ["sensorium_checkpoints/__init__.py"]
    assert any(name.endswith("/LICENSE") for name in names)


def test_the_server_needs_them_and_no_client_does(wheels: tuple[Path, Path]) -> None:
    archive = zipfile.ZipFile(wheels[0])
    (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    needs = message_from_bytes(archive.read(metadata)).get_all("Requires-Dist", [])
    (need,) = (need for need in needs if need.startswith("sensorium-checkpoints"))
    assert need.endswith('; extra == "serve"')


def test_clients_work_without_them(code_alone: Path) -> None:
    done = run(code_alone, "-c", "import sensorium; print(sensorium.Client.__name__, sensorium.__file__)")
    assert done.stdout.startswith("Client "), done.stderr
    assert str(code_alone.parents[1]) in done.stdout
    done = run(code_alone.with_name("sensorium"), "transcribe", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "Transcribe audio files" in done.stdout


@pytest.mark.parametrize("in_process", ["on", "off"])
def test_a_server_without_them_says_what_to_install(code_alone: Path, in_process: str) -> None:
    arguments = ("serve", "--port", "0", "--engine-process", in_process)
    done = run(code_alone.with_name("sensorium"), *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    lines = [line for line in done.stderr.splitlines() if "sensorium-checkpoints" in line]
    assert "Traceback" not in done.stderr
    assert any(line.startswith("sensorium: tiny-qwen3-vl: ") and TO_INSTALL in line for line in lines)


def test_a_local_engine_and_the_list_without_them_say_so(code_alone: Path) -> None:
    done = run(code_alone, "-c", "from sensorium import LocalEngine\nwith LocalEngine('tiny-qwen3-vl'): pass")
    assert done.returncode == 1
    assert TO_INSTALL in done.stderr.splitlines()[-1]
    done = run(code_alone, "-m", "sensorium", "models")
    assert (done.returncode, done.stdout) == (1, "")
    assert TO_INSTALL in done.stderr


def test_with_both_a_server_starts_and_a_scripted_engine_answers(
    wheels: tuple[Path, Path], tmp_path: Path
) -> None:
    python = installed(tmp_path, *wheels)
    engine = "from sensorium.testing import ScriptedLocalEngine as Engine"
    script = f"{engine}\nwith Engine('Paris.') as engine: print(engine.chat('?').text)"
    done = run(python, "-P", "-c", script)
    assert done.stdout == "Paris.\n", done.stderr
    with serving("--port", "0", command=(str(python), "-P", "-m", "sensorium")) as (_, url):
        assert httpx.get(f"{url}/health", timeout=60).status_code == 200
        models = {model["id"] for model in httpx.get(f"{url}/v1/models", timeout=60).json()["data"]}
    assert models == {"tiny-qwen3-vl", "tiny-qwen3-asr"}
