"""`/v1/embeddings`: how a body becomes inputs, and vectors a body.

Shapes are `protocols/embeddings/embeddings.py`, the work is `actors/text/embedding.py`.
"""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from ....protocols.embeddings.embeddings import embedding_body, parse_embeddings
from ....protocols.errors import BadRequestError
from ...runtime.off_loop import off_loop
from ...text.embedding import NO_EMBEDDING, EmbeddingModel, embed_all
from ..chat.text_requests import JSON, admission, read_and_parse
from ..event_stream import SlicedResponse
from ..service import Service


class EmbeddingRoutes:
    """The endpoint. It takes a request and gives a response or raises a `SensoriumError`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def embeddings(self, request: Request) -> Response:
        """One vector of each input. A client that leaves ends the work."""
        service = self._service
        caller = service.caller(request)
        hold = admission(service, request, caller)
        with hold():
            options, inputs = await read_and_parse(service, request, parse_embeddings)
            model = embedding_model(service, options.model)
            lane = service.lane(caller, priority=options.priority or 0, num_answers=len(inputs))
            with service.answers(caller, len(inputs)), service.answering():
                found = await embed_all(
                    model,
                    inputs,
                    dimensions=options.dimensions,
                    lane=lane,
                    cache_salt=service.cache_salt(caller, None),
                )
            encoding = options.encoding_format or "float"
            body = partial(embedding_body, model.name, found.vectors, found.num_tokens, encoding)
            size = sum(map(len, found.vectors))
            return SlicedResponse(await off_loop(body, size=size), media_type=JSON)


def embedding_model(service: Service, name: str | None) -> EmbeddingModel:
    """The model of that name, or the first that embeds where there is none.

    Raises NotFoundError, and BadRequestError, with those that embed, for one that does not.
    """
    able = [each for each in service.models.values() if each.embeds is not None]
    model = service.model(name) if name or not able else able[0]
    if model.embeds is not None:
        return model.embeds
    served = ", ".join(each.name for each in able) or "none"
    raise BadRequestError(
        f"The model `{model.name}` does not embed; it can {', '.join(model.abilities)}. "
        f"Models served here that do: {served}. {NO_EMBEDDING}.",
        param="model",
        code="unsupported_task",
    )
