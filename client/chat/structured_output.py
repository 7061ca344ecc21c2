"""Answers in a form: a type or a JSON schema → what the server is asked, and how the answer is read.

Knows no server. Read next: `client/chat/machine.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from .tools import json_schema

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OutputForm(Generic[T]):
    """The form an answer has. `read` raises ValueError for a text that has not."""

    name: str
    schema: Mapping[str, Any]
    read: Callable[[str], T]

    @property
    def wire(self) -> dict[str, Any]:
        """`response_format` of a request."""
        shape = {"name": self.name, "schema": self.schema, "strict": True}
        return {"type": "json_schema", "json_schema": shape}


def output_form(output: Any) -> OutputForm[Any]:  # noqa: ANN401 (any type that JSON can say)
    """The form that a JSON schema says, a pydantic model, or any type msgspec knows: dataclasses, structs,
    typed dictionaries, lists, literals. Raises TypeError for others."""
    if isinstance(output, Mapping):
        return OutputForm("answer", output, msgspec.json.decode)
    name = "".join(each for each in getattr(output, "__name__", "") if each.isalnum() or each in "_-")
    if hasattr(output, "model_json_schema") and hasattr(output, "model_validate_json"):  # pydantic's
        return OutputForm(name[:64], output.model_json_schema(), output.model_validate_json)
    try:
        schema = json_schema(output)
    except (TypeError, NotImplementedError) as error:
        raise TypeError(
            f"output is {output!r}: expected a JSON schema, or a type that has one: {error}"
        ) from None
    return OutputForm(name[:64] or "answer", schema, partial(msgspec.json.decode, type=output))
