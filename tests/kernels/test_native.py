"""Building the C kernels: where, once, at once, and not at all."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from sensorium.kernels import native
from sensorium.kernels.rms_norm import rms_norm

needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None, reason="there is no C compiler: install one, and this runs"
)


@pytest.fixture
def unbuilt() -> Iterator[None]:
    """`library` looks again, and again afterwards."""
    native.library.cache_clear()
    yield
    native.library.cache_clear()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library, compiled."""
    return native.build(tmp_path_factory.mktemp("built"))


@pytest.fixture
def quick_compiler(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cc` gives what it gave before: where it matters when and where it is built, not what."""
    folder = tmp_path / "bin"
    folder.mkdir()
    compiler = folder / "cc"
    compiler.write_text(
        f"""#!/bin/sh
case " $* " in
*" -shared "*) cp {built} kernels.so ;;
*) for each; do case "$each" in *.c) : > "$(basename "$each" .c).o" ;; esac; done ;;
esac
"""
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@needs_compiler
def test_this_machine_has_them() -> None:
    """Otherwise the other tests would compare references with themselves."""
    assert native.native_for(torch.zeros(1)) is not None
    assert native.native_for(torch.zeros(1, dtype=torch.float64)) is None


@needs_compiler
def test_is_built_once(built: Path) -> None:
    assert list(built.parent.iterdir()) == [built]
    assert native.build(built.parent, compiler="/nonexistent/cc") == built
    native.Native(built)


@needs_compiler
@pytest.mark.usefixtures("quick_compiler")
def test_processes_build_at_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    code = "import sys, pathlib; from sensorium.kernels.native import build; build(pathlib.Path(sys.argv[1]))"
    processes = [subprocess.Popen([sys.executable, "-c", code, str(cache)]) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    library = native.build(cache, compiler="/nonexistent/cc")
    assert list(cache.iterdir()) == [library]
    native.Native(library)


def test_a_compiler_that_fails_leaves_nothing(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    compiler.chmod(0o755)
    cache = tmp_path / "cache"
    cache.mkdir()
    with pytest.raises(RuntimeError, match="broken"):
        native.build(cache, compiler=str(compiler))
    assert not list(cache.iterdir())


@pytest.mark.usefixtures("unbuilt")
def test_without_a_compiler_the_log_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    x, weight = torch.randn(2, 16), torch.ones(16)
    with caplog.at_level(logging.WARNING):
        first, second = rms_norm(x, weight, 1e-6), rms_norm(x, weight, 1e-6)
    assert torch.equal(first, second)
    assert [record.name for record in caplog.records] == ["sensorium.kernels.native"]
    assert "no C compiler" in caplog.text


@needs_compiler
@pytest.mark.usefixtures("unbuilt", "quick_compiler")
def test_a_home_that_cannot_be_written_builds_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "a file"
    home.write_text("")
    monkeypatch.setenv("HOME", str(home))
    assert native.library() is not None


def test_a_cache_others_may_write_to_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".cache" / "sensorium"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert native.user_cache() is None
    folder.chmod(0o700)
    assert native.user_cache() == folder


@needs_compiler
def test_another_openmp_runtime_is_left_to_whom_it_belongs(tmp_path: Path) -> None:
    """scikit-learn brings one, for example, which may be loaded before ours is looked for."""
    other = tmp_path / "libgomp-other.so"
    subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", str(other)], check=True)
    code = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
from sensorium.kernels.native import _openmp_runtime
assert "torch" in str(_openmp_runtime()), _openmp_runtime()
assert sys.argv[1] in open("/proc/self/maps").read()
"""
    done = subprocess.run([sys.executable, "-c", code, str(other)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
