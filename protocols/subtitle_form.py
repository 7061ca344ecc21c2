"""How subtitles are laid out: what a form says of lines and words, by openai-whisper's names.

`protocols/transcription_form.py` reads the rest of the form; `protocols/subtitles.py` does what is asked for
here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .errors import BadRequestError
from .hints import shown
from .transcript import CueLayout

SUBTITLES: Final = ("srt", "vtt")
LAYOUT_LIMITS: Final = {"max_line_width": 1000, "max_line_count": 4, "max_words_per_line": 20}
"""The most of each."""


def parse_cue_layout(fields: Mapping[str, str], response_format: str) -> CueLayout:
    """`max_line_width`, `max_line_count` and `max_words_per_line`. Raises BadRequestError.

    Words are counted where lines are wanted by words: then a cue is one line, unless more are asked for.
    """
    said = {param: _number(fields[param], param) for param in LAYOUT_LIMITS if fields.get(param, "").strip()}
    for param in said:
        check_subtitles(param, response_format)
    if "max_words_per_line" in said:
        said = {"max_line_count": 1} | said
    return CueLayout(**said)


def check_subtitles(param: str, response_format: str) -> None:
    """Raises BadRequestError for what only subtitles have."""
    if response_format not in SUBTITLES:
        raise BadRequestError(f"`{param}` needs `response_format` {' or '.join(SUBTITLES)}", param=param)


def _number(value: str, param: str) -> int:
    text, most = value.strip(), LAYOUT_LIMITS[param]
    if not (text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= most):
        raise BadRequestError(
            f"`{param}` must be a whole number from 1 to {most}, not {shown(value)}", param=param
        )
    return int(text)
