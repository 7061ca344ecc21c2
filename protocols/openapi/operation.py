"""What one route of a dialect takes and gives, as the OpenAPI document describes it.

Each dialect has a value of `Operations` (`protocols/chat/operations.py` and its neighbours);
`protocols/openapi/document.py` joins those of the served dialects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct

Schema = dict[str, Any]
REF: Final = "#/components/schemas/{name}"
"""Where a named schema lies."""


class ErrorDetail(Struct, frozen=True):
    """What went wrong, and whose fault it is."""

    message: str
    type: str
    param: str | None
    code: str | None


class Error(Struct, frozen=True):
    """The body of every answer that is not 2xx, but for those of Anthropic's dialect."""

    error: ErrorDetail


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one route."""

    summary: str
    method: str = "get"
    body: type[Struct] | Schema | None = None
    """A struct is JSON, a schema a multipart form."""
    is_body_needed: bool = True
    answers: tuple[type[Struct], ...] = ()
    other_answers: tuple[str, ...] = ()
    """Content types of answers that are text."""
    events: tuple[type[Struct], ...] = ()
    """What `stream` gives instead."""
    faults: tuple[type[Struct], ...] = ()
    """The bodies of its errors, where these are not the dialect's."""
    is_websocket: bool = False
    """Without an upgrade its only answer is 426."""
    unready: type[Struct] | None = None
    """The body of 503, where that is no error."""
    is_open: bool = False
    """Needs no key."""
    query: Mapping[str, Schema] = field(default_factory=dict)
    """Optional query parameters, each with its `description`."""


def _unchanged(schemas: Schema) -> None:
    """No schema needs more than its struct says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """The part of the document that one dialect writes."""

    paths: Mapping[str, tuple[Operation, ...]]
    """Every route of the dialect, with one operation for each method."""
    amend: Callable[[Schema], None] = _unchanged
    """Adds to the named schemas, in place, what structs cannot state. Called if a path is served."""
    refused: tuple[str, ...] = ()
    """Fields of bodies that are known only so that their refusal can name the alternative."""
    error: type[Struct] = Error
    """The body of each answer that is not 2xx."""


def post(
    summary: str, body: type[Struct], answer: type[Struct], *, events: tuple[type[Struct], ...] = ()
) -> Operation:
    """An operation that takes JSON and gives JSON; with `events`, also a stream of these."""
    return Operation(summary=summary, method="post", body=body, answers=(answer,), events=events)
