"""The C kernels of `cpu/`, compiled once per machine when first wanted, or None where that is not possible.

The system compiler builds them for the very processor they run on (AVX-512 and its bfloat16 products where
there are any) into the user's cache folder, under a name made of sources, flags and processor, which the
finished file is renamed to. Of processes that want it at once the first builds and the others wait. They use
the OpenMP runtime torch has loaded, so there is one pool of threads, and they release the interpreter while
they run. Without a compiler every kernel takes its torch way, and the log says so once. The C sources are
read next: `cpu/tile.h` first.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

SOURCES = Path(__file__).parent / "cpu"
CODES = {torch.float32: 0, torch.bfloat16: 1}
"""How the C side calls the two types it knows."""
COMPILE_TIMEOUT_S = 600.0
MAX_WAIT_S = 300.0
"""For another process that compiles: several times what that takes on a busy machine. Then it is stuck."""
_POLL_S = 0.05
_DIGEST_BYTES = hashlib.sha256().digest_size
_UNFINISHED = "unfinished-"
"""How folders begin in which somebody compiles."""
_FLAGS = ("-O3", "-march=native", "-ffp-contract=off", "-fno-math-errno", "-fopenmp", "-fPIC")

_INT, _LONG, _FLOAT, _POINTER = ctypes.c_int, ctypes.c_long, ctypes.c_float, ctypes.c_void_p
_SIGNATURES: dict[str, tuple[object, ...]] = {
    "linear": (
        *(_INT, _INT, _POINTER, _LONG, *[_POINTER] * 4, *[_LONG] * 5),
        *(_INT, _INT, _POINTER, _FLOAT, _INT),
    ),
    "has_tiles": (),
    "linear_planes": (_INT, _INT, _POINTER, _LONG, *[_POINTER] * 3, *[_LONG] * 4, _INT),
    "activate": (_INT, _INT, _POINTER, _POINTER, _LONG, _INT),
    "linear_bits": (
        *(_INT, _INT, _POINTER, _LONG, *[_POINTER] * 4, *[_LONG] * 4),
        *(_INT, _POINTER, _FLOAT, _POINTER, _INT),
    ),
    "experts": (
        *(_INT, _POINTER, _POINTER, _LONG, _LONG, _POINTER, _POINTER, _LONG, _POINTER, _POINTER, _INT),
    ),
    "silu_mul": (_INT, _POINTER, _LONG, _LONG, _POINTER, _LONG, _INT),
    "attention": (
        *(_INT, _INT, _POINTER, _LONG, _POINTER, _POINTER, _LONG, _POINTER, _POINTER),
        *([_LONG] * 7),
        *(_INT, _FLOAT, _POINTER, _LONG, _POINTER, _INT),
    ),
    "cross_attention": (
        *(_INT, _INT, _POINTER, _LONG, _POINTER, _POINTER, _POINTER, *[_LONG] * 3),
        *(_FLOAT, _POINTER, _INT),
    ),
    "attention_of_items": (
        *(_INT, _POINTER, _LONG, _POINTER, _LONG, _POINTER, _LONG, *[_LONG] * 5),
        *(_FLOAT, _POINTER, _INT),
    ),
    "rms_norm": (_INT, _POINTER, *[_LONG] * 4, _POINTER, _FLOAT, _POINTER, _LONG, _INT),
    "layer_norm": (_INT, _POINTER, _LONG, _LONG, _POINTER, _FLOAT, _POINTER, _LONG, _INT),
    "rotary": (_INT, _POINTER, *[_LONG] * 4, *[_POINTER] * 3, _LONG, _INT),
    "write_kv": (_POINTER, _LONG, _POINTER, _POINTER, _LONG, _POINTER, *[_LONG] * 5),
    "write_codes": (
        *(_INT, _POINTER, _LONG, _POINTER, _POINTER, _LONG, _POINTER, *[_LONG] * 5),
        _INT,
    ),
    "attention_inputs": (
        *(_INT, _INT, _POINTER, *[_LONG] * 5, _POINTER, _POINTER, _FLOAT),
        *(*[_POINTER] * 3, _LONG, _LONG, _POINTER, _POINTER, _INT),
    ),
    "layers": (_POINTER, _POINTER, _FLOAT, _FLOAT, _FLOAT, _POINTER),
    "short_convolution": (
        *(_POINTER, _LONG, _POINTER, _LONG, _LONG, _POINTER, _POINTER, _LONG, _POINTER, _POINTER),
        *(_LONG, _LONG, _INT, _POINTER, _INT),
    ),
    "gated_delta_rule": (
        *(_POINTER, _LONG, _POINTER, _POINTER, _LONG, _POINTER, _POINTER, _FLOAT, _POINTER, _LONG),
        *(_POINTER, _FLOAT, _POINTER, _LONG, _LONG, _POINTER, _POINTER, *[_LONG] * 5, _POINTER, _INT),
    ),
    "exact_logits": (_INT, _INT, *[_POINTER] * 3, *[_LONG] * 4, _POINTER, _INT),
    "best": (_INT, _POINTER, _LONG, _LONG, *[_POINTER] * 3, _INT),
}


class Native:
    """The kernels as callables; arguments are as in C, see `cpu/`. Pointers are `Tensor.data_ptr()`."""

    def __init__(self, path: Path) -> None:
        library = ctypes.CDLL(str(path))
        self.linear = _function(library, "linear", None)
        self.has_tiles = _function(library, "has_tiles", _INT)
        self.linear_planes = _function(library, "linear_planes", None)
        self.activate = _function(library, "activate", None)
        self.linear_bits = _function(library, "linear_bits", None)
        self.attention = _function(library, "attention", None)
        self.cross_attention = _function(library, "cross_attention", None)
        self.attention_of_items = _function(library, "attention_of_items", None)
        self.experts = _function(library, "experts", None)
        self.silu_mul = _function(library, "silu_mul", None)
        self.rms_norm = _function(library, "rms_norm", None)
        self.layer_norm = _function(library, "layer_norm", None)
        self.rotary = _function(library, "rotary", None)
        self.write_kv = _function(library, "write_kv", _LONG)
        self.write_codes = _function(library, "write_codes", _LONG)
        self.attention_inputs = _function(library, "attention_inputs", _LONG)
        self.layers = _function(library, "layers", _LONG)
        self.short_convolution = _function(library, "short_convolution", _LONG)
        self.gated_delta_rule = _function(library, "gated_delta_rule", _LONG)
        self.exact_logits = _function(library, "exact_logits", None)
        self.best = _function(library, "best", None)


def _function(library: ctypes.CDLL, name: str, result: object) -> Callable[..., int]:
    function = getattr(library, f"sensorium_{name}")
    function.argtypes, function.restype = _SIGNATURES[name], result
    return function  # type: ignore[no-any-return]


def native_for(x: Tensor) -> Native | None:
    """The kernels, if they exist and know this tensor's device and type."""
    return library() if x.is_cpu and x.dtype in CODES else None


