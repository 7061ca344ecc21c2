"""Reads the declared options of `protocols/transcription/options.py`: what each is, and a text as its value.

Knows types and ranges, not what an option does. Read next: `protocols/transcription/form.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Meta, Struct

from ..errors import wrong
from .hints import shown


class Option(Struct, frozen=True, kw_only=True):
    """One row of the table."""

    name: str
    kind: type
    """Of one value: bool, int, float, str, or Mapping."""
    choices: tuple[str, ...] = ()
    """The values of a `Literal`."""
    takes_one: bool
    """A single value is allowed in Python, not only a sequence."""
    takes_several: bool
    takes_text: bool
    """One text may hold all values."""
    low: float = -math.inf
    high: float = math.inf
    is_above: bool = False
    """`low` itself is not allowed."""
    max_length: int | None = None
    """Characters, or values where several are allowed."""
    description: str = ""

    @property
    def allowed(self) -> str:
        """What a number may be, in words."""
        kind = "a whole number" if self.kind is int else "a number"
        low, high = (f"{end:g}" if isinstance(end, float) else f"{end}" for end in (self.low, self.high))
        return f"{kind} above {low}, up to {high}" if self.is_above else f"{kind} from {low} to {high}"

    def parse(self, text: str) -> Any:  # noqa: ANN401 (a value of its kind)
        """The value that a text states. Raises BadRequestError."""
        if self.kind is bool:
            return _boolean(text, self.name)
        if self.kind in (int, float):
            return self._number(text.strip())
        value = text.strip() if self.choices else text
        if self.choices and value not in self.choices:
            raise wrong(self.name, f"must be one of {', '.join(self.choices)}, not {shown(text)}")
        if self.max_length is not None and len(value) > self.max_length:
            raise wrong(self.name, f"is longer than {self.max_length} characters")
        return value

    def _number(self, text: str) -> float:
        number: float = math.nan
        if self.kind is float:
            with suppress(ValueError):
                number = float(text)
        elif whole := re.fullmatch(r"(-?[0-9]{1,20})(\.0*)?", text):
            number = int(whole[1])
        if not self.low <= number <= self.high or (self.is_above and number == self.low):
            raise wrong(self.name, f"must be {self.allowed}, not {shown(text)}")
        return number


@lru_cache
def options_of(table: type) -> Mapping[str, Option]:
    """The options of a class of the table and of its bases, by name."""
    hints = get_type_hints(table, include_extras=True)
    return {name: _option(name, list(_parts(hint))) for name, hint in hints.items()}


def _option(name: str, parts: list[Any]) -> Option:
    metas = [part for part in parts if isinstance(part, Meta)]
    kinds = [part for part in parts if not isinstance(part, Meta)]
    several = [get_args(kind)[0] for kind in kinds if get_origin(kind) is Sequence]
    single = [kind for kind in kinds if get_origin(kind) is not Sequence]
    kind = (several or sorted(single, key=lambda each: get_origin(each) != Mapping))[0]
    choices = get_args(kind) if get_origin(kind) is Literal else ()

    def stated(*fields: str) -> Any:  # noqa: ANN401 (a number, or a text)
        return next(
            (value for meta in metas for each in fields if (value := getattr(meta, each)) is not None), None
        )

    low, high = stated("ge", "gt"), stated("le")
    return Option(
        name=name,
        kind=str if choices else get_origin(kind) or kind,
        choices=choices,
        takes_one=bool(single),
        takes_several=bool(several),
        takes_text=str in single,
        low=-math.inf if low is None else low,
        high=math.inf if high is None else high,
        is_above=stated("gt") is not None,
        max_length=stated("max_length"),
        description=stated("description") or "",
    )


def _parts(hint: Any) -> Iterator[Any]:  # noqa: ANN401 (a type)
    """The types of a union but None, and what they are annotated with, the outermost first."""
    if get_origin(hint) is Annotated:
        yield from hint.__metadata__
        yield from _parts(hint.__origin__)
    elif get_origin(hint) in (Union, UnionType):
        for each in get_args(hint):
            yield from _parts(each)
    elif hint is not NoneType:
        yield hint


def _boolean(text: str, param: str) -> bool:
    match text.strip().lower():
        case "true" | "1":
            return True
        case "false" | "0" | "":
            return False
    raise wrong(param, f"must be true or false, not {shown(text)}")
