"""`sensorium kernels` and the options of an engine that say by which ways its operations run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sensorium.actors import kernel_choices
from sensorium.actors.config.server import EngineConfig
from sensorium.actors.kernel_choices import settle_kernels
from sensorium.engine.execution.runner import Runner
from sensorium.engine.models.registry import open_model
from sensorium.kernels import autotune as choice_module
from sensorium.kernels import native
from sensorium.kernels.autotune import choices
from sensorium.kernels.autotune_table import read_table, this_machine
from sensorium.kernels.linear import float32_tiles as linear_tiles
from sensorium.kernels.linear import onednn
from sensorium.protocols.errors import ModelLoadError
from support.choices import no_others
from support.command_line import Run, running
from support.text_folder import make_qwen3_folder

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random text model."""
    return make_qwen3_folder(tmp_path_factory.mktemp("models") / "qwen3")


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A cache of its own; how busy the machine is does not matter, nor how fast it is."""
    if native.library() is None:
        pytest.skip("there is no compiler here, and nothing to choose")
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setattr(native, "user_cache", lambda: cache)
    for bound in ("_UNSTEADY", "_CONTENDED"):
        monkeypatch.setattr(choice_module, bound, float("inf"))
    monkeypatch.setattr(kernel_choices, "_READ_BYTES", 1 << 20)
    monkeypatch.setattr(kernel_choices, "_SIDE", 64)
    with no_others(monkeypatch):
        yield cache


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    with running(monkeypatch, capfd) as result:
        yield result


def load(folder: Path, dtype: str, **options: str) -> Runner:
    """What an engine does in its device's thread."""
    runner = Runner(open_model(folder, device="cpu", dtype=dtype).load(), num_blocks=2, num_threads=1)
    settle_kernels("random", runner, EngineConfig(**options))  # type: ignore[arg-type]
    return runner


def test_the_command_shows_measures_and_saves(folder: Path, run: Run, tmp_path: Path, cache: Path) -> None:
    table = tmp_path / "table.json"
    arguments = ("kernels", str(folder), "--dtype", "bfloat16", "--num-threads", "1")
    done = run(*arguments, "--save", str(table))
    assert done.returncode == 0, done.stderr
    assert "GB/s" in done.stdout.splitlines()[0]
    blocks = [line for line in done.stdout.splitlines() if line.startswith("linear bfloat16 ")]
    if not blocks:
        pytest.skip("our loop does not know the layout that oneDNN chooses here")
    assert all("threads 1" in block for block in blocks)
    assert done.stdout.count("of floor  runs") == len(blocks)
    saved = read_table(table, this_machine()).choices
    assert set(saved) == set(blocks)
    (kept,) = cache.glob("choices-*.json")
    assert read_table(kept, this_machine()).choices == saved
    done = run(*arguments, "--table", str(table))
    assert done.returncode == 0, done.stderr
    runner = load(folder, "bfloat16", kernels=str(table))
    assert {each.name: each.chosen for each in choices()} == {
        key.rpartition(", threads")[0]: tuple(entry.chosen.values()) for key, entry in saved.items()
    }
    runner.warm_up()


def test_an_engine_measures_once(folder: Path, cache: Path) -> None:
    runner = load(folder, "bfloat16")
    assert all(each.is_settled for each in choices())
    assert len(list(cache.iterdir())) == bool(choices())
    runner.warm_up()


def test_float32_and_the_default_measure_nothing(folder: Path, cache: Path) -> None:
    runners = [load(folder, "float32"), load(folder, "bfloat16", kernels="default")]
    assert not list(cache.iterdir())
    assert all(each.chosen == each.defaults for each in choices())
    assert not any(each.is_settled for each in choices())
    for runner in runners:
        runner.warm_up()


def test_a_pin_decides(folder: Path) -> None:
    _kept = load(folder, "bfloat16", kernels="default")
    if not choices():
        with pytest.raises(ModelLoadError, match="there is nothing to choose"):
            load(folder, "bfloat16", pin_kernels="linear=onednn")
        return
    del _kept
    runner = load(folder, "bfloat16", pin_kernels="linear=onednn")
    assert all(set(each.chosen) == {"onednn"} for each in choices())
    runner.warm_up()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--pin", "linear=fast"), "--pin-kernels: linear=fast pins no candidate; allowed: c, onednn"),
        (("--pin", "linear"), "--pin-kernels is 'linear'; allowed: as linear=onednn,attention=fused"),
        (("--table", "nowhere.json"), "--kernels: nowhere.json is not a table of kernels"),
    ],
)
def test_what_does_not_fit_is_a_line(folder: Path, run: Run, arguments: tuple[str, ...], line: str) -> None:
    _runner = load(folder, "bfloat16", kernels="default")
    if not choices():
        pytest.skip("there is nothing to choose here")
    done = run("kernels", str(folder), "--dtype", "bfloat16", *arguments)
    assert done.returncode == 1
    assert line in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_engine_names_the_option(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="random: --pin-kernels: sum=c pins no operation"):
        load(folder, "bfloat16", pin_kernels="sum=c")


def test_without_our_loop_there_is_one_way(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    for module in (onednn, linear_tiles):
        monkeypatch.setattr(module, "native_for", lambda _: None)
    done = run("kernels", str(folder), "--dtype", "bfloat16")
    assert done.returncode == 0, done.stderr
    assert "linear" not in done.stdout
    assert not list(cache.iterdir())
