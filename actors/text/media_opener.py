"""Who opens the files of a request: `MediaOpener`. A server's is the decoder pool
(`actors/media_decoding/worker_pool.py`), whose processes can be killed; `ThreadOpener` is for files one
trusts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from ...media.audio.decode import DecodedAudio, DecodeLimits, decode_audio, measure_audio
from ...protocols.engine.messages import MediaItems
from ..runtime.compute_pool import compute

_T = TypeVar("_T")


class MediaOpener(Protocol):
    """Measures and opens files. Raises MediaError, TooLargeError, OverloadedError or UnavailableError.

    How a picture is measured, opened or looked at is told as a function of the file's bytes, which may run in
    another process; `what` errors call the file.
    """

    def of(self, caller: str) -> MediaOpener:
        """What opens the files of one caller (`Lane.caller`)."""

    async def measure(self, data: bytes, measuring: Callable[[bytes], _T], what: str) -> _T:
        """What can be said of an image or a video without its features, as `measure_image` does."""

    async def prepare(self, data: bytes, prepare: Callable[[bytes], MediaItems], what: str) -> MediaItems:
        """The features of an image or a video, as `prepare_image` makes them."""

    async def measure_audio(self, data: bytes, *, limits: DecodeLimits) -> float:
        """Seconds an audio file will decode to, by its headers."""

    async def decode(self, data: bytes, *, limits: DecodeLimits) -> DecodedAudio:
        """An audio file's samples at 16 kHz."""


class ThreadOpener(MediaOpener):
    """Opens files in threads of this process: for files one trusts."""

    def of(self, caller: str) -> ThreadOpener:  # noqa: ARG002 (all are one's own)
        return self

    async def measure(self, data: bytes, measuring: Callable[[bytes], _T], what: str) -> _T:  # noqa: ARG002
        return await compute(measuring, data)

    async def prepare(
        self,
        data: bytes,
        prepare: Callable[[bytes], MediaItems],
        what: str,  # noqa: ARG002
    ) -> MediaItems:
        return await compute(prepare, data)

    async def measure_audio(self, data: bytes, *, limits: DecodeLimits) -> float:
        return await compute(partial(measure_audio, data, limits=limits))

    async def decode(self, data: bytes, *, limits: DecodeLimits) -> DecodedAudio:
        return await compute(partial(decode_audio, data, limits=limits))
