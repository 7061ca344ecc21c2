"""Languages by code, tag and English name: `en`, `EN`, `en-US`, `en_GB` and `English` are all `en`.

Codes are ISO 639-1, or 639-3 where there is none of two letters. Which of them a model knows is its own
business: see `known_language` and `check_language`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from ..errors import BadRequestError

_NAMES: Final = """
    af afrikaans, am amharic, ar arabic, as assamese, az azerbaijani, ba bashkir, be belarusian, bg bulgarian,
    bn bengali, bn bangla, bo tibetan, br breton, bs bosnian, ca catalan, ca valencian, cs czech, cy welsh,
    da danish, de german, el greek, en english, es spanish, es castilian, et estonian, eu basque, fa persian,
    fa farsi, fi finnish, fil filipino, fo faroese, fr french, ga irish, gl galician, gu gujarati, ha hausa,
    haw hawaiian, he hebrew, hi hindi, hr croatian, ht haitian creole, ht haitian, hu hungarian, hy armenian,
    id indonesian, is icelandic, it italian, ja japanese, jv javanese, ka georgian, kk kazakh, km khmer,
    kn kannada, ko korean, la latin, lb luxembourgish, lb letzeburgesch, ln lingala, lo lao, lt lithuanian,
    lv latvian, mg malagasy, mi maori, mk macedonian, ml malayalam, mn mongolian, mr marathi, ms malay,
    mt maltese, my burmese, my myanmar, ne nepali, nl dutch, nl flemish, nn nynorsk, no norwegian, oc occitan,
    pa punjabi, pa panjabi, pl polish, ps pashto, ps pushto, pt portuguese, ro romanian, ro moldavian,
    ro moldovan, ru russian, sa sanskrit, sd sindhi, si sinhala, si sinhalese, sk slovak, sl slovenian,
    sn shona, so somali, sq albanian, sr serbian, su sundanese, sv swedish, sw swahili, ta tamil, te telugu,
    tg tajik, th thai, tk turkmen, tl tagalog, tr turkish, tt tatar, uk ukrainian, ur urdu, uz uzbek,
    vi vietnamese, yi yiddish, yo yoruba, yue cantonese, zh chinese, zh mandarin
"""
_CODES: Final = {
    name: code for code, _, name in (" ".join(each.split()).partition(" ") for each in _NAMES.split(","))
}
_TAG: Final = re.compile(r"([a-z]{2,3})(?:[-_][a-z0-9]{1,8})*")
_SAME: Final = (
    ("jv", "jw"),
    ("no", "nb"),
    ("fil", "tl"),
    ("he", "iw"),
    ("id", "in"),
    ("yi", "ji"),
    ("zh", "cmn"),
)
"""Codes of one language, as far as any model tells them apart."""


def language_code(value: str) -> str | None:
    """The code of a language's code, tag (whose region and script are left out) or English name.

    None for what can be none of them; that a code exists is not checked.
    """
    lowered = " ".join(value.lower().split())
    if lowered in _CODES:
        return _CODES[lowered]
    tag = _TAG.fullmatch(lowered)
    return tag.group(1) if tag else None


def known_language(value: str, known: Collection[str]) -> str | None:
    """Which of the `known` codes is meant, if any."""
    code = language_code(value)
    if code is None or code in known:
        return code
    return next((each for same in _SAME if code in same for each in same if each in known), None)


def check_language(value: str, known: Collection[str], *, param: str = "language") -> str:
    """Which of the `known` codes is meant; BadRequestError naming `param` if none is."""
    code = known_language(value, known)
    if code is None:
        raise BadRequestError(
            f"{param}: {value!r} is not one of {', '.join(known)}", param=param, code="unsupported_language"
        )
    return code
