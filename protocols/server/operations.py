"""The routes about the server itself, as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from ..anthropic.response import MessageError
from ..openapi.operation import Error, Operation, Operations
from ..server.models import ModelCard, ModelList


class Status(Struct, frozen=True):
    """Of the probes."""

    status: Literal["ok", "loading", "draining", "unavailable", "failed"]
    models: dict[str, str] | None = None


class Version(Struct, frozen=True):
    """`/version`."""

    version: str


class Load(Struct, frozen=True):
    """`/load`: requests and live sessions in hand."""

    server_load: int


_EITHER: Final = (Error, MessageError)
"""Anthropic's where the request has an `anthropic-version`."""
_ALIVE: Final = "200 while the process answers and may yet serve"
OPERATIONS: Final = Operations(
    paths={
        "/health": (
            Operation(
                summary="200 when every model can take work", answers=(Status,), unready=Status, is_open=True
            ),
        ),
        "/live": (Operation(summary=_ALIVE, answers=(Status,), unready=Status, is_open=True),),
        "/ping": (
            Operation(summary="As /live", answers=(Status,), unready=Status, is_open=True),
            Operation(summary="As /live", method="post", answers=(Status,), unready=Status, is_open=True),
        ),
        "/version": (Operation(summary="The package's version", answers=(Version,)),),
        "/load": (Operation(summary="Requests and sessions in hand", answers=(Load,)),),
        "/metrics": (Operation(summary="Prometheus' text format", other_answers=("text/plain",)),),
        "/openapi.json": (Operation(summary="This document", other_answers=("application/json",)),),
        "/docs": (Operation(summary="This document as a page for people", other_answers=("text/html",)),),
        "/v1/models": (Operation(summary="Every served model", answers=(ModelList,), faults=_EITHER),),
        "/v1/models/{id}": (Operation(summary="One served model", answers=(ModelCard,), faults=_EITHER),),
    }
)
