"""Languages by any of their names."""

from __future__ import annotations

import pytest
from sensorium.protocols.errors import BadRequestError
from sensorium.protocols.shared.languages import check_language, known_language, language_code


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


def test_a_language_that_a_model_does_not_know_is_refused_by_field() -> None:
    assert check_language("en-US", ("de", "en")) == "en"
    with pytest.raises(BadRequestError, match="languages: 'fr' is not one of de, en") as caught:
        check_language("fr", ("de", "en"), param="languages")
    assert (caught.value.param, caught.value.code) == ("languages", "unsupported_language")
