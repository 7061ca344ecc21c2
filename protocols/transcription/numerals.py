"""How numbers are written: the wish, which models and languages it can be had of, and its form field."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from ..errors import BadRequestError, wrong
from ..shared.languages import language_code
from .hints import shown

Numerals = Literal["words", "digits"]

DIGIT_LANGUAGES: Final = ("da", "de", "en", "es", "fr", "it", "nl", "pt")
"""ISO codes of the languages whose words for numbers are known."""


def parse_numerals(value: str) -> Numerals | None:
    """How numbers are written; None if nothing is said. Raises BadRequestError."""
    match value.strip().lower():
        case "" | "false":
            return None
        case "words":
            return "words"
        case "digits" | "true":
            return "digits"
    raise wrong(
        "numerals",
        "may be words, digits (as true is), or left out: then a model writes numbers as it likes, "
        f"not {shown(value)}",
    )


def check_numerals(
    numerals: Numerals | None, languages: Iterable[str], *, spells_numbers: bool, param: str = "numerals"
) -> None:
    """Raise BadRequestError where numbers cannot be written so: in words by a model that does not spell them,
    in digits in any of the `languages` that are named."""
    if numerals == "words" and not spells_numbers:
        raise BadRequestError(
            "this model cannot write numbers in words", param=param, code="unsupported_parameter"
        )
    named = [language_code(each) for each in languages]
    if numerals == "digits" and named and not any(each in DIGIT_LANGUAGES for each in named):
        raise BadRequestError(
            f"numbers in {named[0]} cannot be written in digits; allowed: {', '.join(DIGIT_LANGUAGES)}",
            param=param,
            code="unsupported_parameter",
        )
