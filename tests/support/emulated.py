"""The C kernels built for another processor and called in an emulator, behind the callables of `Native`.

A program of its own, made from the kernels' signatures, reads a call and the memory its pointers point into,
makes it, and gives the memory back. Which memory a pointer belongs to is known because tensors are watched
while they tell where they lie.
"""

from __future__ import annotations

import ctypes
import hashlib
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import torch
from sensorium.kernels import native
from torch import Tensor

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64-static"
PACKAGES = "apt-get install gcc-aarch64-linux-gnu qemu-user-static"
BUILT = Path(__file__).parents[2] / "build" / "aarch64"
"""Left there: building takes longer than all calls."""
_FLAGS = ("-Og", "-ffp-contract=off", "-fno-math-errno", "-fopenmp", "-static", "-w")
_C_TYPES = {ctypes.c_int: "int", ctypes.c_long: "long", ctypes.c_float: "float", ctypes.c_void_p: "void *"}
_GIVE_NUMBERS = (
    "write_kv",
    "write_codes",
    "attention_inputs",
    "layers",
    "short_convolution",
    "gated_delta_rule",
)
_BUFFER, _VALUE, _REAL = 0, 1, 2

_PROGRAM = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
PROTOTYPES
static int64_t (*args)[3];
static char **memory;
static void *pointer(int i) { return args[i][1] < 0 ? 0 : memory[args[i][1]] + args[i][2]; }
static double real(int i) { double x; memcpy(&x, &args[i][1], 8); return x; }
static int64_t number(FILE *file) { int64_t x = 0; if (fread(&x, 8, 1, file) != 1) exit(2); return x; }
int main(int count, char **names) {
    FILE *file = fopen(names[1], "rb");
    int64_t function = number(file), given = number(file), buffers, result = 0;
    args = calloc(given, sizeof *args);
    for (int64_t i = 0; i < 3 * given; i++) args[i / 3][i % 3] = number(file);
    buffers = number(file);
    memory = calloc(buffers, sizeof *memory);
    int64_t *sizes = calloc(buffers, 8);
    for (int64_t i = 0; i < buffers; i++) {
        sizes[i] = number(file);
        memory[i] = aligned_alloc(64, (sizes[i] + 127) / 64 * 64);
        if (fread(memory[i], 1, sizes[i], file) != (size_t)sizes[i]) return 2;
    }
    fclose(file);
    switch (function) {
CASES
    }
    file = fopen(names[2], "wb");
    fwrite(&result, 8, 1, file);
    for (int64_t i = 0; i < buffers; i++) fwrite(memory[i], 1, sizes[i], file);
    return fclose(file);
}
"""


def program() -> str:
    """Its source, with a case for each kernel."""
    prototypes, cases = [], []
    for index, (name, types) in enumerate(native._SIGNATURES.items()):
        kinds = [_C_TYPES[each] for each in types]  # type: ignore[index]
        gives = name in _GIVE_NUMBERS
        prototypes.append(f"{'long' if gives else 'void'} sensorium_{name}({', '.join(kinds)});")
        values = [
            f"pointer({i})" if kind == "void *" else f"real({i})" if kind == "float" else f"args[{i}][1]"
            for i, kind in enumerate(kinds)
        ]
        cases.append(
            f"    case {index}: {'result = ' if gives else ''}sensorium_{name}({', '.join(values)}); break;"
        )
    return _PROGRAM.replace("PROTOTYPES", "\n".join(prototypes)).replace("CASES", "\n".join(cases))


def built() -> Path:
    """The program, built if these sources were not yet; other processes wait for the one that does."""
    source = program()
    identity = hashlib.sha256(repr((COMPILER, _FLAGS, source)).encode())
    for each in sorted(native.SOURCES.iterdir()):
        identity.update(each.name.encode() + each.read_bytes())
    BUILT.mkdir(parents=True, exist_ok=True)
    target = BUILT / identity.hexdigest()[:32]
    with native._alone(BUILT), tempfile.TemporaryDirectory(dir=BUILT) as folder:
        if not target.exists():
            code = Path(folder) / "program.c"
            code.write_text(source)
            kernels = map(str, sorted(native.SOURCES.glob("*.c")))
            command = [COMPILER, *_FLAGS, str(code), *kernels, "-lm", "-o", f"{folder}/kernels"]
            subprocess.run(command, check=True)
            Path(folder, "kernels").rename(target)
    return target


class Emulated:
    """Has the attributes of `Native`."""

    def __init__(self, folder: Path) -> None:
        """Keeps calls in `folder`."""
        self._folder = folder
        self._program = built()
        self._seen: list[torch.UntypedStorage] = []
        self.num_calls = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name not in native._SIGNATURES:
            raise AttributeError(name)
        return partial(self._call, name)

    @contextmanager
    def instead(self) -> Iterator[None]:
        """The wrappers call it, and every tensor that tells where it lies is remembered."""
        original = Tensor.data_ptr

        def data_ptr(tensor: Tensor) -> int:
            self._seen.append(tensor.untyped_storage())
            return original(tensor)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "library", lambda: self)
            patch.setattr(Tensor, "data_ptr", data_ptr)
            yield
        self._seen.clear()

    def _find(self, address: int) -> torch.UntypedStorage:
        for storage in reversed(self._seen):
            if storage.data_ptr() <= address < storage.data_ptr() + max(1, storage.nbytes()):
                return storage
        raise AssertionError("a pointer that no tensor told")

    def _call(self, name: str, *arguments: float | None) -> int:
        self.num_calls += 1
        buffers: list[torch.UntypedStorage] = []
        call = struct.pack("<2q", list(native._SIGNATURES).index(name), len(arguments))
        for kind, value in zip(native._SIGNATURES[name], arguments, strict=True):
            if kind is ctypes.c_float:
                assert value is not None
                call += struct.pack("<qdq", _REAL, value, 0)
            elif kind is not ctypes.c_void_p:
                call += struct.pack("<3q", _VALUE, value, 0)
            elif value is None:
                call += struct.pack("<3q", _BUFFER, -1, 0)
            else:
                storage = self._find(int(value))
                addresses = [each.data_ptr() for each in buffers]
                if storage.data_ptr() not in addresses:
                    buffers.append(storage)
                    addresses.append(storage.data_ptr())
                index = addresses.index(storage.data_ptr())
                call += struct.pack("<3q", _BUFFER, index, int(value) - storage.data_ptr())
        call += struct.pack("<q", len(buffers))
        for each in buffers:
            call += struct.pack("<q", each.nbytes()) + ctypes.string_at(each.data_ptr(), each.nbytes())
        (self._folder / "call").write_bytes(call)
        command = [EMULATOR, str(self._program), str(self._folder / "call"), str(self._folder / "reply")]
        subprocess.run(command, check=True, timeout=60)
        reply = (self._folder / "reply").read_bytes()
        place = 8
        for each in buffers:
            ctypes.memmove(each.data_ptr(), reply[place : place + each.nbytes()], each.nbytes())
            place += each.nbytes()
        return int(struct.unpack("<q", reply[:8])[0])