@functools.cache
def library() -> Native | None:
    """Build or find the kernels; None, and one line in the log, where there is no way."""
    try:
        return _open(user_cache())
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        logger.warning("C kernels are not available, torch's are used instead: %s", error)
        return None


def _open(cache: Path | None) -> Native:
    if cache is not None:
        return Native(build(cache))
    logger.warning(
        "~/.cache/sensorium cannot be written by this user alone: C kernels are compiled at every start"
    )
    with tempfile.TemporaryDirectory() as folder:  # the mapping outlives the file
        return Native(build(Path(folder)))


def build(cache: Path, compiler: str | None = None) -> Path:
    """Path of the built library in `cache`, compiled with `compiler` (`cc`) if it is not there yet.

    One that is damaged is compiled again: it would end the process, or compute anything. Waits up to
    `MAX_WAIT_S` for others who build in `cache`. Raises RuntimeError or OSError with the reason if it cannot
    be built.
    """
    runtime = _openmp_runtime()
    wide = ("-mprefer-vector-width=512",) if platform.machine() == "x86_64" else ()
    flags = (*_FLAGS, *wide)
    sources = sorted(SOURCES.iterdir())
    identity = hashlib.sha256(repr((flags, str(runtime), _processor())).encode())
    for source in sources:
        identity.update(source.name.encode() + source.read_bytes())
    target = cache / f"kernels-{identity.hexdigest()[:32]}.so"
    if _is_whole(target):
        return target
    if target.exists():
        logger.warning("the compiled C kernels are damaged: %s", target)
    compiler = compiler or shutil.which("cc")
    if compiler is None:
        raise RuntimeError("there is no C compiler (cc)")
    with _alone(cache) as is_alone:
        for left in cache.glob(f"{_UNFINISHED}*") if is_alone else ():  # by who was killed
            shutil.rmtree(left, ignore_errors=True)
        if not _is_whole(target):
            _compile(compiler, [*flags], sources, runtime, target)
    return target


