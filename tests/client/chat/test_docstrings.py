"""Three styles of docstrings, read alike."""

from __future__ import annotations

import pytest
from sensorium.client.chat.docstrings import read_docstring


def numpy() -> None:
    """The weather.

    For a city.

    Parameters
    ----------
    city : str
        Its name,
        in English.
    days
        How many.

    Returns
    -------
    dict
        Not told: what comes back is told by itself.
    """


def google() -> None:
    """The weather.

    For a city.

    Args:
        city (str): Its name,
            in English.
        days: How many.

    Returns:
        city: nothing of that.
    """


def sphinx() -> None:
    """The weather.

    For a city.

    :param str city: Its name,
        in English.
    :param days: How many.
    :type days: int
    :returns: nothing of that
    """


@pytest.mark.parametrize("function", [numpy, google, sphinx])
def test_the_styles_say_the_same(function: object) -> None:
    summary, described = read_docstring(function)
    assert summary == "The weather.\n\nFor a city."
    assert {name: " ".join(text.split()) for name, text in described.items()} == {
        "city": "Its name, in English.",
        "days": "How many.",
    }


def test_nothing_said_is_nothing() -> None:
    assert read_docstring(lambda: None) == ("", {})


def test_colons_in_a_text_are_text() -> None:
    def function() -> None:
        """Use it like this: carefully.

        Args:
            x: one of: a, b
                url: http://a
        """

    summary, described = read_docstring(function)
    assert summary == "Use it like this: carefully."
    assert described == {"x": "one of: a, b\nurl: http://a"}
