"""The TOML file that `--config` names: options of one command, or of several by tables.

    port = 8000                      # of the command that is run

    [transcribe]                     # of that command only
    language = "en"

    [model.tiny-whisper]             # of `serve`, and of that model only; also [serve.model.tiny-whisper]
    kv-memory = "256MiB"

Everything in it must mean something, for the commands that are not run too: an option that would be passed
over might have been the one that asks for a key. And it must be of its option's type, since 5 is no path, nor
8000.5 a port; what it says to `serve` is not empty. Knows no command; `actors/commands.py` says which there
are.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from ...protocols.shared.decode_errors import read_fault
from ..errors import ConfigError

_SERVE: Final = "serve"
_GATEWAY: Final = "gateway"
_MODEL: Final = "model"
SECRETS: Final = frozenset({"api_key", "call_callback_secret", "caller_secret", "server_api_key"})
"""Options whose values no message shows, since messages end in logs."""
Types = Mapping[str, Any]
"""Of options, by their names with `_`."""


@dataclass(frozen=True, slots=True)
class FileOptions:
    """What a file says to one command."""

    own: dict[str, object] = field(default_factory=dict)
    """By name."""
    models: tuple[str, ...] = ()
    """What it says of single models, each as `--model` takes it; only of `serve`."""


def read_options(file: Path, command: str, known: Mapping[str, Types], of_models: Types) -> FileOptions:
    """The options a file has for `command`.

    `known` has every command's options, `of_models` those that may be said of one model. Raises ConfigError
    for a file that cannot be read, and for the first table, option or type of a value that nobody knows.
    """
    reader = _Reader(file, known, of_models)
    content = reader.read()
    models = reader.models_of(content, "")
    options: dict[str, object] = {}
    own: dict[str, object] = {}
    for name, value in content.items():
        if not isinstance(value, dict):
            options[name] = value
            reader.check(name, value, command, "")
            continue
        if name not in known:
            allowed = ", ".join(f"[{each}]" for each in sorted((*known, f"{_MODEL}.NAME")))
            raise reader.error(f"it has a table [{name}]; allowed: {allowed}")
        if name == _SERVE:
            models += reader.models_of(value, f"{name}.")
        for option, each in value.items():
            reader.check(option, each, name, f"[{name}] ")
        if name == command:
            own = value
    return FileOptions(options | own, models if command == _SERVE else ())


@dataclass(frozen=True, slots=True)
class _Reader:
    """One file, and what it may say."""

    file: Path
    known: Mapping[str, Types]
    of_models: Types

    def read(self) -> dict[str, object]:
        """What is in it."""
        try:
            return tomllib.loads(self.file.read_text("utf-8-sig"))  # some editors begin with a mark
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
                raise self.error(f"[{where}{_MODEL}] {name} is not a table; allowed: [{where}{_MODEL}.NAME]")
            table_name = f"[{where}{_MODEL}.{name}]"
            found += (
                f"{name}:{option}={self._option_text(table_name, option, options[option])}"
                for option in options
            )
        return tuple(found)

    def _option_text(self, where: str, option: str, value: object) -> str:
        """What a table of one model says of one option, as the command line would have it."""
        name = option.replace("-", "_")
        if name not in self.of_models:
            raise self.error(
                f"{where} {option} is not an option of one model; put a name with dots in quotes"
            )
        self._check_type(f"{where} ", option, value, self.of_models[name])
        return str(value).lower() if isinstance(value, bool) else str(value)

    def check(self, option: str, value: object, command: str, where: str) -> None:
        """Raises ConfigError unless the command has that option, and of such a type."""
        types, name = self.known.get(command, {}), option.replace("-", "_")
        if name not in types:
            raise self.error(
                f"{where}{option} is not an option of `sensorium {command}`; options of another command "
                "belong under a table of its name"
            )
        if isinstance(value, dict):
            raise self.error(f"it has a table [{command}.{option}]; allowed below [{command}]: options")
        if command in (_SERVE, _GATEWAY) and (value in ("", []) or (isinstance(value, list) and "" in value)):
            raise self.error(f"{where}{option} is empty; allowed: a value, or no such line")
        self._check_type(where, option, value, types[name])

    def _check_type(self, where: str, option: str, value: object, kind: Any) -> None:  # noqa: ANN401 (a type, or several)
        """One value stands for a list of it."""
        problem = ""
        for whole in (value, [value]):
            try:
                msgspec.convert(whole, kind, dec_hook=_path)
            except msgspec.ValidationError as error:
                fault = read_fault(str(error), kind=kind)
                problem = problem or " at ".join(filter(None, (fault.problem, fault.param)))
            else:
                return
        is_secret = option.replace("-", "_") in SECRETS
        shown = f"of type {type(value).__name__}" if is_secret else repr(value)
        raise self.error(f"{where}{option} is {shown}: {problem}")

    def error(self, problem: str) -> ConfigError:
        """The error for a problem with this file."""
        return ConfigError(f"--config is {str(self.file)!r}: {problem}")


def _path(kind: type, value: object) -> object:
    """For msgspec, which knows no paths."""
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    return kind(value)
