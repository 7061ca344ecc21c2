"""What `dir` and `help` show of the package is what there is for users, loaded or not."""

from __future__ import annotations

import importlib.util
import pydoc

import pytest
import sensorium


def public() -> set[str]:
    return {name for name in dir(sensorium) if not name.startswith("_")}


def test_dir_shows_what_there_is_and_nothing_else() -> None:
    assert public() == {name for name in sensorium.__all__ if not name.startswith("_")}
    assert all(getattr(sensorium, name).__doc__ for name in public())
    assert "__version__" in dir(sensorium)


def test_where_only_the_client_is_installed_only_that_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else found(name))
    assert public() == {"AsyncClient", "Client"}


def test_help_tells_of_them() -> None:
    text = pydoc.plain(pydoc.render_doc(sensorium))
    assert all(f"class {name}" in text for name in public())


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Klient'"):
        _ = sensorium.Klient
