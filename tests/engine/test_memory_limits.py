"""What limits of a process leave, and refused memory as one line that states what was wanted."""

from __future__ import annotations

import errno
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import trio
from sensorium.actors.local.core import LoadedLocal, LocalCore
from sensorium.actors.runtime.nursery import first_error
from sensorium.engine.execution.faults import out_of_memory
from sensorium.engine.memory_limits import limited_bytes, naming_shortage, shortage
from sensorium.engine.models import memory
from sensorium.engine.models.memory import host_bytes
from sensorium.kernels.host_memory import lazy_zeros, recycled
from sensorium.protocols.errors import ModelLoadError

MIB = 1 << 20
CPU = torch.device("cpu")


def limits(monkeypatch: pytest.MonkeyPatch, **given: int) -> None:
    """Of the process, without setting them."""
    of = {getattr(resource, name): (limit, limit) for name, limit in given.items()}
    none = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: of.get(kind, none))


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({}, None),
        ({"RLIMIT_AS": 900 * MIB}, 400 * MIB),
        ({"RLIMIT_DATA": 300 * MIB}, 100 * MIB),
        ({"RLIMIT_AS": 900 * MIB, "RLIMIT_DATA": 300 * MIB}, 100 * MIB),
        ({"RLIMIT_AS": 100 * MIB}, 0),
    ],
)
def test_what_limits_leave(
    given: dict[str, int], left: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits(monkeypatch, **given)
    status = tmp_path / "status"
    status.write_text(f"VmPeak:\t 999999 kB\nVmSize:\t {500 * 1024} kB\nVmData:\t  {200 * 1024} kB\n")
    assert limited_bytes(status) == left


def test_sizes_are_shared_out_by_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "limited_bytes", lambda: 7 * MIB)
    assert host_bytes() == 7 * MIB


@pytest.mark.parametrize(
    ("error", "wanted"),
    [
        (MemoryError(), "some memory"),
        (MemoryError(f"cannot allocate memory: tried to allocate {3 * MIB} bytes"), "3.0 MiB"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "some memory"),
        (RuntimeError("can't start new thread"), "one more thread"),
        (
            RuntimeError(
                f"DefaultCPUAllocator: can't allocate memory: you tried to allocate {2 * MIB} bytes."
            ),
            "2.0 MiB",
        ),
        (ImportError("libtorch_cpu.so: failed to map segment from shared object"), "libtorch_cpu.so"),
        (OSError("cannot load library: libsndfile.so.1: failed to map segment"), "libsndfile.so.1"),
        (ImportError("Exception caught: std::bad_alloc"), "some memory"),
        (ExceptionGroup("", [ValueError("x"), ExceptionGroup("", [MemoryError()])]), "some memory"),
    ],
)
def test_refused_memory_is_one_line_that_states_what_was_wanted(
    error: Exception, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits(monkeypatch, RLIMIT_AS=900 * MIB)
    with pytest.raises(ModelLoadError) as raised, naming_shortage("m"):
        raise error
    message = str(raised.value)
    assert message.startswith(f"m: not enough memory: {wanted} was wanted") or f"loading {wanted}" in message
    assert "the limit of address space (ulimit -v) is 900.0 MiB" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "error",
    [ValueError("a size"), RuntimeError("shape"), OSError(errno.ENOENT, "no"), ImportError("no module")],
)
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    assert shortage(error) is None
    with pytest.raises(type(error)), naming_shortage("m"):
        raise error


def test_the_reason_of_a_model_that_does_not_load_is_kept() -> None:
    with pytest.raises(ModelLoadError, match=r"^why$"), naming_shortage("m"):
        raise ModelLoadError("why")


@pytest.mark.parametrize("make", [lazy_zeros, recycled])
def test_pages_that_are_refused_are_memory_errors_with_their_size(make: object) -> None:
    assert callable(make)
    with pytest.raises(MemoryError) as raised:
        make((1 << 60,), torch.uint8, CPU)
    assert out_of_memory(raised.value) == f"the device is out of memory (it was asked for {1 << 60} bytes)"


def test_a_process_under_a_limit_knows_what_is_left() -> None:
    code = (
        "import resource; from sensorium.engine.memory_limits import limited_bytes as left\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); before = left()\n"
        "import mmap; held = mmap.mmap(-1, 100 << 20); print(before - left() >= 100 << 20, before < 1 << 30)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True True\n"


@pytest.mark.parametrize("fails_at", ["load", "run"])
def test_so_does_a_local_engine(fails_at: str) -> None:
    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        raise MemoryError("cannot allocate memory: tried to allocate 1048576 bytes")

    def load() -> LoadedLocal:
        if fails_at == "load":
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return LoadedLocal(name="m", run=run, text=None, speech=None)

    async def start() -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(LocalCore(load, max_running=1).run)

    with pytest.raises(ExceptionGroup) as raised:
        trio.run(start)
    error = first_error(raised.value)
    assert isinstance(error, ModelLoadError)
    assert "not enough memory: " + ("some memory" if fails_at == "load" else "1.0 MiB") in str(error)
