"""The routes of the console, as the OpenAPI document describes them."""

from __future__ import annotations

from typing import Final

from ..openapi.operation import Operation, Operations

OPERATIONS: Final = Operations(
    paths={
        "/console": (
            Operation(
                summary="A page in which the server is tried", other_answers=("text/html",), is_open=True
            ),
        ),
        "/console/{file}": (
            Operation(summary="The files of that page", other_answers=("text/javascript",), is_open=True),
        ),
    }
)
