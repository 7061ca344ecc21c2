"""Which parts of a recording are listened to: what a form says of voice activity.

faster-whisper's `vad_filter` with `vad_parameters`, and OpenAI's `chunking_strategy` of type server_vad. Read
next: `media/transcript/silence_removal.py`, which leaves out the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from ..errors import wrong
from .transcript import SpeechFilter

MAX_MS: Final = 30_000

_Milliseconds = Annotated[float, Meta(ge=0, le=MAX_MS)]
"""Whole ones in the end; 300.0 is as good as 300."""
_Threshold = Annotated[float, Meta(gt=0, lt=1)]
_Given = TypeVar("_Given", bound=Struct)


class VadParameters(Struct, frozen=True, forbid_unknown_fields=True):
    """`vad_parameters`, with faster-whisper's names and defaults."""

    threshold: _Threshold = 0.5
    min_speech_duration_ms: _Milliseconds = 0
    min_silence_duration_ms: _Milliseconds = 2000
    speech_pad_ms: _Milliseconds = 400


class ChunkingStrategy(Struct, frozen=True, forbid_unknown_fields=True):
    """`chunking_strategy`, with OpenAI's names and defaults."""

    type: Literal["server_vad"]
    threshold: _Threshold | None = None
    prefix_padding_ms: _Milliseconds | None = None
    silence_duration_ms: _Milliseconds | None = None


def parse_speech_filter(*, is_filtered: bool, fields: Mapping[str, str]) -> SpeechFilter | None:
    """What the form's `vad_parameters` and `chunking_strategy` say; None: all is listened to.

    `is_filtered` is its `vad_filter`. Raises BadRequestError naming the field.
    """
    parameters = _read(fields, "vad_parameters", VadParameters)
    strategy = _read(fields, "chunking_strategy", ChunkingStrategy)
    if parameters is not None and not is_filtered:
        raise wrong("vad_parameters", "needs `vad_filter` true")
    if strategy is not None and is_filtered:
        raise wrong("chunking_strategy", "`server_vad` and `vad_filter` exclude each other")
    if is_filtered:
        options = parameters or VadParameters()
        return SpeechFilter(
            threshold=options.threshold,
            min_speech_ms=round(options.min_speech_duration_ms),
            min_silence_ms=round(options.min_silence_duration_ms),
            padding_ms=round(options.speech_pad_ms),
        )
    if strategy is None:
        return None
    padding, silence = strategy.prefix_padding_ms, strategy.silence_duration_ms
    return SpeechFilter(
        threshold=0.5 if strategy.threshold is None else strategy.threshold,
        min_silence_ms=200 if silence is None else round(silence),
        padding_ms=300 if padding is None else round(padding),
    )


def _read(fields: Mapping[str, str], param: str, kind: type[_Given]) -> _Given | None:
    """A JSON object, or the same object as `param[field]` fields; nothing, or "auto", is None."""
    nested = {
        name[len(param) + 1 : -1]: text for name, text in fields.items() if name.startswith(f"{param}[")
    }
    text = fields.get(param, "")
    if nested and text.strip():
        raise wrong(param, f"is given twice: as an object and as `{param}[…]`")
    try:
        if nested:
            return msgspec.convert(nested, kind, strict=False)
        is_auto = text.strip() == "auto" and kind is ChunkingStrategy
        return None if is_auto or not text.strip() else msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        names = ", ".join(kind.__struct_fields__)
        raise wrong(
            param,
            f"must be an object of {names}: a threshold between 0 and 1, "
            f"milliseconds from 0 to {MAX_MS}"
            + (", the type server_vad; or auto" if "type" in names else ""),
        ) from None
