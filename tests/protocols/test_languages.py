"""Languages by any of their names."""

from __future__ import annotations

import pytest
from sensorium.protocols.languages import known_language, language_code


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("zh-Hant-TW", "zh"),
        ("Haitian  Creole", "ht"),
        ("CANTONESE", "yue"),
        ("pt_BR", "pt"),
        ("x", None),
        ("klingon", None),
        ("e n", None),
        ("en-", None),
        ("", None),
    ],
)
def test_names_and_tags(written: str, code: str | None) -> None:
    assert language_code(written) == code


def test_a_model_may_know_a_language_by_another_code() -> None:
    assert known_language("Javanese", {"jw", "en"}) == "jw"
    assert known_language("nb-NO", {"no"}) == "no"
    assert known_language("tagalog", ("fil",)) == "fil"
    assert known_language("nn", ("no",)) is None
    assert known_language("klingon", ("no",)) is None
