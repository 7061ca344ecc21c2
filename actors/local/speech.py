"""What users of `LocalEngine.transcribe` write: a recording, and the options that a server's form has.

Options become such a form, so that names, limits and messages are the same. Knows no engine.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, BinaryIO, Final, Literal, cast, get_args

import msgspec
import numpy as np
import numpy.typing as npt
import trio

from ...media.audio.decode import MAX_CHANNELS, DecodeLimits, decode_audio
from ...media.transcript.range_answer import Samples
from ...protocols.errors import BadRequestError, wrong
from ...protocols.shared.audio_format import INTERNAL_RATE
from ...protocols.shared.foreign_options import meant
from ...protocols.shared.json_body import refuse
from ...protocols.transcription.form import TranscriptionRequest, parse_transcription_form
from ...protocols.transcription.form_defaults import is_done_anyway
from ...protocols.transcription.options import Granularity, RecordingOptions, ResponseFormat
from ...protocols.transcription.transcript import Task
from .options import file_bytes, full_scale, is_array, is_file, read_samples

Recording = str | os.PathLike[str] | bytes | BinaryIO | npt.NDArray[Any] | tuple[Any, int]
"""A file, its bytes, a binary file object, or (samples, rate): float [n] or [n, channels], full scale 1, or
int16 or int32. An array alone is at 16 kHz. Channels are mixed, but for `multichannel`."""

Document = Literal["text", "srt", "vtt", "tsv"]
"""Formats that are a text."""

_LIMITS: Final = DecodeLimits(max_bytes=2**40, max_seconds=7 * 24 * 3600.0)
"""Files one trusts."""


class TranscribeOptions(RecordingOptions, total=False):
    """The form fields of `/v1/audio/transcriptions` under their names; `task` says which route."""

    hotwords: str | None
    timestamp_granularities: Sequence[Granularity]


def read_request_options(
    options: Mapping[str, object], response_format: ResponseFormat = "verbose_json"
) -> TranscriptionRequest:
    """Options as a server reads them; segments where nothing is said of times. Raises BadRequestError."""
    known = TranscribeOptions.__annotations__
    task = options.get("task") or "transcribe"
    if task not in get_args(Task):
        raise refuse("task", task, " or ".join(get_args(Task)))
    fields = [("response_format", str(response_format))]
    for name, value in options.items():
        texts = _texts(value)
        if name not in known and not all(
            is_done_anyway(name, text, cast(Task, task)) for text in texts or [""]
        ):
            hint = meant(name, known) or f"; there are: {', '.join(known)}."
            raise wrong(name, f"is not an option{hint}")
        if name != "task":
            fields += [(name, text) for text in texts]
    return parse_transcription_form(fields, task=cast(Task, task))


async def read_recording(
    given: Recording, *, are_channels_kept: bool = False, track: int | None = None
) -> Samples:
    """The samples at 16 kHz: [n], or [channels, n] if they are kept; of a file's audio track, see
    `decode_audio`.

    Raises MediaError, BadRequestError (`audio`, `audio_track`), or OSError for a path.
    """
    if is_file(given):
        data = await trio.to_thread.run_sync(file_bytes, given)
        decode = partial(decode_audio, data, limits=_LIMITS, are_channels_kept=are_channels_kept, track=track)
        return (await trio.to_thread.run_sync(decode)).samples
    if track is not None:
        raise wrong("audio_track", "is for files; samples have no tracks")
    if are_channels_kept:
        return await trio.to_thread.run_sync(_channels, given)
    return await trio.to_thread.run_sync(partial(read_samples, given, "audio"))


def _channels(given: Any) -> Samples:  # noqa: ANN401 (a user's own type)
    """The samples [channels, n] of (samples, rate), which are [n, channels] as files have them, or [n]."""
    try:
        samples, rate = (given, INTERNAL_RATE) if is_array(given) else given
        frames = full_scale(np.asarray(samples))
        channels = frames[None] if frames.ndim == 1 else frames.T
        tracks = [(channel, rate) for channel in channels if channel.ndim == 1]
    except (TypeError, ValueError, IndexError):
        tracks = []
    if not 0 < len(tracks) <= MAX_CHANNELS:
        raise BadRequestError(
            f"`audio`: with `multichannel` allowed are a file, or (samples, rate): float or int16 [n, "
            f"channels] of up to {MAX_CHANNELS} channels",
            param="audio",
        )
    return np.stack([read_samples(track, "audio") for track in tracks])


def _texts(value: object) -> list[str]:
    """An option as the values of a form's field."""
    match value:
        case None:
            return []
        case bool():
            return [str(value).lower()]
        case Mapping():
            return [msgspec.json.encode(value).decode()]
        case Iterable() if not isinstance(value, str):
            return [str(each) for each in value]
    return [str(value)]
