"""`sensorium --help` lists the commands that there are, and loads none of what they need."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Final

import pytest
from sensorium.actors.commands import app
from sensorium.actors.help import COMMANDS, is_overview, overview

HEAVY: Final = {
    *("torch", "transformers", "numpy", "httpx", "trio", "anyio", "starlette", "msgspec", "av", "PIL"),
    *("cyclopts", "rich", "attr"),
}
SHOWS_MODULES: Final = """
import sys
from sensorium.actors.cli import main
try:
    main()
finally:
    sys.stderr.write(" ".join(sys.modules))
"""


def test_every_command_is_listed_with_its_summary() -> None:
    found = {
        name: inspect.getdoc(app[name].default_command or app).partition("\n\n")[0]  # type: ignore[union-attr]
        for name in app.resolved_commands()
        if not name.startswith("-")
    }
    assert found == COMMANDS
    assert all(text in overview() for text in COMMANDS.values())


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_what_asks_for_the_list(arguments: list[str]) -> None:
    assert is_overview(arguments)


@pytest.mark.parametrize("arguments", [["serve"], ["serve", "--help"], ["--config", "x"], ["help"], [""]])
def test_what_asks_for_something_else(arguments: list[str]) -> None:
    assert not is_overview(arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["--help"], "Usage: sensorium COMMAND"),
        ([], "Commands:"),
        (["--version"], "0."),
        (["models", "-h"], "Usage"),
    ],
)
def test_help_loads_nothing(arguments: list[str], shown: str) -> None:
    command = [sys.executable, "-c", SHOWS_MODULES, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert shown in done.stdout
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    if arguments[:1] != ["models"]:
        assert not loaded & HEAVY
        assert len([name for name in done.stderr.split() if name.startswith("sensorium")]) <= 8
    else:
        assert {"cyclopts", "trio"} <= loaded, "what is loaded is seen"
