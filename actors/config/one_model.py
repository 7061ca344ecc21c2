"""`--model NAME:OPTION=VALUE`: what holds for one of the served models only; `--alias`: its other names.

Knows no option by name: they are the fields of whatever configuration object it is given. Read
`actors/config/server.py` for who asks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, get_type_hints

import msgspec

from ...protocols.faults import read_fault

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def overridden(base: T, options: Sequence[str], name: str, names: Collection[str]) -> T:
    """`base` with what `options` say of the model `name`, one of `names`.

    Raises ValueError with one line that names the option, and what is allowed.
    """
    kinds = get_type_hints(type(base))
    found: dict[str, object] = {}
    for option in options:
        of, key, value = _split(option)
        if of not in names and "/" in of:
            raise ValueError(
                f"--model is {option!r}, and {of!r} is not served; name it as an argument too: "
                f"sensorium serve {of} --model {option} (served now: {', '.join(names)})"
            )
        if of not in names:
            raise ValueError(f"--model is {option!r}; allowed names: {', '.join(names)}")
        if key not in kinds:
            allowed = ", ".join(sorted(kinds)).replace("_", "-")
            raise ValueError(f"--model is {option!r}; allowed options: {allowed}")
        try:
            converted = msgspec.convert(value, kinds[key], strict=False)
        except msgspec.ValidationError as error:
            problem = read_fault(str(error), kind=kinds[key]).problem
            raise ValueError(f"--model is {option!r}: {problem}") from None
        if of == name:
            found[key] = converted
    return replace(base, **found)


def read_aliases(options: Sequence[str], names: Collection[str]) -> dict[str, str]:
    """The model of each alias, as ALIAS=NAME says it of one of `names`.

    Raises ValueError with one line that names the option, and what is allowed.
    """
    found: dict[str, str] = {}
    for option in options:
        alias, _, name = (part.strip() for part in option.partition("="))
        if not alias or name not in names:
            raise ValueError(f"--alias is {option!r}; allowed: ALIAS=NAME, of the names {', '.join(names)}")
        if alias in names or alias in found:
            raise ValueError(f"--alias is {option!r}; allowed: a name that nothing else has")
        found[alias] = name
    return found


def _split(option: str) -> tuple[str, str, str]:
    """Name, field and value. A name may have colons of its own."""
    left, equals, value = option.partition("=")
    name, _, key = left.rpartition(":")
    if not equals or not name:
        raise ValueError(
            f"--model is {option!r}; allowed: NAME:OPTION=VALUE, as tiny-whisper:kv-memory=1GiB; "
            "models to serve stand without an option"
        )
    return name, key.strip().replace("-", "_"), value.strip()
