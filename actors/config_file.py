"""The TOML file that `--config` names: options of one command, or of several by tables.

    port = 8000                      # of the command that is run

    [transcribe]                     # of that command only
    language = "en"

    [model.tiny-whisper]             # of `serve`, and of that model only; also [serve.model.tiny-whisper]
    kv-memory = "256MiB"

Everything in it must mean something, for the commands that are not run too: an option that would be passed
over might have been the one that asks for a key. Knows no command; `actors/commands.py` says what there is.
"""

from __future__ import annotations

import tomllib
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .option_checks import ConfigError

_SERVE: Final = "serve"
_MODEL: Final = "model"


@dataclass(frozen=True, slots=True)
class FileOptions:
    """What a file says to one command."""

    own: dict[str, object] = field(default_factory=dict)
    """By name."""
    models: tuple[str, ...] = ()
    """What it says of single models, each as `--model` takes it; only of `serve`."""


def read_options(
    file: Path, command: str, known: Mapping[str, Container[str]], of_models: Container[str]
) -> FileOptions:
    """The options a file has for `command`.

    `known` has the names of every command's options, `of_models` those that may be said of one model. Raises
    ConfigError for a file that cannot be read, and for the first table or option nobody knows.
    """
    reader = _Reader(file, known, of_models)
    content = reader.read()
    models = reader.models_of(content, "")
    options: dict[str, object] = {}
    own: dict[str, object] = {}
    for name, value in content.items():
        if not isinstance(value, dict):
            options[name] = value
            reader.check(name, command, "")
            continue
        if name not in known:
            allowed = ", ".join(f"[{each}]" for each in sorted((*known, f"{_MODEL}.NAME")))
            raise reader.error(f"it has a table [{name}]; allowed: {allowed}")
        if name == _SERVE:
            models += reader.models_of(value, f"{name}.")
        for option, said in value.items():
            reader.check(option, name, f"[{name}] ")
            if isinstance(said, dict):
                raise reader.error(f"it has a table [{name}.{option}]; allowed below [{name}]: options")
        if name == command:
            own = value
    return FileOptions(options | own, models if command == _SERVE else ())


@dataclass(frozen=True, slots=True)
class _Reader:
    """One file, and what it may say."""

    file: Path
    known: Mapping[str, Container[str]]
    of_models: Container[str]

    def read(self) -> dict[str, object]:
        """What is in it."""
        try:
            return tomllib.loads(self.file.read_text("utf-8"))
        except OSError as error:
            raise self.error(error.strerror or str(error)) from None
        except (ValueError, RecursionError) as error:
            raise self.error(f"not TOML: {error}") from None

    def models_of(self, table: dict[str, object], where: str) -> tuple[str, ...]:
        """Take the tables of single models out of `table`, which is called `where`."""
        tables = table.get(_MODEL)
        if not isinstance(tables, dict):
            return ()
        del table[_MODEL]
        found: list[str] = []
        for name, options in tables.items():
            if not isinstance(options, dict):
                raise self.error(f"[{where}{_MODEL}] {name} is no table; allowed: [{where}{_MODEL}.NAME]")
            table_name = f"[{where}{_MODEL}.{name}]"
            found += (
                f"{name}:{option}={self._said(table_name, option, options[option])}" for option in options
            )
        return tuple(found)

    def _said(self, where: str, option: str, value: object) -> str:
        """What a table of one model says of one option, as the command line would have it."""
        if option.replace("-", "_") not in self.of_models:
            raise self.error(f"{where} {option} is no option of one model; a name with dots goes in quotes")
        if isinstance(value, bool):
            return str(value).lower()
        if not isinstance(value, str | int | float):
            raise self.error(f"{where} {option} is no option of one model with such a value")
        return str(value)

    def check(self, option: str, command: str, where: str) -> None:
        """Raises ConfigError unless the command has that option."""
        if option.replace("-", "_") not in self.known.get(command, ()):
            raise self.error(
                f"{where}{option} is no option of `sensorium {command}`; what belongs to another command "
                "goes under a table of its name"
            )

    def error(self, problem: str) -> ConfigError:
        """The error for a problem with this file."""
        return ConfigError(f"--config is {str(self.file)!r}: {problem}")
