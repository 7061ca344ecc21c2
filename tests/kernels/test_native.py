"""Building the C kernels: where, once, at once, and not at all."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from sensorium.kernels import native
from sensorium.kernels.rms_norm import rms_norm
from support.server import wait_until

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
    """The library, compiled where all tests find theirs."""
    return native.build(native.user_cache() or tmp_path_factory.mktemp("built"))


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


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """An empty folder to build in."""
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder


@dataclass(frozen=True, slots=True)
class HeldCompiler:
    """`cc`, which does not come to an end before this context does."""

    folder: Path

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        (self.folder / "go").touch()

    def wait_until_called(self) -> None:
        """Somebody compiles."""
        wait_until(lambda: self.num_calls() > 0, timeout_s=120.0)

    def num_calls(self) -> int:
        """How many libraries it was to link."""
        return len(list(self.folder.glob("call-*")))


@pytest.fixture
def held_compiler(quick_compiler: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HeldCompiler:
    """In the place of `cc`."""
    folder = tmp_path / "held"
    folder.mkdir()
    compiler = folder / "cc"
    compiler.write_text(
        f"""#!/bin/sh
case " $* " in
*" -shared "*) : > {folder}/call-$$; while [ ! -e {folder}/go ]; do sleep 0.05; done ;;
esac
exec {shutil.which("cc")} "$@"
"""
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return HeldCompiler(folder)


@needs_compiler
def test_this_machine_has_them() -> None:
    """Otherwise the other tests would compare references with themselves."""
    assert native.native_for(torch.zeros(1)) is not None
    assert native.native_for(torch.zeros(1, dtype=torch.float64)) is None


@needs_compiler
@pytest.mark.usefixtures("quick_compiler")
def test_is_built_once(cache: Path) -> None:
    library = native.build(cache)
    assert list(cache.iterdir()) == [library]
    assert native.build(cache, compiler="/nonexistent/cc") == library
    native.Native(library)


@needs_compiler
def test_one_compiles_and_the_others_wait(
    cache: Path, held_compiler: HeldCompiler, caplog: pytest.LogCaptureFixture
) -> None:
    """Threads here, which the lock keeps apart as it does processes."""
    with caplog.at_level(logging.INFO), ThreadPoolExecutor(3) as threads, held_compiler:
        built = [threads.submit(native.build, cache) for _ in range(3)]
        held_compiler.wait_until_called()
        wait_until(lambda: caplog.text.count("waiting for another") == 2, timeout_s=60.0)
    assert len({each.result() for each in built}) == 1
    assert caplog.text.count("compiling") == held_compiler.num_calls() == 1
    assert list(cache.iterdir()) == [built[0].result()]


@needs_compiler
def test_a_process_that_was_killed_keeps_nobody_waiting(
    cache: Path, held_compiler: HeldCompiler, caplog: pytest.LogCaptureFixture
) -> None:
    code = "import sys, pathlib; from sensorium.kernels.native import build; build(pathlib.Path(sys.argv[1]))"
    process = subprocess.Popen([sys.executable, "-c", code, str(cache)])
    with caplog.at_level(logging.INFO), ThreadPoolExecutor() as threads, held_compiler:
        held_compiler.wait_until_called()
        built = threads.submit(native.build, cache)
        wait_until(lambda: "waiting for another" in caplog.text, timeout_s=60.0)
        process.kill()  # what it has started lives on
        process.wait()
        wait_until(lambda: "compiling" in caplog.text, timeout_s=60.0)
    native.Native(built.result())
    assert list(cache.iterdir()) == [built.result()], "nor does what it had begun stay"


@needs_compiler
@pytest.mark.usefixtures("quick_compiler")
@pytest.mark.parametrize("damage", ["emptied", "half", "a bit"])
def test_what_is_damaged_is_built_again(cache: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    """Half a library ends the process that loads it, a bit changes what it computes."""
    built = native.build(cache)
    whole = built.read_bytes()
    half = len(whole) // 2
    changed = whole[:half] + bytes([whole[half] ^ 1]) + whole[half + 1 :]
    built.write_bytes({"emptied": b"", "half": whole[:half], "a bit": changed}[damage])
    assert native.build(cache) == built
    assert built.read_bytes() == whole
    assert "damaged" in caplog.text
    native.Native(built)


@needs_compiler
@pytest.mark.usefixtures("quick_compiler")
def test_who_is_stuck_keeps_others_waiting_for_so_long(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "MAX_WAIT_S", 0.2)
    handle = os.open(cache, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    assert native.build(cache).exists()
    os.close(handle)


@needs_compiler
@pytest.mark.usefixtures("quick_compiler")
def test_a_file_system_without_locks(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    assert native.build(cache).exists()


def test_a_compiler_that_fails_leaves_nothing(cache: Path, tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    compiler.chmod(0o755)
    with pytest.raises(RuntimeError, match="broken"):
        native.build(cache, compiler=str(compiler))
    assert not list(cache.iterdir())


@needs_compiler
def test_a_compiler_that_fails_says_why_and_not_what_it_warns_of(cache: Path, tmp_path: Path) -> None:
    warning = '#warning "harmless"\n' * 20
    (tmp_path / "cause.h").write_text(f'{warning}#error "the cause"\n{warning}')
    compiler = tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\nexec {shutil.which("cc")} -include {tmp_path}/cause.h "$@"\n')
    compiler.chmod(0o755)
    with pytest.raises(RuntimeError, match="the cause") as failed:
        native.build(cache, compiler=str(compiler))
    assert "harmless" not in str(failed.value)


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
def test_a_home_that_cannot_be_written_builds_elsewhere_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home = tmp_path / "a file"
    home.write_text("")
    monkeypatch.setenv("HOME", str(home))
    with caplog.at_level(logging.WARNING):
        assert native.library() is not None
    assert "compiled at every start" in caplog.text


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
    """scikit-learn brings one, for example, which may be loaded before ours is looked for. Torch is found by
    a link here, as where a link names the environment that counts."""
    other = tmp_path / "libgomp-other.so"
    subprocess.run(["cc", "-shared", "-x", "c", "/dev/null", "-o", str(other)], check=True)
    packages = tmp_path / "packages"
    packages.symlink_to(Path(torch.__file__).parents[1])
    code = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
sys.path.insert(0, sys.argv[2])
from sensorium.kernels.native import _openmp_runtime
assert "torch" in str(_openmp_runtime()), _openmp_runtime()
assert sys.argv[1] in open("/proc/self/maps").read()
"""
    command = [sys.executable, "-c", code, str(other), str(packages)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
