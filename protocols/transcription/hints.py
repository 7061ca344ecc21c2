"""What a client may say beforehand about speech: the language or languages, and words to expect.

Forms (`protocols/transcription/rest.py`) and sessions (`realtime/settings.py`) read them by the same rules.
Whether a model knows a language is checked where models are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ..errors import wrong
from ..shared.languages import language_code

MAX_LANGUAGES: Final = 32
MAX_KEYWORDS: Final = 100
MAX_KEYWORD_CHARS: Final = 100
KEYWORD_BOOST: Final = 2.5
"""Finds nearly all that a stronger one does, and brings no word that was not said; 4 does
(`examples/benchmarks/bench_keywords.py`)."""
MAX_KEYWORD_BOOST: Final = 5.0
"""Beyond, hardly anything is said but keywords."""


def parse_language(value: str, *, param: str) -> str | None:
    """The code of a language's code, tag or name (`protocols/shared/languages.py`); empty or `auto` means
    detect."""
    if value.strip().lower() in ("", "auto"):
        return None
    code = language_code(value)
    if code is None:
        raise wrong(param, f"must be a language such as en, en-US or english, not {shown(value)}")
    return code


def parse_languages(values: Sequence[str], *, param: str) -> tuple[str, ...]:
    """Codes to choose from, in the client's order, each once. An empty one is refused, by its index."""
    if len(values) > MAX_LANGUAGES:
        raise wrong(param, f"holds more than {MAX_LANGUAGES} languages")
    codes: dict[str, None] = {}
    for index, value in enumerate(values):
        where = f"{param}[{index}]"
        code = parse_language(value, param=where)
        if code is None:
            raise wrong(where, "names no language")
        codes[code] = None
    return tuple(codes)


def parse_keywords(values: Sequence[str], *, param: str) -> tuple[str, ...]:
    """Words or short phrases, each once, white space made single spaces. A blank one is refused."""
    if len(values) > MAX_KEYWORDS:
        raise wrong(param, f"holds more than {MAX_KEYWORDS} keywords")
    keywords: dict[str, None] = {}
    for index, value in enumerate(values):
        where = f"{param}[{index}]"
        if len(value) > MAX_KEYWORD_CHARS:
            raise wrong(where, f"is longer than {MAX_KEYWORD_CHARS} characters")
        keyword = " ".join(value.split())
        if not keyword:
            raise wrong(where, "is empty")
        keywords[keyword] = None
    return tuple(keywords)


def shown(value: str) -> str:
    """A client's value inside a message: quoted and short."""
    return repr(value if len(value) <= 40 else value[:40] + "…")
