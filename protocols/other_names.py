"""What others call otherwise: the hint behind an option of a transcription that nobody here defines.

The names are those of faster-whisper, of openai-whisper with its command line, and of Deepgram. Forms
(`protocols/transcription_form.py`), the SDK and the local engine refuse an option with it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from typing import Final

_KEYWORDS: Final = "name words to expect by `keywords`"
_SPEAKERS: Final = "speakers are not told apart; `multichannel` transcribes each channel for itself"
_UNLIKELY: Final = "a list of `temperature` is tried where an answer is unlikely"
_REPEATED: Final = "a list of `temperature` is tried where an answer repeats itself"
_WRITTEN: Final = "text is punctuated as the model writes it, and `numerals` digits writes numbers so"
_DETECTED: Final = "the language is detected where `language` is not given; `languages` are those to expect"
_ELSEWHERE: Final = {
    "word_timestamps": "ask for `timestamp_granularities` word",
    "without_timestamps": "there are none where `timestamp_granularities` does not ask for any",
    "initial_prompt": "it is called `prompt` here",
    "hotwords": _KEYWORDS,
    "keyterm": _KEYWORDS,
    "diarize": _SPEAKERS,
    "speaker_labels": _SPEAKERS,
    "suppress_numerals": "ask for `numerals` words",
    "smart_format": _WRITTEN,
    "punctuate": _WRITTEN,
    "no_speech_threshold": "what is no speech is left out by `vad_filter`",
    "log_prob_threshold": _UNLIKELY,
    "logprob_threshold": _UNLIKELY,
    "compression_ratio_threshold": _REPEATED,
    "no_repeat_ngram_size": _REPEATED,
    "temperature_increment_on_fallback": _UNLIKELY,
    "multilingual": _DETECTED,
    "detect_language": _DETECTED,
    "output_format": "it is called `response_format` here",
    "task": "English of any language is made at `/v1/audio/translations`",
}


def meant(name: str, known: Collection[str]) -> str:
    """The end of a sentence about a name that is none of `known`: what may be meant, or nothing."""
    elsewhere = _ELSEWHERE.get(name, "")
    if elsewhere and all(option in known for option in re.findall(r"`(\w+)`", elsewhere)):
        return f"; {elsewhere}"
    near = difflib.get_close_matches(name[:100], known, n=1)
    return f"; did you mean `{near[0]}`?" if near else ""