def _compile(compiler: str, flags: list[str], sources: list[Path], runtime: Path, target: Path) -> None:
    logger.info("compiling the C kernels for this processor: some seconds")
    with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=target.parent) as folder:
        code = [str(source) for source in sources if source.suffix == ".c"]
        with ThreadPoolExecutor(os.cpu_count()) as compilers:
            done = [compilers.submit(_run, [compiler, "-w", *flags, "-c", each], folder) for each in code]
            for each in done:
                each.result()
        objects = [str(path) for path in sorted(Path(folder).glob("*.o"))]
        _run([compiler, "-shared", *objects, str(runtime), "-lm", "-o", "kernels.so"], folder)
        with (Path(folder) / "kernels.so").open("r+b") as made:
            made.write(hashlib.sha256(made.read()).digest())  # behind the end, where a loader does not look
            made.flush()
            os.fsync(made.fileno())  # or a power failure may leave the name without the content, for good
        os.replace(made.name, target)


def _is_whole(library: Path) -> bool:
    """Whether it is there as it was compiled: its digest follows it."""
    try:
        content = library.read_bytes()
    except FileNotFoundError:
        return False
    return hashlib.sha256(content[:-_DIGEST_BYTES]).digest() == content[-_DIGEST_BYTES:]


@contextmanager
def _alone(cache: Path) -> Iterator[bool]:
    """Wait for others who build in `cache`, at most `MAX_WAIT_S`, and have others wait for us. Gives whether
    they do.

    The lock ends with the process that holds it, however that ends. Where the folder's file system has no
    locks, and after that time, they build side by side: whoever is last renames the same file into place.
    """
    handle, is_alone = os.open(cache, os.O_RDONLY), False
    try:
        for poll in range(int(MAX_WAIT_S / _POLL_S)):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if not poll:
                    logger.info("waiting for another process that compiles the C kernels")
                threading.Event().wait(_POLL_S)
            except OSError:
                break
            else:
                is_alone = True
                break
        yield is_alone
    finally:
        os.close(handle)


def _run(command: list[str], folder: str) -> None:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False
    )
    if done.returncode:
        # Without warnings (-w) the first lines are the cause.
        raise RuntimeError(f"{command[0]} failed: {done.stderr.strip()[:500]}")


def _openmp_runtime() -> Path:
    """The GNU OpenMP runtime that torch brought: another one would double the threads."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    loaded = {Path(line.split(maxsplit=5)[-1]) for line in maps if "libgomp" in line}
    packages = Path(torch.__file__).resolve().parents[1]  # as the kernel names what is loaded
    own = {each for each in loaded if each.is_relative_to(packages / "torch")}
    own |= {each for each in loaded if each.is_relative_to(packages / "torch.libs")}
    found = own or loaded
    if len(found) != 1:
        raise RuntimeError(f"torch is expected to have loaded one libgomp, not {sorted(map(str, found))}")
    return found.pop()


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    wanted = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def user_cache() -> Path | None:
    """The user's own cache folder, None if there is none nobody else may write to."""
    try:
        folder = Path.home() / ".cache" / "sensorium"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
    except (OSError, RuntimeError):
        return None
    private = state.st_uid == os.getuid() and not state.st_mode & 0o022
    return folder if private and os.access(folder, os.W_OK) else None
