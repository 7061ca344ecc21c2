"""The dialect of Anthropic's messages."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.routing import Route

from ....protocols.anthropic.operations import OPERATIONS
from ....protocols.anthropic.response import message_error
from ....protocols.shared.generation import named_sse
from ..dialect import Dialect, route
from ..error_bodies import ErrorShape
from ..service import Service
from .routes import MessageRoutes


def _routes(service: Service) -> list[Route]:
    if not service.has_chat_template:
        return []
    messages = MessageRoutes(service)
    return [
        route("/v1/messages", messages.create, "POST", options=()),
        route("/v1/messages/count_tokens", messages.count_tokens, "POST", options=()),
    ]


ANTHROPIC: Final = Dialect(
    operations=OPERATIONS,
    routes=_routes,
    errors=ErrorShape(
        lambda error: msgspec.json.encode(message_error(error)),
        lambda error: named_sse(message_error(error)),
    ),
)
