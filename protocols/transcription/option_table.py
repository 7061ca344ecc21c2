"""Reads the declared options of `protocols/transcription/options.py`: what each is, and a text as its value.

Knows types and ranges, not what an option does. Read next: `protocols/transcription/form.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from ..errors import wrong
from ..shared.sampling import allowed_range, range_of
from .hints import shown

_WORDS: Final = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}


class Option(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    item: Any
    """The type of one value, with its range and description."""
    takes_one: bool
    """A single value is allowed in Python, not only a sequence."""
    takes_several: bool
    takes_text: bool
    """One text may hold several values."""
    description: str

    @property
    def base(self) -> Any:  # noqa: ANN401 (a type)
        """The type of one value alone: bool, int, float, str, Mapping, or a Literal."""
        plain = get_args(self.item)[0] if get_origin(self.item) is Annotated else self.item
        return Mapping if get_origin(plain) == Mapping else plain

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a Literal."""
        return get_args(self.base) if get_origin(self.base) is Literal else ()

    @property
    def allowed(self) -> str:
        """What a value may be, in words."""
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        limits = range_of(self.item)
        return _WORDS[self.base] + (f" from {allowed_range(limits)}" if limits else "")

    def parse(self, text: str) -> Any:  # noqa: ANN401 (a value of its type)
        """The value that a text states. Raises BadRequestError."""
        written = text if self.base is str else text.strip()
        if self.base in (int, float):
            with suppress(ValueError):  # as Python writes it, and so JSON
                written = repr(self.base(written))
        try:
            return msgspec.convert(written, self.item, strict=False)
        except msgspec.ValidationError:
            raise wrong(self.name, f"must be {self.allowed}, not {shown(text)}") from None


@lru_cache
def options_of(table: type) -> Mapping[str, Option]:
    """The options of a class of the table and of its bases, by name."""
    hints = get_type_hints(table, include_extras=True)
    return {name: _option(name, hint) for name, hint in hints.items()}


def _option(name: str, hint: Any) -> Option:  # noqa: ANN401 (a type)
    notes: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, notes = hint.__origin__, hint.__metadata__
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    single = [kind for kind in kinds if kind is not NoneType and get_origin(kind) is not Sequence]
    several = [get_args(kind)[0] for kind in kinds if get_origin(kind) is Sequence]
    takes_text = bool(several) and str in single
    item = several[0] if takes_text or not single else single[-1]
    for note in notes:
        item = Annotated[item, note]
    notes = getattr(item, "__metadata__", ())
    description = next((note.description for note in reversed(notes) if note.description), "")
    return Option(name, item, bool(single), bool(several), takes_text, description)
