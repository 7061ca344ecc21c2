"""What a client may say beforehand about speech: the language or languages, and words to expect.

Forms (`protocols/rest.py`) and sessions (`realtime/settings.py`) read them by the same rules. Whether a model
knows a language is checked where models are known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from .errors import BadRequestError

MAX_LANGUAGES: Final = 32
MAX_KEYWORDS: Final = 100
MAX_KEYWORD_CHARS: Final = 100

_LANGUAGE: Final = re.compile(r"[a-z]{2,3}")


def parse_language(value: str, *, param: str) -> str | None:
    """An ISO-639-1 code in lower case; empty means detect."""
    code = value.strip().lower()
    if not code:
        return None
    if not _LANGUAGE.fullmatch(code):
        raise BadRequestError(
            f"`{param}` must be an ISO-639-1 code such as en, not {shown(value)}", param=param
        )
    return code


def parse_languages(values: Sequence[str], *, param: str) -> tuple[str, ...]:
    """Codes to choose from, in the client's order, each once. An empty one is refused, by its index."""
    if len(values) > MAX_LANGUAGES:
        raise BadRequestError(f"`{param}` holds more than {MAX_LANGUAGES} languages", param=param)
    codes: dict[str, None] = {}
    for index, value in enumerate(values):
        where = f"{param}[{index}]"
        code = parse_language(value, param=where)
        if code is None:
            raise BadRequestError(f"`{where}` is empty", param=where)
        codes[code] = None
    return tuple(codes)


def parse_keywords(values: Sequence[str], *, param: str) -> tuple[str, ...]:
    """Words or short phrases, each once, white space made single spaces. A blank one is refused."""
    if len(values) > MAX_KEYWORDS:
        raise BadRequestError(f"`{param}` holds more than {MAX_KEYWORDS} keywords", param=param)
    keywords: dict[str, None] = {}
    for index, value in enumerate(values):
        where = f"{param}[{index}]"
        if len(value) > MAX_KEYWORD_CHARS:
            raise BadRequestError(f"`{where}` is longer than {MAX_KEYWORD_CHARS} characters", param=where)
        keyword = " ".join(value.split())
        if not keyword:
            raise BadRequestError(f"`{where}` is empty", param=where)
        keywords[keyword] = None
    return tuple(keywords)


def shown(value: str) -> str:
    """A client's value inside a message: quoted and short."""
    return repr(value if len(value) <= 40 else value[:40] + "…")
