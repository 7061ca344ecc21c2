"""The dialect of text generation: chat completions, completions, tokens."""

from __future__ import annotations

from typing import Final

from starlette.routing import Route

from ....protocols.chat.operations import OPERATIONS
from ..dialect import Dialect, route
from ..service import Service
from .completions import CompletionRoutes
from .routes import ChatRoutes


def _routes(service: Service) -> list[Route]:
    # A model that only embeds answers these with an error that names it.
    embeds = any(model.embeds for model in service.models.values())
    if not embeds and not any(model.text for model in service.models.values()):
        return []
    completions = CompletionRoutes(service)
    found = [
        route("/v1/completions", completions.completions, "POST", options=()),
        route("/tokenize", completions.tokenize, "POST", options=()),
        route("/detokenize", completions.detokenize, "POST", options=()),
        route("/tokenizer_info", completions.tokenizer_info, "GET", options=("model",)),
    ]
    if embeds or service.has_chat_template:
        chat = ChatRoutes(service).chat_completions
        found.append(route("/v1/chat/completions", chat, "POST", options=()))
    return found


CHAT: Final = Dialect(operations=OPERATIONS, routes=_routes)
