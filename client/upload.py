"""The file that a transcription is of, as the part of a form: a path, bytes, a file object, or samples.

Knows no requests. Samples become a WAV file. Read next: `client/requests.py`.
"""

from __future__ import annotations

import importlib
import io
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias, TypeGuard, cast

from ..protocols.shared.audio_format import INTERNAL_RATE
from .errors import AudioError
from .pictures import PixelArray as NumpyArray

AudioFile: TypeAlias = (
    str | os.PathLike[str] | bytes | bytearray | memoryview | BinaryIO | NumpyArray | tuple[NumpyArray, int]
)
"""A path, an address that the server fetches, the bytes of a file in any format, a binary file object; or
samples and their rate: floats of full scale 1, int16 or int32, [n] or [n, channels]. An array alone is at 16
kHz, as speech models take it."""
Part: TypeAlias = tuple[str | None, str | bytes | BinaryIO]
_ADDRESSES: Final = ("http://", "https://", "data:")

_PCM: Final = 1
_FLOAT: Final = 3
_MAX_CHANNELS: Final = 255
_MAX_RATE: Final = 2**20
_MAX_PEAK: Final = 100.0
"""Whose samples go beyond has not divided those of a file; clipped recordings go up to some ten."""


def checked(file: AudioFile, *, takes_samples: bool = True) -> AudioFile:
    """`file`, if it is one. Raises TypeError."""
    if isinstance(file, io.TextIOBase):
        raise TypeError('file is opened as text: open it with "rb"')
    if is_file(file) or (takes_samples and _is_sound(file)):
        return file
    more = ", or (samples, rate)" if takes_samples else ""
    raise TypeError(f"file is {type(file).__name__}: expected a path, bytes, a binary file object{more}")


def is_file(file: object) -> bool:
    """A path or an address, the bytes of a file, or a file object."""
    is_named = isinstance(file, str | os.PathLike | bytes | bytearray | memoryview)
    return is_named or hasattr(file, "read")


def can_open_again(file: AudioFile) -> bool:
    """Whether a request may be sent again: a file object or a pipe has been read by then."""
    if isinstance(file, str | os.PathLike):
        return is_address(file) or Path(file).is_file()
    return not hasattr(file, "read")


@contextmanager
def open_part(file: AudioFile | None) -> Iterator[dict[str, Part] | None]:
    """The file part of a form, open for the duration of the request; files are read piece by piece, pipes,
    whose length nobody knows before, at once.

    Raises OSError for a path that cannot be read, AudioError for samples that are none.
    """
    if file is None:
        yield None
    elif is_address(file):
        yield {"url": (None, file)}
    elif isinstance(file, bytes | bytearray | memoryview):
        yield {"file": ("audio", bytes(file))}
    elif isinstance(file, str | os.PathLike):
        with Path(file).open("rb") as opened:
            yield {"file": (readable(Path(file).name), _whole(opened))}
    elif _is_sound(file):
        samples, rate = file if isinstance(file, tuple) else (file, INTERNAL_RATE)
        yield {"file": ("audio.wav", wav_file(samples, rate))}
    else:
        name = getattr(file, "name", None)
        whole = _whole(cast(BinaryIO, file))
        yield {"file": (readable(Path(name).name) if isinstance(name, str) else "audio", whole)}


def whole_file(file: AudioFile) -> bytes:
    """All of a file that is no address. Raises as `open_part`."""
    with open_part(file) as part:
        assert part is not None, "of a file"
        _, content = part["file"]
        return content if isinstance(content, bytes) else cast(BinaryIO, content).read()


def wav_file(samples: Any, rate: int) -> bytes:  # noqa: ANN401 (whatever NumPy makes an array of)
    """Samples [n] or [n, channels] as a WAV file, none of them changed but floats to 32 bits.

    Raises AudioError for what are none.
    """
    numpy = importlib.import_module("numpy")
    array, rate = numpy.asarray(samples), int(rate)
    num_channels = 1 if array.ndim == 1 else array.shape[-1] if array.ndim == 2 else 0
    if not array.size or not 0 < num_channels <= _MAX_CHANNELS or not 0 < rate < _MAX_RATE:
        raise AudioError(f"the samples are {list(array.shape)} at {rate} Hz: expected [n] or [n, channels]")
    if array.dtype.kind == "f":
        array = array.astype("<f4")
    elif array.dtype.newbyteorder("<") in ("<i2", "<i4"):
        array = array.astype(array.dtype.newbyteorder("<"))
    else:
        raise AudioError(f"the samples are {array.dtype}: expected floats, int16 or int32")
    if array.dtype.kind == "f" and not numpy.isfinite(array).all():
        raise AudioError("samples are NaN or infinite: set them to 0 first, as by numpy.nan_to_num")
    if array.dtype.kind == "f" and not (peak := float(abs(array).max())) <= _MAX_PEAK:
        raise AudioError(f"samples go up to {peak:g}, and full scale is 1: divide them, or give int16")
    data: bytes = array.tobytes()
    width = array.itemsize
    kind = _FLOAT if array.dtype.kind == "f" else _PCM
    frame = width * num_channels
    form = struct.pack("<HHIIHH", kind, num_channels, rate, rate * frame, frame, 8 * width)
    chunks = b"fmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<I", len(data))
    return b"RIFF" + struct.pack("<I", 4 + len(chunks) + len(data)) + b"WAVE" + chunks + data


def is_address(file: object) -> TypeGuard[str]:
    """Whether the server fetches it, if it may: no path."""
    return isinstance(file, str) and file.startswith(_ADDRESSES)


def _is_sound(file: object) -> bool:
    if isinstance(file, tuple):
        return len(file) == 2 and isinstance(file[1], Integral)
    return hasattr(file, "__array__") or isinstance(file, NumpyArray)


def readable(path: str | os.PathLike[str]) -> str:
    """A path as a text; one of a file system that is not in UTF-8 is none by itself."""
    return os.fsencode(path).decode(errors="replace")


def _whole(opened: BinaryIO) -> bytes | BinaryIO:
    is_seekable = getattr(opened, "seekable", None)
    if is_seekable is None or not is_seekable():
        return opened.read()
    return cast(BinaryIO, _AsFarAsItWent(opened))


class _AsFarAsItWent(io.RawIOBase):
    """A file as long as it was when the request began: its length is told first, and a recording may grow."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        file.seek(0)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """See `io.IOBase`."""
        return self._file.seek(self._size if whence == os.SEEK_END else offset)

    def tell(self) -> int:
        """See `io.IOBase`."""
        return self._file.tell()

    def read(self, size: int = -1, /) -> bytes:
        """See `io.RawIOBase`. Raises OSError where the file has become shorter."""
        left = self._size - self._file.tell()
        data = self._file.read(left if size < 0 else min(size, left))
        if left and size and not data:
            raise OSError("the file became shorter while it was read")
        return data
