"""How subtitles are laid out: what a form says of lines and words, by openai-whisper's names.

`protocols/transcription/form.py` reads the rest of the form; `protocols/transcription/subtitles.py` does what
is asked for here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..errors import wrong
from .decoding_form import whole_if_any
from .transcript import CueLayout

SUBTITLES: Final = ("srt", "vtt")
_LAYOUT: Final = ("max_line_width", "max_line_count", "max_words_per_line")


def parse_cue_layout(fields: Mapping[str, str], response_format: str) -> CueLayout:
    """`max_line_width`, `max_line_count` and `max_words_per_line`. Raises BadRequestError.

    Words are counted where lines are wanted by words: then a cue is one line, unless more are asked for.
    """
    given: dict[str, int] = {}
    for param in _LAYOUT:
        if (number := whole_if_any(fields, param)) is not None:
            given[param] = number
            check_subtitles(param, response_format)
    if "max_words_per_line" in given:
        given = {"max_line_count": 1} | given
    return CueLayout(**given)


def check_subtitles(param: str, response_format: str) -> None:
    """Raises BadRequestError for what only subtitles have."""
    if response_format not in SUBTITLES:
        raise wrong(param, f"needs `response_format` {' or '.join(SUBTITLES)}")
