"""The TOML file that `--config` names: options of one command, or of several by tables.

    port = 8000                      # of the command that is run

    [transcribe]                     # of that command only
    language = "en"

Everything in it must mean something, for the commands that are not run too: an option that would be passed
over might have been the one that asks for a key. Knows no command; `actors/commands.py` says what there is.
"""

from __future__ import annotations

import tomllib
from collections.abc import Container, Mapping
from pathlib import Path

from .option_checks import ConfigError


def read_options(file: Path, command: str, known: Mapping[str, Container[str]]) -> dict[str, object]:
    """The options a file has for `command`; `known` has the names of every command's options.

    Raises ConfigError for a file that cannot be read, and for the first table or option nobody knows.
    """
    options: dict[str, object] = {}
    own: dict[str, object] = {}
    for name, value in _read(file).items():
        if not isinstance(value, dict):
            options[name] = value
            _check(file, name, command, known, "")
            continue
        if name not in known:
            allowed = ", ".join(f"[{each}]" for each in sorted(known))
            raise ConfigError(f"--config is {str(file)!r}: it has a table [{name}]; allowed: {allowed}")
        for option in value:
            _check(file, option, name, known, f"[{name}] ")
        if name == command:
            own = value
    return options | own


def _check(file: Path, option: str, command: str, known: Mapping[str, Container[str]], where: str) -> None:
    if option.replace("-", "_") not in known.get(command, ()):
        raise ConfigError(
            f"--config is {str(file)!r}: {where}{option} is no option of `sensorium {command}`; what belongs "
            "to another command goes under a table of its name"
        )


def _read(file: Path) -> dict[str, object]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"--config is {str(file)!r}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"--config is {str(file)!r}: not TOML: {error}") from None
