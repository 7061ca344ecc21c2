"""What runs inside a decode process: its jobs. Imports no trio and no torch.

`actors/media_decoding/worker_pool.py` owns the processes; what they may do is `media/sandbox.py`.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np

from ..protocols.engine.messages import MediaItems
from ..protocols.errors import MediaError, OverloadedError, SensoriumError
from .audio.decode import DecodedAudio, DecodeLimits, decode_audio
from .sandbox import has_its_memory, within

_T = TypeVar("_T")


def on_file(job: Callable[[bytes], _T], path: str, cpu_s: float, real_s: float) -> _T:
    """Do `job` with the bytes of a file: in a message they would keep the sender's loop busy. It may take so
    much processor time, see `within`; if it takes longer than `real_s` the system ends this process by
    SIGALRM, unless somebody has stopped it."""
    data = Path(path).read_bytes()
    signal.setitimer(signal.ITIMER_REAL, real_s)
    try:
        return within(cpu_s, lambda: job(data))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def measure(measuring: Callable[[bytes], _T], param: str, data: bytes) -> _T | SensoriumError:
    """What a file will come to (`measure_image` and the like), from its headers."""
    return _outcome(lambda: measuring(data), param)


def decode_job(
    data: bytes, limits: DecodeLimits, *, are_channels_kept: bool = False, track: int | None = None
) -> DecodedAudio | SensoriumError:
    """Decode one file. Errors for the client are returned, not raised: plain values cross processes whole."""
    decode = partial(decode_audio, limits=limits, are_channels_kept=are_channels_kept, track=track)
    return _outcome(lambda: decode(data), "file")


def vision_to_file(
    data: bytes, prepare: Callable[[bytes], MediaItems], param: str, path: str
) -> MediaItems | SensoriumError:
    """Prepare one picture or clip (`prepare_image`, `prepare_video`); its items' features go to `path`, one
    after the other, and none are in the result."""
    outcome = _outcome(lambda: prepare(data), param)
    if isinstance(outcome, SensoriumError):
        return outcome
    with open(path, "wb") as file:
        for item in outcome.items:
            file.write(item.features.data)
    return outcome.lean()


def with_features(media: MediaItems, path: str) -> MediaItems:
    """Media as `vision_to_file` gives them, with their features read from the file."""
    filled = []
    with open(path, "rb", buffering=0) as file:
        for item in media.items:
            num_bytes = np.dtype(np.float32).itemsize * int(np.prod(item.features.shape))
            features = msgspec.structs.replace(item.features, data=file.read(num_bytes))
            assert len(features.data) == num_bytes, "the file holds exactly the items' features"
            filled.append(msgspec.structs.replace(item, features=features))
    return msgspec.structs.replace(media, items=tuple(filled))


def _outcome(job: Callable[[], _T], param: str) -> _T | SensoriumError:
    try:
        return job()
    except SensoriumError as error:
        return type(error)(error.message, code=error.code, param=error.param)
    except MemoryError:
        if not has_its_memory():
            return OverloadedError("The server has no memory left for the file now; try again.")
        return MediaError(f"The {param} needs too much memory to decode.", param=param)


def decode_to_file(
    data: bytes,
    limits: DecodeLimits,
    path: str,
    *,
    are_channels_kept: bool = False,
    track: int | None = None,
) -> DecodedAudio | SensoriumError:
    """`decode_job`, but the samples go to `path`, channel after channel, and none are in the result.

    Two hours are 460 MB: as a message they would keep the receiver's loop busy for a second.
    """
    outcome = decode_job(data, limits, are_channels_kept=are_channels_kept, track=track)
    if isinstance(outcome, SensoriumError):
        return outcome
    with open(path, "wb") as file:
        file.write(np.ascontiguousarray(outcome.samples).data)
    return replace(outcome, samples=outcome.samples[..., :0].copy())
