"""Names by which other servers know Whisper, and the checkpoint on the Hugging Face hub that each means.

The short ones of Whisper's own tool and of faster-whisper, and the ids of faster-whisper's conversions, whose
format is not read here: the original has the same weights.
"""

from __future__ import annotations

from typing import Final

_SIZES: Final = (
    *("tiny", "tiny.en", "base", "base.en", "small", "small.en", "medium", "medium.en"),
    *("large-v2", "large-v3", "large-v3-turbo"),
)
_WHISPER: Final = {size: f"openai/whisper-{size}" for size in _SIZES} | {
    "large-v1": "openai/whisper-large",
    "large": "openai/whisper-large-v3",
    "turbo": "openai/whisper-large-v3-turbo",
}
_CONVERTED: Final = "systran/faster-whisper-"


def hub_name(name: str) -> str:
    """The hub id that a name means; any other name as it is."""
    if name.lower().startswith(_CONVERTED):
        return _WHISPER.get(name[len(_CONVERTED) :].lower(), name)
    return _WHISPER.get(name.lower(), name)
