"""Fields of other servers' forms that may state what is done here in any case, and are then accepted.

The names and values are the defaults of faster-whisper, openai-whisper, whisperX, whisper.cpp's server, vLLM
and hosted services, whose clients send them unasked. Any other value is refused by name; the way to say it is
in `protocols/shared/foreign_options.py`. `protocols/transcription/form.py` and `actors/local/speech.py` ask
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from ..shared.foreign_options import OF_SPEECH
from ..shared.languages import language_code
from .transcript import Task

_OFF: Final = ("false", "0", "no", "off")
_ON: Final = ("true", "1", "yes", "on")
_MARKS: Final = frozenset({"user", "request_id", "log_progress", "verbose"})
"""These change no transcript: names for the caller's own books, and what is printed."""
_DONE: Final[Mapping[str, tuple[str, ...]]] = {
    "diarize": _OFF,
    "diarization": _OFF,
    "tinydiarize": _OFF,
    "speaker_labels": _OFF,
    "word_timestamps": _OFF,
    "token_timestamps": _OFF,
    "without_timestamps": _OFF,
    "no_timestamps": _OFF,
    "punctuate": _ON,
    "smart_format": _OFF,
    "suppress_numerals": _OFF,
    "detect_language": _OFF,
    "multilingual": _OFF,
    "split_on_word": _OFF,
    "vad": _OFF,
    "suppress_blank": _ON,
    "suppress_tokens": ("-1", "[-1]"),
    "chunk_length": ("30",),
    "no_speech_threshold": ("0.6",),
    "no_speech_thold": ("0.6",),
    "log_prob_threshold": ("-1",),
    "logprob_threshold": ("-1",),
    "logprob_thold": ("-1",),
    "compression_ratio_threshold": ("2.4",),
    "entropy_thold": ("2.4",),
    "temperature_increment_on_fallback": ("0",),
    "temperature_inc": ("0",),
    "language_detection_segments": ("1",),
    "language_detection_threshold": ("0.5",),
    "word_thold": ("0.01",),
    "max_context": ("-1",),
    "audio_ctx": ("0",),
    "max_len": ("0",),
    "offset_t": ("0",),
    "offset_n": ("0",),
    "duration": ("0",),
    "compute_type": ("auto", "default"),
}
"""What each may say; numbers are compared as numbers."""


def is_done_anyway(name: str, value: str, task: Task) -> bool:
    """Whether another server's field asks for nothing but what is done here; blank, it asks for nothing."""
    stated = value.strip().lower()
    is_translated = task == "translate"
    if not stated:
        return name in OF_SPEECH or name in _DONE or name in _MARKS
    match name:
        case "task":
            return stated == task
        case "translate":
            return stated in (_ON if is_translated else _OFF)
        case "to_language" | "target_language":
            return is_translated and language_code(stated) == "en"
    return name in _MARKS or any(_is_same(stated, each) for each in _DONE.get(name, ()))


def _is_same(stated: str, allowed: str) -> bool:
    if stated == allowed:
        return True
    with suppress(ValueError):
        return float(stated) == float(allowed)
    return False
