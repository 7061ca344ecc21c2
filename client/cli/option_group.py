"""The options of a transcription as cyclopts takes them, read from `protocols/transcription/options.py`.

Each key becomes an option with its description as help. Read next: `client/cli/commands.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypedDict

from ...protocols.transcription.option_table import Option, options_of

_NOT_HERE: Final = frozenset({"chunking_strategy"})
"""`vad_parameters` says the same."""


def option_group(table: type) -> Any:  # noqa: ANN401 (a type that is made here)
    """A type whose keys are the options of `table`, for the annotation of a command's parameter."""
    from cyclopts import Parameter

    rows = {
        name: Annotated[_kind(option) | None, Parameter(help=_help(option))]
        for name, option in options_of(table).items()
        if name not in _NOT_HERE
    }
    make: Any = TypedDict
    return Parameter(name="*")(make(table.__name__, rows, total=False))


def _kind(option: Option) -> Any:  # noqa: ANN401 (a type)
    """What is written after the option; one that may be repeated is a list."""
    if option.base is Mapping:
        return dict[str, float]
    if option.takes_text:
        return str
    base: Any = option.base
    return list[base] if option.takes_several else base


def _help(option: Option) -> str:
    text = re.sub(r"`(\w+)`", lambda name: f"--{name[1].replace('_', '-')}", option.description)
    if option.base is Mapping:
        return f"{text} Written as --{option.name.replace('_', '-')}.threshold 0.6."
    return f"{text} Repeat it for each." if option.takes_several and not option.takes_text else text
