"""`--model NAME:OPTION=VALUE`: what holds for one of the served models only; `--alias`: its other names.

Knows no option by name: they are the fields of whatever configuration object it is given. Read
`actors/config/server.py` for who asks.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, get_type_hints

import msgspec

from ...protocols.shared.decode_errors import read_fault

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T", bound="DataclassInstance")


def public_name(model: str) -> str:
    """The name of a model on the wire that is given no other. A local folder is called by its last part."""
    is_path = model.startswith(("/", "./", "../", "~")) or model.count("/") > 1 or "\\" in model
    return model.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1] if is_path else model


def overridden(base: T, options: Sequence[str], name: str, names: Collection[str]) -> T:
    """`base` with what `options` say of the model `name`, one of `names`.

    Raises ValueError with one line that names the option, and what is allowed.
    """
    kinds = get_type_hints(type(base))
    found: dict[str, object] = {}
    for option in options:
        of, key, value = _split(option)
        if of not in names:
            raise ValueError(
                f"--model is {option!r}; allowed names: {', '.join(names)}{_way_out(of, option, names)}"
            )
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


def _way_out(of: str, option: str, names: Collection[str]) -> str:
    """What to do about an option of a model `of` that none of `names` is, where a path or an id is meant."""
    if "/" not in of:
        return ""
    name = public_name(of)
    own = f"--model {name}{option[len(of) :]}"
    return (
        f"; use {own}"
        if name in names
        else f"; name the model as an argument, too: sensorium serve {of} {own}"
    )


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
